"""The models of a llama-swap double: what its pages and events say of them, as recorded."""

import enum
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tests.fakes import captures
from tests.fakes.captures import Recorded
from tests.fakes.llamacpp_child import Child

VERSION = "v250-5-g0bdb37"
LIMIT = 10
"""Requests that are let in at once unless told otherwise."""
TEMPLATE = "tiny"
"""The model whose server's pages were recorded."""


class State(enum.StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"


class Swapped(msgspec.Struct, frozen=True):
    """What the configuration says of a model."""

    name: str
    aliases: tuple[str, ...] = ()
    ttl: int = 0
    """Seconds without a request after which it is unloaded; 0: never."""
    limit: int = LIMIT
    slots: int = 2
    n_ctx: int = 4096
    is_embedding: bool = False


RECORDED = (
    Swapped("embed", is_embedding=True),
    Swapped("other", ttl=20),
    Swapped(TEMPLATE, aliases=("small",)),
)


class Model:
    """One model and where it is."""

    def __init__(self, spec: Swapped) -> None:
        self.spec = spec
        self.name = spec.name
        self.aliases = spec.aliases
        self.limit = spec.limit
        self.n_ctx = spec.n_ctx
        self.is_embedding = spec.is_embedding
        self.state = State.STOPPED
        self.child: Child | None = None
        self.inside: dict[str, dict[str, Any]] = {}
        """Requests that take a place of its limit, as the events tell them."""
        self.serving = 0
        """Those of them that its server has."""
        self.last_end = 0.0

    def is_over(self, now: float) -> bool:
        """Whether its time to live has run out."""
        is_unused = self.state is State.READY and not self.inside
        return is_unused and self.spec.ttl > 0 and now - self.last_end >= self.spec.ttl

    def new_child(self, changed: Callable[[], None]) -> Child:
        return Child(self.name, _child_pages(), slots=self.spec.slots, n_ctx=self.spec.n_ctx, changed=changed)

    def status(self) -> dict[str, Any]:
        """What an event says of it."""
        aliases = {"aliases": list(self.aliases)} if self.aliases else {}
        told = {"id": self.name, "name": "", "description": "", "state": self.state.value}
        return {**told, "unlisted": False, "peerID": "", **aliases}


def models_of(wanted: Sequence[Swapped] | None) -> dict[str, Model]:
    return {spec.name: Model(spec) for spec in (wanted if wanted is not None else RECORDED)}


def _child_pages() -> dict[str, Recorded]:
    start = f"/upstream/{TEMPLATE}"
    idle = captures.state("llama-swap", VERSION, "idle")
    return {path.removeprefix(start): page for path, page in idle.items() if path.startswith(start)}


def cards(models: Iterable[Model]) -> bytes:
    """The model list; it calls a model loaded as soon as it starts."""
    recorded = json.loads(captures.state("llama-swap", VERSION, "idle")["/v1/models"].body)
    first = recorded["data"][0]
    recorded["data"] = [
        {
            **first,
            "id": model.name,
            "meta": {"llamaswap": {**({"aliases": list(model.aliases)} if model.aliases else {}), "type": "model"}},
            "status": {"value": "unloaded" if model.state is State.STOPPED else "loaded"},
        }
        for model in models
    ]
    return _dump(recorded) + b"\n"


def running(models: Iterable[Model]) -> bytes:
    """What /running says: only those that start or are ready."""
    entry = json.loads(captures.state("llama-swap", VERSION, "idle")["/running"].body)["running"][0]
    listed = [
        {
            **entry,
            "model": model.name,
            "state": model.state.value,
            "cmd": entry["cmd"].replace(TEMPLATE, model.name),
            "ttl": model.spec.ttl,
        }
        for model in models
        if model.state is not State.STOPPED
    ]
    return _dump({"running": listed}) + b"\n"


def event(kind: str, content: Any) -> bytes:
    """An event as it stands on the wire: its content is JSON in a string."""
    return b"event:message\ndata:" + _dump({"type": kind, "data": _dump(content).decode()}) + b"\n\n"


def status_event(models: Iterable[Model]) -> bytes:
    return event("modelStatus", [model.status() for model in models])


def first_events(models: Iterable[Model]) -> list[bytes]:
    """What a follower gets at once: logs, states, settings, and the requests that run."""
    models = tuple(models)
    inside = [record for model in models for record in model.inside.values()]
    snapshot: dict[str, Any] = {"operation": "snapshot", **({"requests": inside} if inside else {})}
    return [
        event("logData", {"data": "", "source": "proxy"}),
        event("logData", {"data": "", "source": "upstream"}),
        status_event(models),
        event("uiConfig", {"activity": {"session_id": ["X-Session-ID", "X-Litellm-Session-Id"]}}),
        event("profileChanged", {"active": None}),
        event("inflight", snapshot),
    ]


def begin(request_id: str, model: str, method: str, path: str) -> dict[str, Any]:
    """A request as the events tell it."""
    return {
        "id": request_id,
        "timestamp": "2026-11-30T09:30:27.698582381Z",
        "model": model,
        "req_path": path,
        "method": method,
        "req_headers": {"Content-Type": "application/json"},
        "remote_ip": "127.0.0.1",
        "resp_headers": {},
        "resp_bytes": 0,
        "elapsed_ms": 0,
    }


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
