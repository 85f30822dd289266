"""Every recorded exchange through the whole proxy: the engine gets what was sent, the client what was answered."""

import json
from typing import Any

import pytest

from pharos.proxy.table import ROUTES
from tests.fakes import captures
from tests.fakes.replies import Exchange, book, events_of
from tests.proxy.engine_script import Turn
from tests.proxy.harness import Reply, front

PASSED_ON = (200, 400)
"""Statuses of answers that are the client's, whatever else there is; others may be tried elsewhere."""


def exchanges() -> list[tuple[str, Exchange]]:
    """Engine and exchange, of all that are asked for on a route and for a model."""
    found = []
    for folder in sorted(captures.TESTDATA.glob("*/*/streams")):
        engine, version = folder.parts[-3], folder.parts[-2]
        for one in book(engine, version).exchanges:
            asked = one.body if isinstance(one.body, dict) else {}
            if one.path in ROUTES and one.method == "POST" and "model" in asked and one.reply.status in PASSED_ON:
                found.append((f"{engine}/{version}", one))
    return found


EXCHANGES = exchanges()


def played(one: Exchange) -> Any:
    """An engine that answers as it did, event by event where it streamed."""
    extra = b"".join(
        f"{name}: {value}\r\n".encode() for name, value in one.reply.headers.items() if name.lower() != "date"
    )

    async def play(turn: Turn) -> None:
        if not one.is_stream:
            await turn.write(
                b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b"
                % (one.reply.status, extra, len(one.reply.body), one.reply.body)
            )
            return
        await turn.write(b"HTTP/1.1 %d X\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (one.reply.status, extra))
        for event in events_of(one.reply):
            await turn.chunk(event)
        await turn.write(b"0\r\n\r\n")

    return play


def test_each_kind_of_exchange_is_among_them() -> None:
    paths = {one.path for _, one in EXCHANGES}
    assert paths >= {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
        "/v1/messages/count_tokens", "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
    }  # fmt: skip


def is_refused_by_pharos(one: Exchange) -> bool:
    """The engine was asked what Pharos itself looks at: it need not be asked."""
    return ROUTES[one.path].needs_messages and not isinstance(one.body.get("messages"), list)


@pytest.mark.parametrize(("engine", "one"), EXCHANGES, ids=[f"{engine}/{one.name}" for engine, one in EXCHANGES])
async def test_an_exchange_passes_unchanged_in_both_directions(engine: str, one: Exchange) -> None:
    kind = "ollama" if ROUTES[one.path].kinds else engine.partition("/")[0].replace("mlx-lm", "openai")
    async with front(played(one), kind=kind, models=(one.body["model"],)) as (pharos, double):
        sent = json.dumps(one.body).encode()
        reply: Reply = await pharos.ask(sent, path=one.path)
        if is_refused_by_pharos(one):
            assert reply.status == 400
            return
        assert reply.is_whole
        assert (reply.status, reply.body) == (one.reply.status, one.reply.body)
        (turn,) = double.turns
        done = await pharos.finished()
        if ("usage", "pharos_asked") in done.stages:
            assert json.loads(turn.body) == {**one.body, "stream_options": {"include_usage": True}}
        else:
            assert turn.body == sent
        assert done.status == one.reply.status
        assert pharos.inflight == 0
