"""The README's commands, as they are written there: three of them to a routed token."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from e2e import objects
from e2e.cluster import ROOT, TOOLS, Namespace, until

BLOCK = re.compile(r"## Kubernetes\n(?:[^ #\n].*\n|\n)+((?:    .+\n)+)")


def test_three_commands_lead_to_a_routed_token(namespace: Namespace, tmp_path: Path) -> None:
    namespace.apply(objects.engines("llama", replicas=1), objects.service("llama", "llama"))
    namespace.kubectl("rollout", "status", "deploy/llama", "--timeout", "180s")
    found = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    commands = [line.strip() for line in found[1].splitlines()]
    assert len(commands) == 3

    # Whoever reads it works in the namespace of a context.
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace.name
    here = tmp_path / "kubeconfig"
    here.write_text(yaml.safe_dump(config))
    environ = {
        **os.environ,
        "KUBECONFIG": str(here),
        "PATH": f"{TOOLS}:{ROOT / '.cache' / 'tools'}:{os.environ['PATH']}",
    }

    def typed(command: str) -> str:
        done = subprocess.run(command.split(), cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        print(f"$ {command}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0
        return done.stdout

    for command in commands[:2]:
        typed(command)
    # A model is listed within a second or two of the annotation.
    assert until("a token is routed", lambda: "came through it" in typed(commands[2]), every_s=1)
