"""Renders the chart with the real `helm`, and reads what came out."""

import functools
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pharos.config import load
from pharos.config.schema import Config

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "pharos"
HELM: Final = ROOT / ".cache" / "tools" / "helm"

Manifest = dict[str, Any]
_done: dict[str, str] = {}


class RefusedError(Exception):
    """Helm rendered nothing; the text is what it said."""


def helm(*words: str, values: dict[str, Any] | None = None) -> str:
    """Run it; returns its output. Raises `RefusedError`. The same is not run twice: a start takes a moment."""
    key = json.dumps([words, values])
    if key not in _done:
        _done[key] = _run(words, values)
    return _done[key]


def _run(words: tuple[str, ...], values: dict[str, Any] | None) -> str:
    if not HELM.exists():
        pytest.skip("there is no helm here: hack/setup-helm fetches it")
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run(
        [str(HELM), *words, *given], input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False,
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


def render(values: dict[str, Any] | None = None, *words: str, release: str = "pharos") -> list[Manifest]:
    """Every object of the chart with these values."""
    text = helm("template", release, str(CHART), "--namespace", "models", *words, values=values or {})
    return [found for found in yaml.safe_load_all(text) if found]


@functools.cache
def plain() -> tuple[Manifest, ...]:
    """With no values of one's own."""
    return tuple(render())


def the(kind: str, found: list[Manifest] | tuple[Manifest, ...], name: str | None = None) -> Manifest:
    """The one object of a kind."""
    [one] = [it for it in found if it["kind"] == kind and (name is None or it["metadata"]["name"] == name)]
    return one


def kinds(found: list[Manifest]) -> set[str]:
    return {it["kind"] for it in found}


def pod_of(found: list[Manifest] | tuple[Manifest, ...]) -> Manifest:
    """The Pod's spec of the Deployment."""
    spec: Manifest = the("Deployment", found)["spec"]["template"]["spec"]
    return spec


def container_of(found: list[Manifest] | tuple[Manifest, ...]) -> Manifest:
    one: Manifest = pod_of(found)["containers"][0]
    return one


def config_of(found: list[Manifest] | tuple[Manifest, ...]) -> Manifest:
    """What is in `pharos.yaml`."""
    config: Manifest = yaml.safe_load(the("ConfigMap", found, "pharos")["data"]["pharos.yaml"])
    return config


def taken(found: list[Manifest], folder: Path) -> Config:
    """The configuration as the program takes it, with the Secret of keys where a Pod would have it."""
    maps = [it for it in found if it["kind"] == "ConfigMap" and "pharos.yaml" in it.get("data", {})]
    text: str = maps[0]["data"]["pharos.yaml"]
    for secret in (it for it in found if it["kind"] == "Secret" and it["metadata"]["name"].endswith("-keys")):
        for name, held in secret["stringData"].items():
            (folder / name).write_text(held, encoding="utf-8")
    return load.parse(text.replace("/etc/pharos-keys", str(folder)), {}, source="pharos.yaml")
