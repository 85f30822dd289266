"""What an operator should look at first, in a sentence each, the worst first. Forbidden here: guessing at causes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pharos.obs.words import listed, plural, size

BROKEN: Final = {"down": "bad", "ejected": "bad", "unrecognised": "bad", "starting": "warn", "busy": "warn"}
"""State of a backend -> how bad that is."""
_RANK: Final = {"bad": 0, "warn": 1, "note": 2}
NAMED: Final = 3
"""Backends that one item names."""
DRAINERS: Final = {
    "operator": "an operator (pharos backend undrain)",
    "discovery": "discovery (pharos.drain, or it is not ready or ends)",
}
"""Who keeps new requests from a backend -> who that is, and how it ends."""

Item = dict[str, str]
Described = Mapping[str, Any]


def items(status: Described) -> list[Item]:
    """Everything, each with `tone` (bad, warn, note), `text` and `where` (an id on the page)."""
    found = [
        *_config(status["config"]),
        *(item for backend in status["backends"] for item in _backend(backend)),
        *_models(status),
        *(item for peer in status["peers"] or () for item in _peer(peer)),
        *_untold(status["backends"]),
    ]
    return sorted(found, key=lambda item: _RANK[item["tone"]])


def _config(config: Described | None) -> Iterator[Item]:
    if config is not None and config.get("error"):
        yield _item(
            "bad", "config", f"the configuration was not taken over, the last good one counts: {config['error']}"
        )


def _backend(backend: Described) -> Iterator[Item]:
    name, tone = backend["name"], BROKEN.get(backend["state"])
    where = f"backend-{name}"
    if tone is not None:
        why = f": {backend['error']}" if backend["error"] else ""
        yield _item(tone, where, f"{name} is {backend['state']}{why}")
    if backend["drained_by"] is not None:
        left = plural(backend["inflight"], "request") if backend["inflight"] else "nothing"
        who = DRAINERS[backend["drained_by"]]
        yield _item("note", where, f"{name} gets no new requests, drained by {who}; {left} in flight")


def _peer(peer: Described) -> Iterator[Item]:
    name = peer["name"]
    if not peer["up"] and peer["error"]:
        yield _item("warn", "peers", f"the peer {name} is not reached: {peer['error']}")
    if peer["config_differs"]:
        yield _item(
            "warn", "peers", f"the peer {name} has other {', '.join(peer['config_differs'])} than this instance"
        )


def _models(status: Described) -> Iterator[Item]:
    for model, count in status["waiting"].items():
        yield _item("warn", "models", f"{plural(count, 'request')} for {model} in the queue")
    for model in status["fallen"]:
        yield _item("warn", "models", f"least-load chooses for {model}, as its estimates mislead")
    for one in status["cache_busters"]:
        yield _item(
            "warn",
            "requests",
            f"no cache ever holds what {one['key']} asks {one['model']}: its requests are alike but for some "
            f"{size(one['size'])} at byte {one['position']}, which change each time",
        )


def _untold(backends: Iterable[Described]) -> Iterator[Item]:
    """What could be known and is not, in one line for all."""
    lacking = {
        one["name"]: sum(not row["expected"] for row in one["unknown"])
        for one in backends
        if one["kind_source"] is not None and one["up"]
    }
    names = [name for name, count in lacking.items() if count]
    if names:
        count = plural(sum(lacking.values()), "signal")
        yield _item("note", f"backend-{names[0]}", f"{count} could be known: {listed(names, NAMED)} says how")


def _item(tone: str, where: str, text: str) -> Item:
    return {"tone": tone, "where": where, "text": text}
