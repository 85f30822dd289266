"""Keys with quotas: who is let in, what their clients are told, and that all others cost nothing."""

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pharos.core.usage import Day, Quota, Standing, UsageBook
from pharos.obs import usage
from pharos.proxy.auth import Key
from pharos.proxy.quotas import Quotas, told
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, KEY, USAGE, USAGE_EVENT, Front, Reply, chat, event, front

DAY_S = 86_400.0
MIDNIGHT = 20_000 * DAY_S
OTHER_KEY = "pk-other"
AUTH = f"Authorization: Bearer {KEY}\r\n"
OTHER = f"Authorization: Bearer {OTHER_KEY}\r\n"
ADMITTED, LIMITED, SPENT = ("admission", "ok"), ("admission", "rate_limited"), ("admission", "quota_exceeded")
GENERATE = json.dumps({"model": "m", "prompt": "hi", "stream": False}).encode()


def day_of(now: float) -> Day:
    number = int(now // DAY_S)
    return Day(number, number * DAY_S, (number + 1) * DAY_S)


class Accounts:
    """The book and its clock, with what the app does to keep it."""

    def __init__(self) -> None:
        self.now = MIDNIGHT + 3600.25
        self.book = UsageBook("me", day_of, retention_days=30, now=self.now)
        self.quotas = Quotas(self.book, lambda: self.now, self.settle)
        self.front: Front | None = None
        self.counted = 0

    def settle(self) -> None:
        assert self.front is not None
        for done in self.front.done[self.counted :]:
            done.at_wall, done.duration_s = self.now, 0.0
            usage.count(self.book, done)
        self.counted = len(self.front.done)


async def metered(turn: Turn) -> None:
    """An engine that serves everything, and tells 7 + 3 tokens."""
    if b'"stream":true' in turn.body.replace(b" ", b""):
        await turn.sse_head(b"X-RateLimit-Remaining-Requests: 999\r\nAnthropic-RateLimit-Tokens-Limit: 1\r\n")
        for part in (event(), USAGE_EVENT, DONE):
            await turn.chunk(part)
        await turn.write(b"0\r\n\r\n")
    else:
        plain = {"choices": [{"message": {"content": "hi"}}], "usage": USAGE}
        ollama = {"response": "hi", "done": True, "prompt_eval_count": 7, "eval_count": 3}
        await turn.reply(200, json.dumps(ollama if " /api/" in turn.line else plain).encode())


@contextlib.asynccontextmanager
async def stand(quota: Quota, script: Script = metered, **more: Any) -> AsyncIterator[tuple[Front, Accounts, Any]]:
    accounts = Accounts()
    keys = {KEY: Key("alice", quota=quota), OTHER_KEY: Key("bob")}
    async with front(script, keys=keys, quotas=accounts.quotas, **more) as (pharos, engine):
        accounts.front = pharos
        yield pharos, accounts, engine


def left(reply: Reply) -> dict[str, str]:
    lines = reply.head.decode().split("\r\n")[1:]
    pairs = (line.split(": ", 1) for line in lines if "ratelimit" in line.lower())
    return {name.lower(): value for name, value in pairs}


async def test_requests_beyond_the_limit_of_a_minute_are_refused_until_the_oldest_has_left_the_window() -> None:
    async with stand(Quota(rpm=2)) as (pharos, accounts, engine):
        for expected in (200, 200, 429, 429):
            reply = await pharos.ask(headers=AUTH)
            assert reply.status == expected
            accounts.now += 10
        assert reply.header("retry-after") == ["30"]
        assert reply.json()["error"] == {
            "message": "This key may send 2 requests in 60 s, and has: try again in 30 s.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        assert (await pharos.ask(headers=OTHER)).status == 200
        accounts.now = MIDNIGHT + 3600 + 60
        assert (await pharos.ask(headers=AUTH)).status == 200
        await pharos.finished(6)
        assert [done.stages[0] for done in pharos.done] == [ADMITTED, ADMITTED, LIMITED, LIMITED, ADMITTED, ADMITTED]
        assert len(engine.turns) == 4


async def test_a_key_that_has_used_its_tokens_waits_for_the_next_day() -> None:
    async with stand(Quota(tokens_per_day=20)) as (pharos, accounts, engine):
        for expected in (200, 200, 429):
            reply = await pharos.ask(chat(stream=False), AUTH)
            assert reply.status == expected
        assert reply.header("retry-after") == [str(23 * 3600)]
        assert reply.header("x-should-retry") == ["false"]
        assert reply.json()["error"]["code"] == reply.json()["error"]["type"] == "insufficient_quota"
        assert "has used its 20 tokens of this day: try again in 23 h 0 min" in reply.json()["error"]["message"]
        assert (await pharos.finished(3)).stages == [SPENT]
        assert (await pharos.ask(headers=OTHER)).status == 200
        accounts.now = MIDNIGHT + DAY_S - 0.001
        assert (await pharos.ask(headers=AUTH)).header("retry-after") == ["1"]
        accounts.now = MIDNIGHT + DAY_S
        assert (await pharos.ask(headers=AUTH)).status == 200
        assert len(engine.turns) == 4


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/v1/chat/completions", chat(), {"error": {"code": "rate_limit_exceeded"}}),
        ("/v1/messages", chat(max_tokens=1), {"type": "error", "error": {"type": "rate_limit_error"}}),
        ("/api/generate", GENERATE, {"error": "This key may send 1 requests in 60 s, and has: try again in 60 s."}),
    ],
)
async def test_a_refusal_has_the_shape_of_its_protocol(path: str, body: bytes, error: dict[str, Any]) -> None:
    async with stand(Quota(rpm=1), kind="ollama") as (pharos, _, engine):
        await pharos.ask(body, AUTH, path=path)
        reply = await pharos.ask(body, AUTH, path=path)
        assert reply.status == 429
        assert reply.header("retry-after") == ["60"]
        said = reply.json()
        for name, value in error.items():
            assert said[name] == value if isinstance(value, str) else said[name] | value == said[name]
        assert len(engine.turns) == 1


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            "/v1/chat/completions",
            chat(),
            {
                "x-ratelimit-limit-requests": "5",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-reset-requests": "1m0s",
                "x-ratelimit-limit-tokens": "100",
                "x-ratelimit-remaining-tokens": "100",
                "x-ratelimit-reset-tokens": "23h0m0s",
            },
        ),
        (
            "/v1/messages",
            chat(max_tokens=1),
            {
                "anthropic-ratelimit-requests-limit": "5",
                "anthropic-ratelimit-requests-remaining": "4",
                "anthropic-ratelimit-requests-reset": "2024-10-04T01:01:00Z",
                "anthropic-ratelimit-tokens-limit": "100",
                "anthropic-ratelimit-tokens-remaining": "100",
                "anthropic-ratelimit-tokens-reset": "2024-10-05T00:00:00Z",
            },
        ),
        ("/api/generate", GENERATE, {}),
    ],
)
async def test_every_reply_tells_what_is_left_as_its_protocol_does(
    path: str, body: bytes, expected: dict[str, str]
) -> None:
    async with stand(Quota(5, 100), kind="ollama") as (pharos, _, _engine):
        reply = await pharos.ask(body, AUTH, path=path)
        assert reply.status == 200
        assert left(reply) == expected
        assert left(await pharos.ask(body, OTHER, path=path)) == {}, "nor what the engine says of its own limits"


