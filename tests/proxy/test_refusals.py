"""Refusals that would mislead a client if they were passed on, or that tell more than their status."""

import asyncio

import pytest

from pharos.core.fleet import State
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, Front, chat, event, front
from tests.proxy.test_forward import OK_BODY, first_to, ok, refuses

NO_PAGE = b"404 page not found"
UNKNOWN_MODEL = b'{"error":{"message":"model \'m\' not found","type":"not_found_error"}}'
MESSAGES = "/v1/messages"


def by_path(**scripts: Script) -> Script:
    """A script for each last part of a path; a missing route for the rest."""

    async def play(turn: Turn) -> None:
        last = turn.line.split(" ")[1].rpartition("/")[2]
        await scripts.get(last, refuses(404, body=NO_PAGE))(turn)

    return play


def messages() -> bytes:
    return chat(stream=False, max_tokens=5)


# --- a route that an engine does not serve


@pytest.mark.parametrize(
    ("status", "body", "proofs"),
    [
        (404, NO_PAGE, 1),
        (404, b'{"detail":"Not Found"}', 2),
        (404, b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}', 1),
        (405, b"405 method not allowed", 2),
        (501, b'{"error":{"code":501,"message":"no","type":"not_supported_error"}}', 2),
    ],
)
async def test_a_missing_route_is_learned_and_not_asked_for_again(status: int, body: bytes, proofs: int) -> None:
    async with front(refuses(status, body=body), ok) as (pharos, a, b):
        for count in range(4):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False, seed=count))).body == OK_BODY
            assert len(b.turns) == count + 1
        assert len(a.turns) == proofs
        assert ("upstream", "route_lacking") in (await pharos.finished()).stages
        assert pharos.fleet.backends["a"].state is State.UP
        assert [event.text for event in pharos.events] == [
            "a does not serve /v1/chat/completions for m: not asked again for 10 minutes"
        ]


async def test_it_is_learned_for_that_route_alone() -> None:
    async with front(by_path(completions=ok), ok) as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(messages(), path=MESSAGES)).status == 200
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert [turn.line.split(" ")[1] for turn in a.turns] == [MESSAGES, "/v1/chat/completions"]
        assert len(b.turns) == 1


async def test_another_version_is_asked_again() -> None:
    async with front(refuses(404, body=NO_PAGE), ok) as (pharos, a, _):
        first_to(pharos, "a")
        await pharos.ask(chat(stream=False))
        pharos.bring_up("a", version="2")
        first_to(pharos, "a")
        await pharos.ask(chat(stream=False))
        assert len(a.turns) == 2


@pytest.mark.parametrize("attempts", [0, 1])
async def test_with_nobody_who_serves_it_the_client_is_told_so_and_the_engine_asked_once(attempts: int) -> None:
    settings = ProxySettings(retry_attempts=attempts)
    async with front(refuses(404, body=NO_PAGE), settings=settings) as (pharos, a):
        for _ in range(2):
            reply = await pharos.ask(messages(), path=MESSAGES)
            assert reply.status == 400
            assert reply.json()["type"] == "error"
            assert reply.json()["error"]["type"] == "invalid_request_error"
            assert reply.json()["error"]["message"].startswith("a does not serve /v1/messages for this model")
        assert len(a.turns) == 1
        for done in (await pharos.finished(2), pharos.done[0]):
            assert ("route", "route_not_served") in done.stages
        assert pharos.inflight == 0


async def test_in_openai_s_shape_it_has_a_code() -> None:
    async with front(refuses(501), refuses(405)) as (pharos, a, b):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 400
        assert reply.json()["error"]["code"] == "route_not_served"
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert reply.json()["error"]["message"].startswith("a, b do not serve /v1/chat/completions")
        reply = await pharos.ask(chat(stream=False))
        assert (len(a.turns), len(b.turns)) == (2, 2), "the same request may be the cause as before"
        for seed in range(2):
            reply = await pharos.ask(chat(stream=False, seed=seed))
            assert reply.json()["error"]["message"].startswith("a, b do not serve /v1/chat/completions")
            assert (len(a.turns), len(b.turns)) == (3, 3)


