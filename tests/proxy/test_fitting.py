"""A request that no engine of its model can take is refused at once, in its protocol, before an engine hears of it."""

import json
from typing import Any

import pytest

from pharos.core.signals import BACKEND, Reading, Signal
from tests.proxy.engine_script import Turn
from tests.proxy.harness import Front, front
from tests.proxy.test_forward import ok

LONG = [{"role": "user", "content": "x" * 10_000}]
CHAT = {"model": "m", "messages": LONG}


async def nobody(turn: Turn) -> None:
    raise AssertionError(turn.line)


def limit(pharos: Front, tokens: int) -> None:
    """The engine says how much its context holds."""
    backend = pharos.fleet.backends["a"]
    backend.told.take({(Signal.CONTEXT_LENGTH, BACKEND): Reading(tokens, pharos.clock(), "test", None)}, pharos.clock())
    backend.stamp += 1


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/chat/completions", CHAT, "context_length_exceeded"),
        ("/v1/messages", CHAT | {"max_tokens": 5}, None),
    ],
)
async def test_a_prompt_that_no_context_holds_is_a_400_that_names_the_limit(
    path: str, body: dict[str, Any], code: str | None
) -> None:
    async with front(nobody) as (pharos, _):
        limit(pharos, 512)
        reply = await pharos.ask(json.dumps(body).encode(), path=path)
        assert reply.status == 400
        error = reply.json()["error"]
        assert error["message"] == "No backend of the model 'm' can take this request: its context holds 512 tokens."
        assert error.get("code") == code
        done = await pharos.finished()
        assert ("route", "does_not_fit") in done.stages


async def test_an_engine_that_cuts_long_prompts_gets_what_fits_nowhere() -> None:
    async with front(ok, kind="ollama") as (pharos, _):
        limit(pharos, 512)
        assert (await pharos.ask(json.dumps(CHAT | {"stream": False}).encode())).status == 200
