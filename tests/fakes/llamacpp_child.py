"""The llama.cpp server of one model behind a double that has several: its slots, and its pages as recorded there."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes import exposition
from tests.fakes.caches import SlotCache
from tests.fakes.captures import Recorded
from tests.fakes.engine import EngineDouble
from tests.fakes.http import Connection, Reply
from tests.fakes.replies import Book, Exchange, Style
from tests.fakes.sending import Sending, prompt_text
from tests.fakes.slots import Slots

STYLE = Style(leaves_out_cached=True)


class Child:
    """One model's server, as long as it runs. `pages`: its recorded /metrics, /props and /slots."""

    def __init__(
        self,
        model: str,
        pages: Mapping[str, Recorded],
        *,
        slots: int,
        n_ctx: int,
        changed: Callable[[], None],
        host_bytes: int = 0,
    ) -> None:
        self.model = model
        self.slots = slots
        self.n_ctx = n_ctx
        self.decoded = 0
        self._pages = pages
        self._places = Slots(slots, changed)
        self._cache = SlotCache(slots, host_bytes)

    @property
    def running(self) -> int:
        return self._places.taken

    @property
    def deferred(self) -> int:
        return self._places.waiting

    def forget(self) -> None:
        """Its cache is gone: it slept."""
        self._cache.clear()

    def page(self, path: str) -> Reply | None:
        """One of its pages with its numbers put in; `None`: it was not recorded."""
        recorded = self._pages.get(path)
        if recorded is None:
            return None
        body = recorded.body
        if path == "/metrics":
            body = exposition.put(body, "llamacpp:requests_processing", self.running)
            body = exposition.put(body, "llamacpp:requests_deferred", self.deferred)
            body = _steps(body, self.decoded)
        elif path in {"/props", "/slots"}:
            told = json.loads(body)
            body = _dump(self._props(told) if path == "/props" else self._slots(told))
        return Reply(recorded.status, body, recorded.headers)

    def _props(self, told: dict[str, Any]) -> dict[str, Any]:
        told["default_generation_settings"]["n_ctx"] = self.n_ctx
        return {**told, "total_slots": self.slots, "model_alias": self.model}

    def _slots(self, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
        used = told[-1]
        rest = [{**told[0], "id": number} for number in range(self.slots - 1)]
        return [
            {**slot, "id": number, "n_ctx": self.n_ctx, "is_processing": number < self.running}
            for number, slot in enumerate([*rest, used])
        ]

    async def run(
        self,
        double: EngineDouble,
        exchange: Exchange,
        asked: Mapping[str, Any],
        to: Connection,
        *,
        has_head: bool = False,
    ) -> None:
        """Run a generation once there is a slot."""
        sending = Sending(
            double, exchange, asked, model=self.model, cache=self._cache, style=STYLE, on_tokens=self._worked
        )
        await self._places.enter()
        try:
            await sending.run(to, has_head=has_head)
        finally:
            self._places.leave()

    def _worked(self, _prompt: int, decoded: int) -> None:
        self.decoded += decoded


def template(book: Book, path: str, asked: Mapping[str, Any], exact: Exchange | None) -> Exchange | None:
    """The recorded exchange that a reply of a model's server is made from; `None`: there is no such route."""
    if exact is not None:
        return exact
    return book.like(path, asked, streams=asked.get("stream") is True)


def too_long(book: Book, asked: Mapping[str, Any], tokens: int, n_ctx: int) -> Reply | None:
    """The recorded refusal of a prompt that does not fit; `None`: it fits."""
    if tokens <= n_ctx or not prompt_text(asked):
        return None
    refusal = book.named("err_too_long").whole
    told = json.loads(refusal.body)
    told["error"].update(n_prompt_tokens=tokens, n_ctx=n_ctx)
    told["error"]["message"] = (
        f"request ({tokens} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
    )
    return Reply(refusal.status, _dump(told), refusal.headers)


def _steps(body: bytes, number: int) -> bytes:
    """Count decoding steps up, as the whole numbers that they are."""
    name = b"\nllamacpp:n_decode_total "
    before, found, rest = body.partition(name)
    told, end, after = rest.partition(b"\n")
    return before + found + b"%d" % (int(told) + number) + end + after if found else body


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