async def test_while_one_that_may_serve_it_is_down_the_client_is_told_to_come_back() -> None:
    async with front(refuses(404, body=NO_PAGE), ok) as (pharos, a, _):
        first_to(pharos, "a")
        await pharos.ask(chat(stream=False))
        now = pharos.clock()
        pharos.fleet.eject(pharos.fleet.backends["b"], "gone", now, connected_at=now)
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 503
        assert reply.header("retry-after") == ["1"]
        assert len(a.turns) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"LoRA adapter not found"), (404, b'{"detail":"Not Found"}'), (405, b'{"detail":"Method Not Allowed"}'),
        (501, b'{"error":{"message":"feature X is not supported"}}'),
    ],
)  # fmt: skip
async def test_one_odd_request_takes_no_route_from_the_others(status: int, body: bytes) -> None:
    async def play(turn: Turn) -> None:
        await (refuses(status, body=body) if b"odd" in turn.body else ok)(turn)

    async with front(play) as (pharos, _):
        for _ in range(3):
            assert (await pharos.ask(chat(stream=False, user="odd"))).status == 400
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        for user in ("odd 1", "odd 2"):
            reply = await pharos.ask(chat(stream=False, user=user))
            assert (reply.status, reply.body) == (status, body), "the engine serves the route: its own word counts"
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY


async def test_a_404_about_the_model_is_no_missing_route() -> None:
    async with front(refuses(404, body=UNKNOWN_MODEL)) as (pharos, a):
        for count in range(2):
            reply = await pharos.ask(chat(stream=False))
            assert reply.status == 404
            assert reply.body == UNKNOWN_MODEL
            assert len(a.turns) == count + 1


async def test_a_404_on_a_route_that_was_served_before_is_tried_elsewhere_but_not_learned() -> None:
    async def play(turn: Turn) -> None:
        await (refuses(404, body=NO_PAGE) if len(turn.engine.turns) == 2 else ok)(turn)

    async with front(play, ok) as (pharos, a, b):
        for _ in range(3):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).status == 200
        assert (len(a.turns), len(b.turns)) == (3, 1)


async def test_a_failing_engine_is_better_than_one_without_the_route() -> None:
    async with front(refuses(404, body=NO_PAGE), refuses(500)) as (pharos, _, b):
        for _ in range(5):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).status == 500
        assert len(b.turns) == 5


# --- an engine that wants a key


@pytest.mark.parametrize("status", [401, 403, 407])
@pytest.mark.parametrize("attempts", [0, 1])
async def test_a_refused_credential_is_ours_and_never_told_as_the_client_s(status: int, attempts: int) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-ours"}}'
    script = refuses(status, b"WWW-Authenticate: Bearer\r\n", body)
    async with front(script, settings=ProxySettings(retry_attempts=attempts)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert "The backend a refused Pharos's own credential" in reply.json()["error"]["message"]
        assert "`credential`" in reply.json()["error"]["message"]
        assert b"sk-ours" not in reply.raw
        assert reply.header("www-authenticate") == []
        done = await pharos.finished()
        assert ("upstream", "credential_refused") in done.stages
        assert pharos.inflight == 0


async def test_another_backend_may_know_us() -> None:
    async with front(refuses(401), ok) as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)


