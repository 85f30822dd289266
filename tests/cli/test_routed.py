"""`pharos doctor URL` at a Pharos, as `helm test` runs it."""

import asyncio
import hashlib
import json
from collections.abc import Callable

import pytest
from click.testing import Result

from pharos.cli import routed
from tests.app.running import pharos
from tests.fakes.http import HttpDouble, Reply
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

Run = Callable[..., Result]


async def doctor(run: Run, url: str, *words: str, **environ: str) -> Result:
    return await asyncio.to_thread(run, "doctor", url, *words, **environ)


async def test_a_token_comes_through_a_pharos(run: Run) -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        result = await doctor(run, running.url)
    assert result.exit_code == 0, result.output
    assert "is a Pharos, ready" in result.stdout
    assert f"A token of {RECORDED_MODEL} came through it." in result.stdout


async def test_it_is_told_as_json_as_well(run: Run) -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        told = json.loads((await doctor(run, running.url, "--json")).stdout)
        assert told["pharos"] == {
            "url": running.url, "ready": True, "models": [RECORDED_MODEL], "routed": RECORDED_MODEL, "notice": None,
            "error": None,
        }  # fmt: skip
    assert told["backends"] == []


async def test_without_a_key_nothing_is_asked_for_and_with_one_a_token_is(run: Run) -> None:
    keys = [{"name": "alice", "sha256": hashlib.sha256(b"pk-alice").hexdigest()}]
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys) as running:
        without = await doctor(run, running.url)
        shown = await doctor(run, running.url, DOCTOR_API_KEY="pk-alice")
    assert (without.exit_code, shown.exit_code) == (0, 0)
    assert "Notice: its keys are asked for, and DOCTOR_API_KEY has none that it takes" in without.stdout
    assert "came through" in shown.stdout
    assert "pk-alice" not in shown.output


class FakePharos(HttpDouble):
    """One that answers as the test says, known by its id of each request."""

    def __init__(self, **answers: Reply) -> None:
        super().__init__()
        self.answers = {
            "/livez": Reply(200, b"ok\n", {"X-Request-Id": "5b04"}),
            "/healthz": answers.get("healthz", Reply(200, b"ok\n")),
            "/v1/models": answers.get("models", Reply(200, b'{"data": [{"id": "embeds"}, {"id": "chats"}]}')),
        }
        if "chat" in answers:
            self.answers["/v1/chat/completions"] = answers["chat"]


NOTHING = Reply(200, b'{"data": []}')
REFUSED = Reply(503, b'{"error": {"message": "no engine is up\\u001b[2J"}}')


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ({"models": NOTHING}, 0, "Notice: no engine lists a model yet: no token was asked for."),
        ({"healthz": Reply(503, b"not ready\n")}, 1, "it is not ready: not ready"),
        ({"models": Reply(200, b"{")}, 1, "it cannot be read: "),
        ({"models": Reply(200, b'{"data": [{}]}')}, 1, "it cannot be read: KeyError"),
        ({"chat": REFUSED}, 1, "no token came through (embeds: 503 no engine is up"),
        ({"chat": Reply(200, b"[]")}, 1, "its answer is none that clients can read"),
    ],
)
async def test_what_is_wrong_is_told_and_no_model_is_no_fault(
    run: Run, answers: dict[str, Reply], status: int, said: str
) -> None:
    async with FakePharos(**answers) as fake:
        result = await doctor(run, fake.url)
    assert result.exit_code == status
    assert said in result.stdout
    assert "\x1b" not in result.stdout


async def test_an_engine_is_no_pharos() -> None:
    async with FakeLlamaCpp() as engine:
        assert await asyncio.to_thread(routed.doctor, engine.url, as_json=False) is None
    assert await asyncio.to_thread(routed.doctor, engine.url, as_json=False) is None  # nobody there