async def test_a_refused_request_counts_neither_against_the_minute_nor_as_usage() -> None:
    async with stand(Quota(rpm=2)) as (pharos, accounts, _):
        assert (await pharos.ask(b"{", AUTH)).status == 400
        assert (await pharos.ask(b'{"model": "m"}', AUTH)).status == 400
        for _ in range(2):
            assert (await pharos.ask(headers=AUTH)).status == 200
        assert (await pharos.ask(headers=AUTH)).status == 429
        await pharos.finished(5)
        accounts.settle()
        assert accounts.book.today(accounts.now)["alice"].requests == 2
        assert accounts.book.today(accounts.now)["alice"].tokens == 20


async def test_what_takes_no_slot_counts_against_nothing() -> None:
    async with stand(Quota(1, 1), kind="ollama") as (pharos, accounts, _):
        for _ in range(3):
            assert (await pharos.ask(b'{"model": "m"}', AUTH, path="/api/show")).status == 200
            assert (await pharos.fetch("/v1/models", AUTH)).status == 200
        await pharos.finished(3)
        accounts.settle()
        assert accounts.book.today(accounts.now) == {}


async def test_a_body_that_would_be_refused_is_not_waited_for() -> None:
    async with stand(Quota(rpm=1)) as (pharos, _, _engine):
        assert (await pharos.ask(headers=AUTH)).status == 200
        client = await pharos.client()
        client.send(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n{AUTH}Expect: 100-continue\r\n"
            "Content-Length: 9000000\r\n\r\n".encode()
        )
        head = await client.head()
        assert b" 429 " in head, "and not 100"
        assert b"Connection: close" in head


