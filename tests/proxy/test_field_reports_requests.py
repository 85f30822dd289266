"""Reports about bodies, headers, clients that leave and engines that fail (docs/field-reports.md), as they were met."""

import asyncio
import json
from typing import Any

import pytest

from pharos.core.fleet import State
from pharos.core.fleet.names import Meant
from pharos.proxy.auth import Key
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES
from tests.proxy.engine_script import WAIT_S, ScriptedEngine, Turn
from tests.proxy.harness import DONE, KEY, Front, RawClient, chat, event, front
from tests.proxy.test_route_table import body_of, headers_of
from tests.waiting import until

OK_BODY = b'{"choices":[{"message":{"content":"x"}}]}'
CHAT = "/v1/chat/completions"


async def ok(turn: Turn) -> None:
    await turn.reply(200, OK_BODY)


# --- bodies

LONE = ("\ud83d", "\ude00", "a\ud83d", '\ud83d"\\')
PLACES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "X"}, {"role": "tool", "tool_call_id": "c", "content": "X"}]},
    "/v1/completions": {"prompt": "X"},
    "/v1/messages": {
        "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "X"}]},
            {"role": "user", "content": "X"},
        ]
    },
    "/api/chat": {"messages": [{"role": "user", "content": "X"}, {"role": "tool", "content": "X"}]},
}


@pytest.mark.parametrize("lone", LONE, ids=ascii)
@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("named", ["tiny", "fast"])
@pytest.mark.parametrize("stream", [False, True])
async def test_b14_half_a_surrogate_pair_reaches_the_engine_as_it_was_written(
    lone: str, path: str, named: str, *, stream: bool
) -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(400, b'{"error":"the engine\'s own answer"}')

    written = json.dumps({"model": named, **PLACES[path], "stream": stream}).replace("X", json.dumps(lone)[1:-1])
    more: dict[str, Any] = {"aliases": {"fast": (Meant("tiny"),)}, "models": ("tiny",), "kind": "ollama"}
    async with front(play, **more) as (pharos, engine):
        reply = await pharos.ask(written.encode(), path=path)
        assert (reply.status, reply.body) == (400, b'{"error":"the engine\'s own answer"}')
        (turn,) = engine.turns
        sent = turn.body.replace(b'"model": "fast"', b'"model": "tiny"')
        sent = sent.replace(b',"stream_options":{"include_usage":true}', b"")
        assert sent == written.replace('"fast"', '"tiny"').encode().replace(b'"model": "tiny"', model_in(turn.body))
        assert turn.header("content-length") == [str(len(turn.body))]


def model_in(body: bytes) -> bytes:
    """How the name of the model is written in this body."""
    return b'"model": ' + json.dumps(json.loads(body)["model"]).encode()


@pytest.mark.parametrize("lone", LONE, ids=ascii)
@pytest.mark.parametrize("path", PLACES)
async def test_b14_half_a_surrogate_pair_in_the_model_is_an_unknown_model(lone: str, path: str) -> None:
    async with front(ok, kind="ollama") as (pharos, engine):
        body = json.dumps({"model": lone, **PLACES[path]}).encode()
        reply = await pharos.ask(body, path=path)
        assert reply.status == 404
        reply.body.decode()
        assert engine.turns == []


@pytest.mark.parametrize("size", [5, 31])
@pytest.mark.parametrize("over", [False, True])
async def test_b15_bodies_around_the_limit_that_operators_see(size: int, *, over: bool) -> None:
    assert ProxySettings().body_bytes == 32 * 2**20
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head)
        body = chat(stream=False, filler="x" * (33 if over else size) * 2**20)
        for at in range(0, len(body), 2**20):
            piece = body[at : at + 2**20]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        reply = await client.reply()
        assert reply.status == (413 if over else 200)
        assert len(engine.turns) == (not over)
        await until(lambda: pharos.proxy.routes.buffers.used == 0)


# --- headers