async def test_however_large_such_a_refusal_is_it_is_not_passed_on() -> None:
    async with front(refuses(403, body=b"x" * 200_000)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert b"xxx" not in reply.raw


async def test_however_slow_it_is_it_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.proxy.holding.HELD_S", 0.05)

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nxxx")
        await turn.until_closed()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert b"xxx" not in reply.raw


# --- a router's 400


@pytest.mark.parametrize("text", ["model 'm' not found", "model is not loaded"])
async def test_a_router_s_400_for_a_model_is_tried_elsewhere(text: str) -> None:
    body = b'{"error":{"code":400,"message":"%b","type":"invalid_request_error"}}' % text.encode()
    async with front(refuses(400, body=body), ok, kind="llamacpp-router") as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert ("upstream", "error_retried") in (await pharos.finished()).stages


@pytest.mark.parametrize(
    ("kind", "text"), [("llamacpp-router", "too long"), ("openai", "model 'm' not found"), ("vllm", "not found")]
)
async def test_any_other_400_is_the_client_s(kind: str, text: str) -> None:
    body = b'{"error":{"code":400,"message":"%b"}}' % text.encode()
    async with front(refuses(400, body=body), ok, kind=kind) as (pharos, _, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert (reply.status, reply.body) == (400, body)
        assert len(b.turns) == 0


# --- an engine that has emptied its caches

OVERFLOW = b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'


def generations(pharos: Front) -> list[int]:
    return [backend.targets["m"].generation for backend in pharos.fleet.backends.values()]


async def test_a_context_overflow_is_tried_elsewhere_and_the_caches_there_are_taken_for_gone() -> None:
    async with front(refuses(500, body=OVERFLOW), ok, kind="llamacpp") as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert generations(pharos) == [1, 0]
        assert [(event.stage, event.outcome) for event in pharos.events] == [("generation", "cache_lost")]


async def test_alone_it_is_not_sent_to_the_same_engine_again() -> None:
    async with front(refuses(500, body=OVERFLOW), kind="llamacpp") as (pharos, a):
        reply = await pharos.ask(chat(stream=False))
        assert (reply.status, reply.body) == (500, OVERFLOW)
        assert len(a.turns) == 1


async def test_in_a_stream_it_is_told_as_the_engine_told_it() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event() + b"data: " + OVERFLOW + b"\n\n")
        await turn.write(b"0\r\n\r\n")

    async with front(play, kind="llamacpp") as (pharos, _):
        reply = await pharos.ask()
        assert reply.body == event() + b"data: " + OVERFLOW + b"\n\n"
        assert ("upstream", "error_in_stream") in (await pharos.finished()).stages
        assert generations(pharos) == [1]


@pytest.mark.parametrize(("kind", "body"), [("openai", OVERFLOW), ("llamacpp", b'{"error":{"message":"oops"}}')])
async def test_any_other_failure_leaves_the_caches_alone(kind: str, body: bytes) -> None:
    async with front(refuses(500, body=body), ok, kind=kind) as (pharos, _a, _b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert generations(pharos) == [0, 0]


# --- what takes no slot


async def test_what_takes_no_slot_is_answered_while_all_slots_are_taken() -> None:
    async def play(turn: Turn) -> None:
        if b"tokenize" in turn.head:
            await turn.reply(200, b'{"tokens":[1]}')
        else:
            await go_on.wait()
            await turn.sse_head()
            await turn.chunk(event() + DONE)
            await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    async with front(play, capacity=1) as (pharos, engine):
        streams = [asyncio.create_task(pharos.ask()) for _ in range(2)]
        await engine.got(1)
        reply = await pharos.ask(b'{"model":"m","content":"hi"}', path="/tokenize")
        assert reply.body == b'{"tokens":[1]}'
        assert (pharos.inflight, pharos.ledger.waiting) == (1, 1)
        go_on.set()
        assert [(await stream).status for stream in streams] == [200, 200]


async def test_what_takes_no_slot_is_retried_too() -> None:
    async with front(refuses(500), ok) as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(b'{"model":"m","content":"hi"}', path="/tokenize")).body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert (await pharos.finished()).predicted_s is None


async def test_what_takes_no_slot_never_waits() -> None:
    async with front(ok) as (pharos, _):
        assert (await pharos.ask(b'{"model":"nope","content":"hi"}', path="/tokenize")).status == 404
        now = pharos.clock()
        pharos.fleet.eject(pharos.fleet.backends["a"], "gone", now, connected_at=now)
        assert (await pharos.ask(b'{"model":"m","content":"hi"}', path="/tokenize")).status == 503


async def test_among_the_only_ones_that_speak_a_protocol_one_that_fails_is_passed_over_too() -> None:
    async with front(refuses(500), ok, kind="ollama") as (pharos, a, b):
        for _ in range(6):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False), path="/api/chat")).status == 200
        assert (len(a.turns), len(b.turns)) == (3, 6)