async def test_a_slow_upload_of_a_key_within_its_quota_counts_once() -> None:
    async with stand(Quota(rpm=1)) as (pharos, _, _engine):
        client = await pharos.client()
        body = chat()
        client.send(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n{AUTH}Expect: 100-continue\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert (await client.reply()).status == 200
        assert (await pharos.ask(headers=AUTH)).status == 429


@pytest.mark.parametrize(
    ("script", "counted"),
    [
        ("no usage", (1, 0, 1)),
        ("cut", (1, 0, 1)),
        ("error in stream", (1, 0, 1)),
        ("error status", (0, 0, 0)),
        ("client left", (1, 0, 1)),
    ],
)
async def test_what_told_no_tokens_is_usage_without_a_measure(script: str, counted: tuple[int, int, int]) -> None:
    async def play(turn: Turn) -> None:
        if script == "error status":
            await turn.reply(400, b'{"error":{"message":"too long"}}')
            return
        await turn.sse_head()
        await turn.chunk(event())
        if script == "cut":
            turn.reset()
        elif script == "client left":
            await turn.until_closed()
        else:
            if script == "error in stream":
                await turn.chunk(b'data: {"error":{"message":"gone"}}\n\n')
            await turn.chunk(DONE)
            await turn.write(b"0\r\n\r\n")

    async with stand(Quota(tokens_per_day=1), play) as (pharos, accounts, _):
        client = await pharos.client()
        client.post(chat(), AUTH)
        if script == "client left":
            await client.until(event())
            client.writer.transport.abort()
        elif script == "cut":
            await client.rest()
        else:
            await client.reply()
        await pharos.finished()
        accounts.settle()
        found = accounts.book.today(accounts.now).get("alice")
        got = (0, 0, 0) if found is None else (found.requests, found.tokens, found.unmetered)
        assert got == counted


async def test_a_key_without_a_quota_is_never_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(Quota(rpm=1)) as (pharos, accounts, _):
        asked: list[str] = []
        monkeypatch.setattr(accounts.book, "admit", lambda name, *_: asked.append(name))
        await pharos.ask(headers=OTHER)
        assert asked == []
        await pharos.ask(headers=AUTH)
        assert asked == ["alice"]
        assert re.fullmatch(r"<Quotas <UsageBook .*>>", repr(accounts.quotas))


async def test_a_retry_elsewhere_is_one_request() -> None:
    turns = 0

    async def busy_at_first(turn: Turn) -> None:
        nonlocal turns
        turns += 1
        await (turn.reply(503, b'{"error":{"message":"busy"}}') if turns == 1 else metered(turn))

    accounts = Accounts()
    keys = {KEY: Key("alice", quota=Quota(rpm=1))}
    async with front(busy_at_first, busy_at_first, keys=keys, quotas=accounts.quotas) as (pharos, _, _b):
        accounts.front = pharos
        assert (await pharos.ask(chat(stream=False), AUTH)).status == 200
        await pharos.finished()
        accounts.settle()
        assert turns == 2
        assert accounts.book.minutes.count("alice", accounts.now) == 1
        assert accounts.book.today(accounts.now)["alice"].requests == 1


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0s"), (0.2, "1s"), (59.0, "59s"), (60.0, "1m0s"), (3601.0, "1h0m1s")]
)
def test_openais_durations_are_written_as_it_does(seconds: float, shown: str) -> None:
    standing = Standing(9, 3, seconds, None, None, None)
    assert told(standing, "openai", 0.0).endswith(f"x-ratelimit-reset-requests: {shown}\r\n".encode())
