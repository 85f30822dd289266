"""What ran, when, and how it went: `testdata/clients/ran.yaml`, which docs/clients.md is made from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from clients.catalogue import BY_NAME, CLIENTS, Client
from clients.playing import Outcome
from clients.recording import FOLDER

PATH = FOLDER / "ran.yaml"


class Ran(msgspec.Struct, frozen=True):
    """One client's last whole run."""

    version: str
    engines: dict[str, str]
    steps: list[str]


def read(path: Path = PATH) -> dict[str, Ran]:
    """Client to its run; nothing before there was one."""
    if not path.is_file():
        return {}
    return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")) or {}, dict[str, Ran])


def write(results: Sequence[tuple[Client, Outcome]], engines: Mapping[str, str]) -> None:
    """Add what this run showed; a client that did not do all of its steps keeps what was known of it."""
    found = read()
    for client, outcome in results:
        if outcome.is_whole:
            kinds = {engine: engines[engine] for engine in client.against}
            found[client.name] = Ran(outcome.version, kinds, outcome.steps)
    found = {client.name: found[client.name] for client in CLIENTS if client.name in found}
    text = yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False, allow_unicode=True, width=116)
    PATH.write_text(text, encoding="utf-8")


def page() -> str:
    """Return docs/clients.md."""
    runs = read()
    rows = []
    for name, ran in runs.items():
        client = BY_NAME[name]
        engines = ", ".join(f"{engine} {version}" for engine, version in ran.engines.items())
        recorded = f"[{ran.version}](../testdata/clients/{name}/{ran.version}/meta.yaml)"
        rows.append(f"| {client.title} | {recorded} | {'; '.join(_steps(ran.steps))} | {engines} |")
    settings = [
        f"| {client.title} | {client.setting}{f'; {client.note}' if client.note else ''} |" for client in CLIENTS
    ]
    return "\n".join([INTRO, *settings, "", *RAN, *rows, "", *missing(runs)])


def missing(runs: Mapping[str, Ran]) -> list[str]:
    """Return what the page says of clients that never ran."""
    names = [client.title for client in CLIENTS if client.name not in runs]
    return [f"Not run yet: {', '.join(names)}.", ""] if names else []


def _steps(steps: Sequence[str]) -> list[str]:
    """Return the steps, those of several engines as one: `chat (llamacpp, ollama)`."""
    found: dict[str, list[str]] = {}
    for step in steps:
        name, _, kind = step.partition(" (")
        found.setdefault(name, []).extend([kind.rstrip(")")] if kind else [])
    return [f"{name} ({', '.join(kinds)})" if kinds else name for name, kinds in found.items()]


INTRO = """\
# Clients

Clients as they are, unchanged, against Pharos in front of real engines. Made by `make docs` from what `make clients`
ran; do not edit. `pharos:8090` stands for your Pharos. A key is needed only where Pharos has `keys`; a client that
insists on one takes any text there.

## What to set

| client | what its user must set |
|---|---|"""
RAN = (
    "## What ran",
    "",
    "Each step is checked for what came back; errors are the client's own exceptions, with Pharos's words in them. The",
    "requests of each client are recorded (the version leads to them) and replayed in `make test`. *Comments while",
    "waiting* are comment lines of a stream before its first event: a client must not stumble over them.",
    "",
    "| client | version | what was run | against |",
    "|---|---|---|---|",
)
