"""The models of an Ollama double, and those in its memory: what they say of themselves is recorded."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tests.fakes import captures
from tests.fakes.caches import SlotCache
from tests.fakes.replies import book
from tests.fakes.slots import Slots

MIDNIGHT = datetime(2026, 11, 30, tzinfo=UTC)
"""The date that stands for the start of the double's clock."""
FOR_EVER_S = 1e9
_DURATION = re.compile(r"(-?[0-9.]+)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Model(msgspec.Struct, frozen=True):
    """One model on the disk."""

    name: str
    tags: dict[str, Any]
    card: dict[str, Any]
    shown: bytes
    loaded: Mapping[int, dict[str, Any]]
    """Context length to what /api/ps says of it."""
    context: int
    """That it is loaded with when nothing is asked for."""
    is_embedding: bool
    memory: int | None = None

    @property
    def file(self) -> str:
        """The name of its file, by which the log calls it."""
        found = re.search(rb"sha256-[0-9a-f]{64}", self.shown)
        assert found is not None
        return found[0].decode()

    def memory_at(self, context: int) -> int:
        """Bytes that it takes."""
        return self.memory if self.memory is not None else int(self.entry_at(context)["size"])

    def entry_at(self, context: int) -> dict[str, Any]:
        return self.loaded.get(context, self.loaded[self.context])


def models_of(version: str, wanted: Mapping[str, int | None] | None) -> dict[str, Model]:
    """The recorded models, or copies of the recorded chat model under other names with bytes of memory each takes."""
    recorded = _recorded(version)
    if wanted is None:
        return recorded
    chat = recorded["tiny:latest"]
    return {name: recorded.get(name) or _copy(chat, name, size, n) for n, (name, size) in enumerate(wanted.items())}


def _recorded(version: str) -> dict[str, Model]:
    idle = captures.state("ollama", version, "idle")
    cards = {card["id"]: card for card in json.loads(idle["/v1/models"].body)["data"]}
    loaded: dict[str, dict[int, dict[str, Any]]] = {}
    for state in ("two_models", "reloaded_other_ctx"):
        for entry in json.loads(captures.state("ollama", version, state)["/api/ps"].body)["models"]:
            loaded.setdefault(entry["name"], {}).setdefault(entry["context_length"], entry)
    models = {}
    for entry in json.loads(idle["/api/tags"].body)["models"]:
        name = entry["name"]
        is_embedding = "embed" in name
        shown = book("ollama", version).named("api_show_embed" if is_embedding else "api_show").reply.body
        models[name] = Model(name, entry, cards[name], shown, loaded[name], 4096, is_embedding)
    return models


def _copy(chat: Model, name: str, size: int | None, number: int) -> Model:
    """The same model under another name, of a file of its own."""
    named = {"name": name, "model": name}
    return msgspec.structs.replace(
        chat,
        name=name,
        tags={**chat.tags, **named},
        card={**chat.card, "id": name},
        shown=chat.shown.replace(chat.file.encode(), b"sha256-%064x" % (number + 1)).replace(
            b"tiny:latest", name.encode()
        ),
        loaded={context: {**entry, **named} for context, entry in chat.loaded.items()},
        memory=size,
    )


class Runner:
    """A model in memory, or on its way there."""

    def __init__(
        self, model: Model, context: int, parallel: int, now: float, keep_alive_s: float, changed: Callable[[], None]
    ) -> None:
        self.model = model
        self.context = context
        self.slots = Slots(1 if model.is_embedding else parallel, changed)
        self.cache = SlotCache(self.slots.count)
        self.is_ready = False
        self.users = 0
        """Requests that have or want a slot of it."""
        self.began_at = self.used_at = now
        self._keep_alive_s = keep_alive_s
        self._expires_at: float | None = None
        """`None` until its first request has ended."""

    def ended(self, now: float, keep_alive: float | None) -> None:
        """A request ended: it stays in memory for the keep-alive from now on; `None`: for ever."""
        self.users -= 1
        self.used_at = now
        self._expires_at = now + (keep_alive if keep_alive is not None else FOR_EVER_S)

    def stays_until(self, now: float) -> float:
        """What it says of when it leaves: that moves while the first request runs, and later stands still."""
        return self._expires_at if self._expires_at is not None else now + self._keep_alive_s

    def is_over(self, now: float) -> bool:
        """Whether it leaves memory: never while it is used."""
        return self.is_ready and self.users == 0 and self.stays_until(now) <= now

    def entry(self, now: float) -> dict[str, Any]:
        """What /api/ps says of it."""
        expires = MIDNIGHT + timedelta(seconds=self.stays_until(now))
        told = {"expires_at": expires.strftime("%Y-%m-%dT%H:%M:%S.%f000Z"), "context_length": self.context}
        size = {"size": self.model.memory} if self.model.memory is not None else {}
        return {**self.model.entry_at(self.context), **told, **size}

    def kept_of(self, tokens: int, *, halves: bool) -> int:
        """Tokens of a prompt that it works on: one that is too long is cut without a word, from 0.30 on to the half."""
        if tokens <= self.context:
            return tokens
        return self.context // 2 + 3 if halves else self.context


def asked_context(asked: Mapping[str, Any], model: Model) -> int:
    """The context length that a native request wants."""
    options = asked.get("options")
    wanted = options.get("num_ctx") if isinstance(options, dict) else None
    return wanted if isinstance(wanted, int) and wanted > 0 else model.context


def asked_keep_alive(asked: Mapping[str, Any], usual: float) -> float | None:
    """Seconds that a request wants the model kept for after it; `None`: for ever."""
    wanted = asked.get("keep_alive")
    if isinstance(wanted, str):
        found = _DURATION.fullmatch(wanted)
        seconds = float(found[1]) * _UNITS[found[2]] if found is not None else float(wanted)
    else:
        seconds = float(wanted) if wanted is not None else usual
    return seconds if seconds >= 0 else None
