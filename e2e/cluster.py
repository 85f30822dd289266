"""The cluster that is tested on: kubectl and helm as people use them, and waiting for what they show.

Forbidden here: knowing what is tested.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "charts" / "pharos"
TOOLS: Final = Path("/etc/kube-cluster/bin")
"""Where hack/cluster links its programs."""
WAIT_S: Final = 180.0
"""Longest wait for anything; reached only when a test fails."""


class CommandError(Exception):
    """A command failed; the text is what it said."""

    def __init__(self, text: str, output: str) -> None:
        super().__init__(text)
        self.output = output
        """What it printed before."""


def run(*words: str, given: str | None = None, env: dict[str, str] | None = None, timeout_s: float = 600) -> str:
    """Run a command; returns its output. Raises `CommandError`."""
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, check=False, timeout=timeout_s,
        env={**os.environ, **(env or {}), "PATH": f"{TOOLS}:{ROOT / '.cache' / 'tools'}:{os.environ['PATH']}"},
    )  # fmt: skip
    if done.returncode:
        raise CommandError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}", done.stdout)
    return done.stdout


def until(what: str, claim: Callable[[], Any], *, wait_s: float = WAIT_S, every_s: float = 0.3) -> Any:
    """Ask until the answer is true; returns it. A command that fails meanwhile is no answer."""
    end, last = time.monotonic() + wait_s, ""
    while time.monotonic() < end:
        try:
            if found := claim():
                return found
        except CommandError as error:
            last = str(error)
        time.sleep(every_s)  # other processes are waited for: there is no event to wait on
    raise AssertionError(f"not within {wait_s:g} s: {what}{f' ({last})' if last else ''}")


def new_namespace(name: str) -> "Namespace":
    """Make a namespace in which Pods can be made: that needs an account, which a controller makes a moment later."""
    run("kubectl", "create", "namespace", name)
    run("kubectl", "-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=120s")
    return Namespace(name)


class Namespace:
    """One namespace of the cluster."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kubectl(self, *words: str, given: str | None = None, timeout_s: float = 600) -> str:
        """`kubectl -n NAME …`."""
        return run("kubectl", "-n", self.name, *words, given=given, timeout_s=timeout_s)

    def get(self, *words: str) -> Any:
        """`kubectl get … -o json`."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", given="\n---\n".join(json.dumps(one) for one in objects))

    def helm(self, verb: str, release: str, values: dict[str, Any], *words: str, wait: bool = True) -> str:
        """`helm install|upgrade` of the chart."""
        waiting = ["--wait", "--timeout", "300s"] if wait else []
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values, file)
            file.flush()
            return run("helm", verb, release, str(CHART), "-n", self.name, "--values", file.name, *waiting, *words)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The Pods of a selector, those that end included."""
        found: list[dict[str, Any]] = self.get("pods", "-l", selector)["items"]
        return found

    def doctor(self, *words: str, where: str = "deploy/pharos") -> Any:
        """`pharos doctor --json` in the Pod; its verdict is in what it prints, not in whether it failed."""
        try:
            text = self.kubectl("exec", where, "--", "pharos", "doctor", "--json", *words)
        except CommandError as error:
            if not error.output.startswith("{"):
                raise
            text = error.output
        return json.loads(text)

    def backends(self, where: str = "deploy/pharos") -> dict[str, dict[str, Any]]:
        """The backends that doctor shows, by name."""
        return {one["name"]: one for one in self.doctor(where=where)["backends"]}

    def metric(self, pod: str, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels, in one Pod."""
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}:9090/proxy/metrics"
        found = 0.0
        for line in run("kubectl", "get", "--raw", path).splitlines():
            series, _, value = line.rpartition(" ")
            if re.split(r"[{ ]", series, maxsplit=1)[0] == name and all(
                f'{label}="{wanted}"' in series for label, wanted in labels.items()
            ):
                found += float(value)
        return found

    def address(self, service: str) -> str:
        """Where a Service is reached from this machine."""
        spec = self.get("service", service)["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


async def later(function: Callable[..., Any], *words: Any, **named: Any) -> Any:
    """Run something that waits beside what the loop does."""
    return await asyncio.to_thread(function, *words, **named)


def has(program: str) -> bool:
    """Whether a program is there."""
    return shutil.which(program, path=f"{TOOLS}:{os.environ['PATH']}") is not None