NAMES = ("Authorization: Bearer", "x-api-key:", "api-key:")
OTHERS = "x-goog-api-key: pk-test\r\nCookie: s=pk-test\r\nProxy-Authorization: Bearer pk-test\r\n"


@pytest.mark.parametrize("names", [*((name,) for name in NAMES), NAMES], ids=["bearer", "x-api-key", "api-key", "all"])
@pytest.mark.parametrize("path", ROUTES)
async def test_b22_no_route_shows_a_client_s_key_to_an_engine_nor_does_its_retry(
    path: str, names: tuple[str, ...]
) -> None:
    async def busy(turn: Turn) -> None:
        await turn.reply(503, b"{}")

    route = ROUTES[path]
    keys = {"pk-test": Key("k")}
    async with front(busy, busy, keys=keys, kind="ollama") as (pharos, a, b):
        sent = OTHERS + "".join(f"{name} pk-test\r\n" for name in names)
        if route.body == "multipart":
            sent += "".join(line + "\r\n" for line in headers_of(route).splitlines() if line.startswith("Content-Type"))
        await pharos.ask(body_of(route), sent, path=f"{path}?key=pk-test")
        assert len(a.turns) == len(b.turns) == 1, "it was tried on both"
        for turn in (*a.turns, *b.turns):
            assert b"pk-test" not in turn.head + turn.body
        assert (await pharos.finished()).key == "k"


async def test_b23_an_engine_that_answers_to_its_own_name_alone_is_asked_by_it() -> None:
    async def named(turn: Turn) -> None:
        own = turn.header("host") == [f"localhost:{turn.engine.port}"]
        await turn.reply(200 if own else 404, OK_BODY if own else b"404 page not found")

    async with front(named) as (pharos, engine):
        backend = pharos.fleet.backends["a"]
        backend.spec = type(backend.spec)(name="a", url=f"http://localhost:{engine.port}", capacity=4)
        client = await pharos.client()
        body = chat(stream=False)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: llm.example\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send(head.encode() + body)
        assert (await client.reply()).status == 200
        assert b"llm.example" not in engine.turns[0].head


# --- disconnects, timeouts, retries


