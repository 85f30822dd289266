"""Responses stay with the engine that made them: it alone remembers what a later request goes on from."""

import json
from typing import Any

import pytest

from pharos.core.fleet import Fleet
from pharos.proxy.auth import Key
from pharos.proxy.errors import ClientFault
from pharos.proxy.responses import LOOKED_AT, Responses, finding_id
from pharos.proxy.table import of_response
from pharos.proxy.tap import make_tap
from tests.fakes import captures
from tests.proxy.engine_script import Turn
from tests.proxy.harness import KEY, front

PATH = "/v1/responses"
RECORDED = [
    (path.parts[-4], path.parts[-3], path.stem)
    for path in sorted(captures.TESTDATA.glob("*/*/streams/responses_*.headers"))
    if captures.exchange(path.parts[-4], path.parts[-3], path.stem).status == 200
]


def ask(previous: str | None = None, model: str = "m", **more: Any) -> bytes:
    body: dict[str, Any] = {"model": model, "input": "hi", **more}
    if previous is not None:
        body["previous_response_id"] = previous
    return json.dumps(body).encode()


class Engine:
    """Makes responses with ids of its own, and knows only those."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []

    async def __call__(self, turn: Turn) -> None:
        self.lines.append(turn.line)
        response = {
            "id": f"resp_{self.name}{len(self.lines)}",
            "object": "response",
            "output": [],
            "status": "completed",
        }
        body = json.loads(turn.body) if turn.body else {}
        if body.get("stream"):
            await turn.sse_head()
            for kind in ("response.created", "response.completed"):
                event = {"type": kind, "response": response}
                await turn.chunk(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())
            await turn.write(b"0\r\n\r\n")
        else:
            await turn.reply(200, json.dumps(response).encode())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_follow_up_goes_to_the_engine_that_made_the_response(*, stream: bool) -> None:
    a, b = Engine("a"), Engine("b")
    async with front(a, b) as (pharos, *_):
        for _ in range(4):
            first = await pharos.ask(ask(stream=stream), path=PATH)
            made = first.body.split(b"resp_")[1].split(b'"')[0].decode()
            owner = a if made.startswith("a") else b
            before = len(owner.lines)
            for _ in range(3):
                assert (await pharos.ask(ask(f"resp_{made}"), path=PATH)).status == 200
            assert len(owner.lines) == before + 3
        assert pharos.inflight == 0


async def test_a_follow_up_waits_for_its_engine_though_another_is_free() -> None:
    async def busy(turn: Turn) -> None:
        if len(turn.engine.turns) == 2:
            await turn.until_closed()
        else:
            await turn.reply(200, b'{"id":"resp_1","object":"response","output":[],"status":"completed"}')

    async with front(busy, Engine("b"), capacity=1) as (pharos, a, b):
        await pharos.ask(ask(), path=PATH)
        assert len(a.turns) == 1
        holding = await pharos.client()
        holding.post(ask("resp_1"), path=PATH)
        await a.got(2)
        waiting = await pharos.client()
        waiting.post(ask("resp_1"), path=PATH)
        assert (await pharos.ask(ask(), path=PATH)).status == 200
        assert len(b.turns) == 1
        holding.close()
        assert (await waiting.reply()).status == 200
        assert (len(a.turns), len(b.turns)) == (3, 1)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_b1"),
        ("GET", "/v1/responses/resp%5Fb1?stream=true&starting_after=2"),
        ("GET", "/v1/responses/resp_b1/input_items?limit=5"),
        ("POST", "/v1/responses/resp_b1/cancel"),
        ("DELETE", "/v1/responses/resp_b1"),
    ],
)
async def test_what_is_asked_of_a_response_is_asked_of_its_engine(method: str, path: str) -> None:
    a, b = Engine("a"), Engine("b")
    async with front(a, b, described=({"capacity": 1}, {"capacity": 4})) as (pharos, engine_a, engine_b):
        pharos.bring_up("a", ("other",))
        assert (await pharos.ask(ask(), path=PATH)).json()["id"] == "resp_b1"
        pharos.bring_up("a", ("m", "other"))
        reply = await pharos.fetch(path, method=method)
        assert (reply.status, reply.json()["id"]) == (200, "resp_b2")
        assert (engine_a.turns, b.lines[1]) == ([], f"{method} {path} HTTP/1.1")
        assert engine_b.turns[1].body == b""
        done = await pharos.finished(2)
        assert done.path in ("/v1/responses/{id}", "/v1/responses/{id}/input_items", "/v1/responses/{id}/cancel")
        assert done.model == "m"
        assert pharos.inflight == 0


async def test_head_of_a_response_has_no_body_and_takes_no_slot() -> None:
    async with front(Engine("a"), capacity=1) as (pharos, engine):
        await pharos.ask(ask(), path=PATH)
        reply = await pharos.fetch("/v1/responses/resp_a1", method="HEAD")
        assert (reply.status, reply.body) == (200, b"")
        assert engine.turns[1].line.startswith("GET ")


async def test_a_deleted_response_is_unknown_from_then_on() -> None:
    async with front(Engine("a")) as (pharos, engine):
        await pharos.ask(ask(), path=PATH)
        assert (await pharos.fetch("/v1/responses/resp_a1", method="DELETE")).status == 200
        assert (await pharos.fetch("/v1/responses/resp_a1")).status == 404
        assert len(engine.turns) == 2


async def test_an_unknown_id_is_a_404_that_says_what_to_do() -> None:
    async with front(Engine("a")) as (pharos, engine):
        for reply in (
            await pharos.ask(ask("resp_nobody"), path=PATH),
            await pharos.fetch("/v1/responses/resp_nobody"),
            await pharos.fetch("/v1/responses/resp_nobody", method="DELETE"),
            await pharos.fetch("/v1/responses/resp_nobody/cancel", method="POST"),
            await pharos.fetch("/v1/responses/%FF"),
        ):
            assert reply.status == 404
            assert reply.json()["error"]["code"] == "response_not_found"
            assert "whole conversation" in reply.json()["error"]["message"]
        assert engine.turns == []
        assert ("admission", "bad_request") in (await pharos.finished()).stages


async def test_a_response_of_another_key_is_unknown() -> None:
    keys = {KEY: Key("one"), "other": Key("other")}
    async with front(Engine("a"), keys=keys) as (pharos, engine):
        assert (await pharos.ask(ask(), f"x-api-key: {KEY}\r\n", path=PATH)).json()["id"] == "resp_a1"
        for request in (
            pharos.ask(ask("resp_a1"), "x-api-key: other\r\n", path=PATH),
            pharos.fetch("/v1/responses/resp_a1", "x-api-key: other\r\n"),
        ):
            assert (await request).status == 404
        assert (await pharos.fetch("/v1/responses/resp_a1", f"x-api-key: {KEY}\r\n")).status == 200
        assert len(engine.turns) == 2


async def test_an_id_that_an_engine_echoes_makes_nobody_its_owner() -> None:
    async def script(turn: Turn) -> None:
        if turn.line.startswith("GET"):
            await turn.reply(200, b'{"id":"resp_1","object":"response"}')
        elif (said := json.loads(turn.body))["input"] == "make":
            await turn.reply(200, b'{"id":"resp_1","object":"response","output":[],"status":"completed"}')
        elif said["input"] == "stream":
            await turn.sse_head()
            await turn.chunk(b'data: {"type":"error","error":{"id":"resp_1","response":{"id":"resp_1"}}}\n\n')
            await turn.write(b"0\r\n\r\n")
        else:
            await turn.reply(int(said["input"]), b'{"detail":{"id":"resp_1"},"metadata":{"id":"resp_1"},"id":"resp_1"}')

    keys = {KEY: Key("one"), "other": Key("other")}
    async with front(script, keys=keys) as (pharos, _):
        for before in (True, False):
            for words in ("200", "422", "400", "stream"):
                if words == "200" and before:
                    continue  # a good reply of that id is the engine's own word
                asked = ask(stream=words == "stream").replace(b'"hi"', b'"%b"' % words.encode())
                await pharos.ask(asked, "x-api-key: other\r\n", path=PATH)
                assert (await pharos.fetch("/v1/responses/resp_1", "x-api-key: other\r\n")).status == 404
            if before:
                made = await pharos.ask(ask().replace(b'"hi"', b'"make"'), f"x-api-key: {KEY}\r\n", path=PATH)
                assert made.status == 200
            assert (await pharos.fetch("/v1/responses/resp_1", f"x-api-key: {KEY}\r\n")).status == 200


async def test_with_its_engine_gone_a_follow_up_is_an_error_and_no_new_conversation() -> None:
    a, b = Engine("a"), Engine("b")
    async with front(a, b) as (pharos, engine_a, engine_b):
        made = (await pharos.ask(ask(), path=PATH)).json()["id"]
        gone = made.removeprefix("resp_")[0]
        specs = [backend.spec for name, backend in pharos.fleet.backends.items() if name != gone]
        pharos.fleet.set_backends(specs, pharos.clock())
        for reply in (await pharos.ask(ask(made), path=PATH), await pharos.fetch(f"/v1/responses/{made}")):
            assert reply.status == 503
            assert reply.json()["error"]["code"] == "response_lost"
            assert f"backend {gone}" in reply.json()["error"]["message"]
        assert len(engine_a.turns) + len(engine_b.turns) == 1


async def test_another_model_of_the_same_engine_may_go_on() -> None:
    async with front(Engine("a"), models=("m", "n")) as (pharos, engine):
        await pharos.ask(ask(), path=PATH)
        assert (await pharos.ask(ask("resp_a1", model="n"), path=PATH)).status == 200
        assert len(engine.turns) == 2
    async with front(Engine("a"), Engine("b")) as (pharos, *_):
        pharos.bring_up("b", ("n",))
        await pharos.ask(ask(), path=PATH)
        reply = await pharos.ask(ask("resp_a1", model="n"), path=PATH)
        assert (reply.status, reply.json()["error"]["param"]) == (400, "model")


def test_ids_are_bounded_and_the_oldest_go_first() -> None:
    fleet = Fleet()
    responses = Responses(most=3)
    target: Any = type("T", (), {"id": 1, "model": "m", "backend": type("B", (), {"name": "a"})})
    for number in range(5):
        responses.note(f"resp_{number}", target, "k")
    responses.note("resp_2", target, "k")
    responses.note("resp_5", target, "k")
    assert len(responses) == 3
    for number in (0, 1, 3):
        with pytest.raises(ClientFault):
            responses.origin(f"resp_{number}", "k", fleet)


def test_at_least_ten_thousand_ids_are_remembered() -> None:
    responses = Responses()
    target: Any = type("T", (), {"id": 1, "model": "m", "backend": type("B", (), {"name": "a"})})
    for number in range(10_000):
        responses.note(f"resp_{number}", target, "k")
    assert len(responses) == 10_000


@pytest.mark.parametrize("reply", RECORDED, ids="-".join)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_the_id_of_every_recorded_response_is_found(reply: tuple[str, str, str], step: int) -> None:
    recorded = captures.exchange(*reply)
    content_type = next(value for name, value in recorded.headers.items() if name.lower() == "content-type")
    found: list[str] = []
    tap = finding_id(
        make_tap("openai_responses", streamed="stream" in content_type, content_type=content_type, strip_usage=False),
        found.append,
    )
    out = b"".join(tap.feed(recorded.body[at : at + step]) for at in range(0, len(recorded.body), step)) + tap.finish()
    assert out == recorded.body
    (got,) = found
    assert got.encode() in recorded.body
    assert got.startswith("resp_")


def test_an_id_is_looked_for_at_the_beginning_only() -> None:
    found: list[str] = []
    tap = finding_id(
        make_tap("openai_responses", streamed=False, content_type="application/json", strip_usage=False), found.append
    )
    tap.feed(b'{"a":"' + b"x" * LOOKED_AT)
    tap.feed(b'","id":"resp_1"}')
    assert found == []


JSON = "application/json"
SSE = "text/event-stream"


@pytest.mark.parametrize(
    ("content_type", "body", "wanted"),
    [
        (JSON, b'{"id":"resp_1"}', ["resp_1"]),
        (JSON, b' {"a":[{"id":"resp_0"},["id"]],"b":{"id":"resp_0","c":{}},"x":"id","id" :\n"resp_1"}', ["resp_1"]),
        (JSON, b'\xef\xbb\xbf{"text":"\\"id\\":\\"resp_0\\"}","id":"resp_1","id":"resp_2"}', ["resp_1"]),
        (JSON, b'{"id":5,"x":"resp_0"}', []),
        (JSON, b'{"id":null,"response":{"id":"resp_0"}}', []),
        (JSON, b'{"id":"chatcmpl-1","x":{"id":"resp_0"}}', []),
        (JSON, b'[{"id":"resp_0"}]', []),
        (JSON, b'"id":"resp_0"', []),
        (JSON, b"}]}:,{", []),
        (SSE, b'data: {"id":"resp_0","item":{"id":"resp_0"}}\n\ndata:{"response":{"id":"resp_1"}}\n\n', ["resp_1"]),
        (SSE, b'\xef\xbb\xbfdata: {"response":{"x":{"id":"resp_0"},"id":"resp_1"}}\n\n', ["resp_1"]),
        (SSE, b': data: {"response":{"id":"resp_0"}}\r\nevent: x\r\ndata: {"response":{"id":"resp_1"', ["resp_1"]),
        (SSE, b'data: {"a":{"b":\ndata: {"response":{"id":"resp_1"}}\n', ["resp_1"]),
        (SSE, b'data: {"error":{"response":{"id":"resp_0"}}}\n\n', []),
        (SSE, b'data: {"a":"x\n\n', []),
    ],
)
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_an_id_counts_at_its_place_only(content_type: str, body: bytes, wanted: list[str], step: int) -> None:
    found: list[str] = []
    tap = finding_id(
        make_tap("openai_responses", streamed="stream" in content_type, content_type=content_type, strip_usage=False),
        found.append,
    )
    for at in range(0, len(body), step):
        tap.feed(body[at : at + step])
    assert found == wanted


def test_once_an_id_is_found_or_given_up_nothing_stands_before_the_tap() -> None:
    for first in (b'data: {"type":"response.created","response":{"id":"resp_1"}}\n\n', b": " + b"x" * LOOKED_AT):
        inner = make_tap("openai_responses", streamed=True, content_type="text/event-stream", strip_usage=False)
        tap = finding_id(inner, lambda _: None)
        assert tap.bare is tap
        tap.feed(first)
        assert tap.bare is inner


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/v1/responses/r", True),
        ("/v1/responses/r/cancel", True),
        ("/v1/responses/r/input_items", True),
        ("/v1/responses/", False),
        ("/v1/responses//cancel", False),
        ("/v1/responses/r/", False),
        ("/v1/responses/r/other", False),
        ("/v1/responses/r/cancel/", False),
        ("/v1/responsesr", False),
    ],
)
def test_paths_about_one_response(path: str, *, is_one: bool) -> None:
    assert (of_response(path) is not None) is is_one