@pytest.mark.parametrize("limit", [None, 1000.0])
async def test_b26_nothing_waits_to_end_a_running_request_unless_a_limit_is_configured(limit: float | None) -> None:
    """A limit that nobody set would be a timer somewhere."""

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await turn.until_closed()

    loop = asyncio.get_running_loop()
    timers: list[tuple[str, asyncio.TimerHandle]] = []

    def noting(start: Any) -> Any:
        def started(when: float, callback: Any, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
            timers.append((callback.__module__, start(when, callback, *arguments, **more)))
            return timers[-1][1]

        return started

    async with front(play, settings=ProxySettings(reply_idle_s=limit)) as (pharos, engine):
        client = await pharos.client()
        loop.call_later, loop.call_at = noting(loop.call_later), noting(loop.call_at)  # type: ignore[method-assign]
        try:
            client.post(chat())
            await engine.got(1)
            await client.until(b'"a"')
        finally:
            del loop.call_later, loop.call_at
        running = {module for module, timer in timers if module.startswith("pharos.") and not timer.cancelled()}
        assert running == (set() if limit is None else {"pharos.proxy.deadlines"})


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"])
async def test_b27_any_byte_of_a_reply_forbids_a_second_try_on_the_same_engine(begun: bytes) -> None:
    async def play(turn: Turn) -> None:
        if len(turn.engine.turns) == 1:
            await turn.reply(200, OK_BODY)
        else:
            await turn.write(begun)
            turn.close()

    async with front(play, settings=ProxySettings(retry_attempts=0)) as (pharos, engine):
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert (await pharos.ask(chat(stream=False))).status == 502
        assert len(engine.turns) == 2, "the engine had begun to work on it"
        assert ("upstream", "stale_connection") not in (await pharos.finished(2)).stages


@pytest.mark.parametrize("status", [429, 409, 503])
@pytest.mark.parametrize("stream", [False, True])
async def test_b28_a_full_engine_s_request_goes_to_the_idle_one_and_alone_its_answer_to_the_client(
    status: int, *, stream: bool
) -> None:
    async def full(turn: Turn) -> None:
        await turn.reply(status, b'{"error":{"message":"full"}}', b"Retry-After: 5\r\n")

    async def idle(turn: Turn) -> None:
        await (turn.reply(200, DONE, kind=b"text/event-stream") if stream else ok(turn))

    now = 1000.0
    async with front(full, idle, clock=lambda: now) as (pharos, a, b):
        for target in pharos.fleet.backends["b"].targets.values():
            target.slots.inflight = 3  # so that a looks better
        for _ in range(3):
            assert (await pharos.ask(chat(stream=stream))).status == 200
        assert (len(a.turns), len(b.turns)) == (1, 3), "passed over for the 5 s it asked for"
        now += 5.1
        pharos.bring_up("a")
        pharos.bring_up("b")
        assert (await pharos.ask(chat(stream=stream))).status == 200
        assert len(a.turns) == 2, "and tried again after them"
        pharos.fleet.unreachable(pharos.fleet.backends["b"], "gone")
        now += 5.1
        pharos.bring_up("a")
        reply = await pharos.ask(chat(stream=stream))
        assert (reply.status, reply.header("retry-after")) == (status, ["5"])
        assert b"full" in reply.body


@pytest.mark.parametrize("policy", ["cost", "least-load"])
@pytest.mark.parametrize("same", [True, False], ids=["same prompt", "different prompts"])
async def test_b29_a_backend_that_fails_at_once_is_rarely_asked_and_comes_back_once_it_serves(
    policy: str, *, same: bool
) -> None:
    is_well = False
    now = 1000.0

    async def a_fails(turn: Turn) -> None:
        await turn.reply(200 if is_well else 500, OK_BODY if is_well else b"{}")

    async def b_serves(turn: Turn) -> None:
        await asyncio.sleep(0.01)  # what a good engine needs; the bad one is faster
        await ok(turn)

    async with front(a_fails, b_serves, policy=policy, clock=lambda: now) as (pharos, a, b):

        async def ask(number: int) -> int:
            text = "hi" if same else f"prompt {number}"
            return (await pharos.ask(chat(stream=False, messages=[{"role": "user", "content": text}]))).status

        statuses: list[int] = []
        for start in range(0, 100, 4):
            statuses += await asyncio.gather(*map(ask, range(start, start + 4)))
        assert statuses == [200] * 100
        assert len(a.turns) <= 12
        assert len(b.turns) >= 100
        is_well, asked = True, len(a.turns)
        for _ in range(4):
            now += 61.0
            for name in "ab":
                pharos.bring_up(name)
            assert set(await asyncio.gather(*map(ask, range(8)))) == {200}
        assert len(a.turns) > asked + 4, "it serves again, and is asked as others are"


async def test_b46_a_stream_a_queued_request_and_one_that_loads_all_finish_while_pharos_ends() -> None:
    """And what comes during the grace is served as well."""
    loaded, go_on = asyncio.Event(), asyncio.Event()

    async def play(turn: Turn) -> None:
        if b"streams" in turn.body:
            await turn.sse_head()
            await turn.chunk(event("a"))
            await go_on.wait()
            await turn.chunk(DONE)
            await turn.write(b"0\r\n\r\n")
        elif b"loads" in turn.body:
            await loaded.wait()  # no byte of a reply until the model is in memory
            await ok(turn)
        else:
            await ok(turn)

    async with front(play, capacity=2) as (pharos, engine):
        streaming, loading, queued = [await pharos.client() for _ in range(3)]
        streaming.post(chat(text="streams"))
        await streaming.until(b'"a"')
        loading.post(chat(stream=False, text="loads"))
        await engine.got(2)
        queued.post(chat(stream=False))
        await until(lambda: pharos.ledger.waiting == 1)
        draining = asyncio.create_task(pharos.proxy.drain(0.3, 60))
        await until(lambda: pharos.proxy.draining)
        late = await pharos.client()
        late.get("/healthz")
        assert (await late.reply()).status == 503
        during = await pharos.client()
        during.post(chat(stream=False))
        await until(lambda: pharos.ledger.waiting == 2)
        loaded.set()
        for client in (loading, queued, during):
            reply = await client.reply()
            assert (reply.status, reply.body, reply.is_whole) == (200, OK_BODY, True)
        assert not draining.done(), "the stream is still running"
        go_on.set()
        assert (await streaming.until(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")
        async with asyncio.timeout(WAIT_S):
            await draining
        assert pharos.inflight == 0


async def test_b58_ten_impatient_clients_on_two_backends_never_have_more_than_one_request_each() -> None:
    running: dict[ScriptedEngine, int] = {}
    live, most = 0, 0

    async def prefill(turn: Turn) -> None:
        nonlocal most
        running[turn.engine] = running.get(turn.engine, 0) + 1
        most = max(most, sum(running.values()))
        assert sum(running.values()) <= live
        assert running[turn.engine] <= 2
        try:
            await turn.until_closed()
        finally:
            running[turn.engine] -= 1

    def patient() -> bool:
        return sum(running.values()) == 4 and pharos.ledger.waiting == 6

    async with front(prefill, prefill, capacity=2) as (pharos, a, b):
        for _ in range(4):  # the first time, and three more
            clients: list[RawClient] = [await pharos.client() for _ in range(10)]
            live = 10
            for client in clients:
                client.post(chat())
            await until(patient)
            for client in clients[5:]:
                client.close()
            await until(lambda: len(pharos.proxy.connections) == 5)
            for client in clients[:5]:
                client.close()
            await until(lambda: not (pharos.inflight or pharos.ledger.waiting or sum(running.values())))
            live = 0
        await pharos.finished(40)
        assert most == 4
        assert {done.status for done in pharos.done} == {499}
        for backend in pharos.fleet.backends.values():
            assert backend.state is State.UP
            (target,) = backend.targets.values()
            assert target.stats.service_s.value is target.stats.prefill_s_per_token.value is None
        assert len(a.turns) + len(b.turns) >= 16


# --- load


async def test_b59_ten_chats_on_four_slots_succeed_in_turn_while_lists_and_health_answer_at_once() -> None:
    turns = asyncio.Semaphore(0)

    async def play(turn: Turn) -> None:
        if turn.line.startswith("POST /api/show"):
            await turn.reply(200, b'{"details":{}}')
            return
        await turns.acquire()
        await ok(turn)

    def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
        return 200, "text/plain", b"metrics"

    more: dict[str, Any] = {"keys": {KEY: Key("k")}, "pages": {"/metrics": page}, "kind": "ollama", "capacity": 4}
    async with front(play, **more) as (pharos, engine):
        auth = f"Authorization: Bearer {KEY}\r\n"
        asking = [asyncio.create_task(pharos.ask(chat(stream=False), auth)) for _ in range(10)]
        await engine.got(4)
        await until(lambda: pharos.ledger.waiting == 6)
        for path in ("/v1/models", "/api/tags", "/api/ps", "/api/version", "/healthz", "/livez", "/metrics"):
            assert (await pharos.fetch(path, auth)).status == 200, path
        shown = await pharos.ask(b'{"model":"m"}', auth, path="/api/show")
        assert (shown.status, shown.json()) == (200, {"details": {}})
        assert (pharos.ledger.leased, pharos.ledger.waiting) == (4, 6), "none of that took a slot"
        for _ in range(10):
            turns.release()
        assert [(await one).status for one in asking] == [200] * 10
        assert await nothing_waits(pharos)


async def nothing_waits(pharos: Front) -> bool:
    await until(lambda: not (pharos.inflight or pharos.ledger.leased or pharos.ledger.waiting))
    return True
