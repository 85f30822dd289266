"""A client's name of a model reaches each engine as that engine's own: in the body, and nothing else of it changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet.names import Meant
from pharos.proxy.auth import Key
from pharos.proxy.inject import inject_usage, rewritten, with_model
from pharos.proxy.multipart import parse_multipart
from pharos.proxy.parse import find_model, parse_body
from pharos.proxy.table import CHAT, ROUTES
from tests.proxy.engine_script import ScriptedEngine, Turn
from tests.proxy.harness import DONE, KEY, USAGE_EVENT, chat, event, front

AUTH = f"Authorization: Bearer {KEY}\r\n"
SHOW = ROUTES["/api/show"]
FORM = "multipart/form-data; boundary=x"
LARGE = 300 * 1024
USAGE = {"include_usage": True}

SURROGATES = st.sampled_from(["\ud83d", "\ude00", "a\udc80b"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TEXTS = st.one_of(
    st.text(max_size=20), SURROGATES, st.sampled_from(['"model":"m"', '\\"model\\":', "model", '{"model":'])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
OTHERS = st.dictionaries(TEXTS.filter(lambda name: name.lower() != "model"), VALUES, max_size=4)


def joined(body: bytes, served: str, route: Any = CHAT) -> bytes:
    return b"".join(with_model(body, parse_body(body, route), route, served))


def form(model: bytes) -> bytes:
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\nm\0\r\n'
    return file + b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + model + b"\r\n--x--\r\n"


async def streamed(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event() + DONE)
    await turn.write(b"0\r\n\r\n")


# The bytes.


@given(name=NAMES, served=NAMES, others=OTHERS, spread=st.booleans(), is_ascii=st.booleans(), last=st.booleans())
def test_only_the_bytes_of_the_name_change(
    name: str, served: str, others: dict[str, Any], *, spread: bool, is_ascii: bool, last: bool
) -> None:
    message = {"messages": [{"role": "user", "content": f'{{"model":"{name}"}}', "model": name}]}
    document = {**others, **message, "model": name} if last else {"model": name, **others, **message}
    text = json.dumps(document, ensure_ascii=is_ascii, indent=2 if spread else None)
    body = text.encode("utf-8", "surrogatepass")
    written = json.dumps(name, ensure_ascii=is_ascii).encode()
    parsed = parse_body(body, CHAT)
    start, end = find_model(body, CHAT)
    assert body[start:end] == written
    assert parsed.model_span in (None, (start, end))
    changed = b"".join(with_model(body, parsed, CHAT, served))
    assert changed == body[:start] + json.dumps(served).encode() + body[end:]
    assert json.loads(changed.decode("utf-8", "surrogatepass")) == {**document, "model": served}


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"model":"m","messages":[]}', b'{"model":"S","messages":[]}'),
        (b' \r\n{ "messages" : [ ] ,\t"model" :\n"m" } ', b' \r\n{ "messages" : [ ] ,\t"model" :\n"S" } '),
        (b'{"mod\\u0065l":"m","messages":[{"model":"m"}]}', b'{"mod\\u0065l":"S","messages":[{"model":"m"}]}'),
        (b'{"a":{"model":"m"},"messages":[],"model":"m"}', b'{"a":{"model":"m"},"messages":[],"model":"S"}'),
        (b'{"m":1,"model":"m","messages":["\\ud83d"]}', b'{"m":1,"model":"S","messages":["\\ud83d"]}'),
        (b'{"model":"\\u006d","messages":[]}', b'{"model":"S","messages":[]}'),
        (b'{"n":1e5,"o":NaN,"model":"m","messages":[]}', b'{"n":1e5,"o":NaN,"model":"S","messages":[]}'),
        (b'{"a":1,"a":"model","model":"m","messages":[]}', b'{"a":1,"a":"model","model":"S","messages":[]}'),
    ],
    ids=range(8),
)
def test_the_name_is_found_however_the_body_is_written(body: bytes, changed: bytes) -> None:
    assert joined(body, "S") == changed


def test_a_name_of_any_text_is_written_as_json_and_in_a_form_as_it_is() -> None:
    served = 'a"\\\n模\U0001f600'
    assert json.loads(joined(b'{"model":"m","messages":[]}', served))["model"] == served
    assert json.loads(joined(b'{"model":"m","messages":[]}', "\ud83d"))["model"] == "\ud83d"
    route = ROUTES["/v1/audio/transcriptions"]
    body = form(b"m")
    parsed = parse_multipart(body, route, FORM)
    assert b"".join(with_model(body, parsed, route, "org/模")) == form("org/模".encode())


def test_the_field_that_names_the_model_is_the_one_that_changes() -> None:
    assert joined(b'{"name":"m"}', "S", SHOW) == b'{"name":"S"}'
    assert joined(b'{"name":"m","model":""}', "S", SHOW) == b'{"name":"S","model":""}'
    assert joined(b'{"name":"x","model":"m"}', "S", SHOW) == b'{"name":"x","model":"S"}'


def test_a_large_body_tells_where_its_name_is_and_stays_in_views() -> None:
    body = json.dumps({"messages": ["x" * LARGE], "model": "m"}).encode()
    parsed = parse_body(body, CHAT)
    assert parsed.model_span is not None
    before, text, after = with_model(body, parsed, CHAT, "S")
    assert isinstance(before, memoryview)
    assert isinstance(after, memoryview)
    assert (text, before.nbytes + 3 + after.nbytes) == (b'"S"', len(body))


def test_deep_nesting_before_the_name_costs_no_walk_through_it() -> None:
    deep = b"[" * 500 + b"]" * 500
    body = b'{"messages":[],"x":%b,"model":"m"}' % deep
    assert joined(body, "S") == b'{"messages":[],"x":%b,"model":"S"}' % deep


@pytest.mark.parametrize(
    "options", [{}, {"stream_options": {}}, {"stream_options": None}, {"stream_options": {"include_usage": False}}]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_name_and_the_field_that_asks_for_usage_are_put_in_together(
    options: dict[str, Any], *, is_first: bool
) -> None:
    rest = {"messages": [], "stream": True, **options}
    body = json.dumps({"model": "m", **rest} if is_first else {**rest, "model": "m"}).encode()
    parsed = parse_body(body, CHAT)
    both = json.loads(b"".join(rewritten(body, parsed, CHAT, "S", asks=True)))
    assert both == {**json.loads(b"".join(inject_usage(body, parsed))), "model": "S"}
    assert json.loads(b"".join(rewritten(body, parsed, CHAT, "S", asks=False))) == {**json.loads(body), "model": "S"}


def test_a_body_that_asks_for_usage_itself_gets_the_name_only() -> None:
    body = chat(stream_options={"include_usage": True})
    assert b"".join(rewritten(body, parse_body(body, CHAT), CHAT, "S", asks=True)) == body.replace(b'"m"', b'"S"')


# Through the proxy.


def asked_of(engine: ScriptedEngine) -> list[str]:
    """The names that an engine was asked for, in bodies of the stated length."""
    for turn in engine.turns:
        assert turn.header("content-length") == [str(len(turn.body))]
        assert turn.header("transfer-encoding") == []
    return [json.loads(turn.body)["model"] for turn in engine.turns]


async def test_each_engine_gets_a_name_that_it_knows_and_nothing_else_changes() -> None:
    described = ({"kind": "ollama"}, {"kind": "vllm"})
    async with front(streamed, streamed, described=described, models=()) as (pharos, *engines):
        bodies = [chat(name, text='"model":"tiny"', stream_options=USAGE) for name in ("tiny", "tiny:latest")]
        for backend, served in (("a", "tiny:latest"), ("b", "tiny")):
            for other in "ab":
                pharos.bring_up(other, (served,) if other == backend else ())
            for body in bodies:
                assert (await pharos.ask(body)).status == 200
        a, b = engines
        assert [turn.body for turn in a.turns] == bodies, "an Ollama knows either spelling"
        assert asked_of(b) == ["tiny", "tiny"]
        for turn, body in zip(b.turns, bodies, strict=True):
            assert json.loads(turn.body) == {**json.loads(body), "model": "tiny"}
        await pharos.finished(4)
        assert {done.model for done in pharos.done} == {"tiny"}
        assert pharos.inflight == 0


async def test_a_retry_names_the_model_as_the_next_engine_does() -> None:
    async def fails(turn: Turn) -> None:
        if len(a.turns) + len(b.turns) == 1:
            await turn.reply(500, b"{}")
        else:
            await streamed(turn)

    async with front(fails, fails, models=()) as (pharos, a, b):
        pharos.bring_up("a", ("tiny:latest",))
        pharos.bring_up("b", ("tiny",))
        body = chat("tiny")
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
        client = await pharos.client()
        client.send(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await client.reply()).status == 200
        assert (asked_of(a), asked_of(b)) == (["tiny:latest"], ["tiny"])


async def test_aliases_of_a_backend_and_of_the_fleet_reach_the_engines_under_their_names() -> None:
    described = ({"aliases": (("qwen2.5:3b-q4", "qwen2.5:3b"),)},)
    aliases = {"fast": (Meant("qwen2.5:3b-q4"),)}
    async with front(streamed, described=described, models=("qwen2.5:3b-q4",), aliases=aliases) as (pharos, a):
        for name in ("qwen2.5:3b", "fast", "fast:latest"):
            assert (await pharos.ask(chat(name))).status == 200
        assert (await pharos.ask(chat("qwen2.5:3b-q4"))).status == 404
        assert asked_of(a) == ["qwen2.5:3b-q4"] * 3
        listed = (await pharos.fetch("/v1/models")).json()["data"]
        assert [card["id"] for card in listed] == ["qwen2.5:3b", "fast"]
        await pharos.finished(4)
        assert [done.model for done in pharos.done[:3]] == ["qwen2.5:3b", "fast", "fast"]
        own, alias = pharos.fleet.backends["a"].targets.values()
        assert own.slots is alias.slots


async def test_the_reply_and_its_usage_stay_as_the_engine_wrote_them() -> None:
    async def told(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event(model="tiny:latest") + USAGE_EVENT + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(told, models=("tiny:latest",)) as (pharos, _):
        reply = await pharos.ask(chat("tiny"))
        assert reply.body == event(model="tiny:latest") + DONE, "the usage was asked for by Pharos"
        done = await pharos.finished()
        assert (done.model, done.usage.prompt_tokens) == ("tiny", 7)


@pytest.mark.parametrize("written", ["tiny", "tiny:latest", "tin*", "*:latest", "tiny:*"])
async def test_an_allow_list_written_either_way_lets_either_spelling_in(written: str) -> None:
    keys = {KEY: Key("k", models=(written,))}
    for listed in ("tiny", "tiny:latest"):
        async with front(streamed, kind="ollama", models=(listed, "other:8b"), keys=keys) as (pharos, _):
            for name in ("tiny", "tiny:latest"):
                assert (await pharos.ask(chat(name), AUTH)).status == 200
                assert (await pharos.fetch(f"/v1/models/{name}", AUTH)).json()["id"] == "tiny"
            assert [card["id"] for card in (await pharos.fetch("/v1/models", AUTH)).json()["data"]] == ["tiny"]
            assert [card["name"] for card in (await pharos.fetch("/api/tags", AUTH)).json()["models"]] == [listed]
            refused = await pharos.ask(chat("other:8b"), AUTH)
            assert (refused.status, "`other:8b`" in refused.json()["error"]["message"]) == (404, True)


async def test_a_name_that_a_key_may_not_use_is_told_as_it_was_asked_for() -> None:
    keys = {KEY: Key("k", models=("m",))}
    async with front(streamed, models=("m", "tiny"), keys=keys) as (pharos, _):
        refused = await pharos.ask(chat("tiny:latest"), AUTH)
        assert (refused.status, "`tiny:latest`" in refused.json()["error"]["message"]) == (404, True)


async def test_ollama_s_own_routes_take_either_spelling_and_lists_show_aliases() -> None:
    async def answers(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    pages = {("a", "/api/tags"): b'{"models":[{"name":"tiny:latest","model":"tiny:latest","size":5}]}'}
    more = {"kind": "ollama", "models": ("tiny:latest",), "aliases": {"fast": (Meant("tiny"),)}}
    async with front(answers, last_page=lambda *place: pages.get(place), **more) as (pharos, a):
        for name in ("tiny", "tiny:latest", "fast"):
            for path in ("/api/show", "/api/embed", "/api/chat", "/v1/embeddings"):
                assert (
                    await pharos.ask(json.dumps({"model": name, "stream": False}).encode(), path=path)
                ).status == 200
        assert asked_of(a) == ["tiny"] * 4 + ["tiny:latest"] * 8
        assert (await pharos.fetch("/api/tags")).json()["models"] == [
            {"name": "tiny:latest", "model": "tiny:latest", "size": 5},
            {"name": "fast", "model": "fast", "size": 5},
        ]


async def test_a_form_reaches_the_engine_with_its_name_and_the_same_file() -> None:
    async def answers(turn: Turn) -> None:
        await turn.reply(200, b'{"text":"x"}')

    async with front(answers, models=("org/whisper:latest",)) as (pharos, a):
        headers = f"Content-Type: {FORM}\r\n"
        reply = await pharos.ask(form(b"org/whisper"), headers, path="/v1/audio/transcriptions")
        assert reply.status == 200
        assert a.turns[0].body == form(b"org/whisper:latest")
        assert a.turns[0].header("content-length") == [str(len(a.turns[0].body))]


async def test_a_conversation_may_go_on_in_the_other_spelling() -> None:
    async def answers(turn: Turn) -> None:
        await turn.reply(200, b'{"id":"resp_1","object":"response","usage":{"input_tokens":1,"output_tokens":1}}')

    async with front(answers, answers, models=("tiny:latest",)) as (pharos, a, b):
        first = json.dumps({"model": "tiny", "input": "hi"}).encode()
        then = json.dumps({"model": "tiny:latest", "input": "hi", "previous_response_id": "resp_1"}).encode()
        for body in (first, then, then):
            assert (await pharos.ask(body, path="/v1/responses")).status == 200
        assert sorted([len(a.turns), len(b.turns)]) == [0, 3]
        assert asked_of(a) + asked_of(b) == ["tiny:latest"] * 3
        assert (await pharos.fetch("/v1/responses/resp_1")).status == 200


@pytest.mark.parametrize("is_chunked", [True, False])
@pytest.mark.parametrize("text", ["hi", "\ud83d", "a\ude00", '"model":"fast"'])
async def test_a_body_with_another_name_and_the_field_for_usage_has_one_right_length(
    text: str, *, is_chunked: bool
) -> None:
    aliases = {"fast": (Meant("meta-llama/Llama-3.1-8B-Instruct"),)}
    async with front(streamed, models=("meta-llama/Llama-3.1-8B-Instruct",), aliases=aliases) as (pharos, a):
        body = chat("fast", text=text)
        if is_chunked:
            client = await pharos.client()
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
            client.send(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            reply = await client.reply()
        else:
            reply = await pharos.ask(body)
        assert reply.status == 200
        assert asked_of(a) == ["meta-llama/Llama-3.1-8B-Instruct"]
        asked = json.loads(a.turns[0].body)
        assert (asked["text"], asked["stream_options"]) == (text, USAGE)


async def test_an_alias_that_is_another_engine_s_own_name_is_one_model_with_it() -> None:
    described: tuple[dict[str, Any], ...] = ({"aliases": (("q4", "qwen"),), "capacity": 1}, {"capacity": 1})
    async with front(streamed, streamed, described=described, models=()) as (pharos, a, b):
        pharos.bring_up("a", ("q4",))
        pharos.bring_up("b", ("qwen",))
        for _ in range(8):
            assert (await pharos.ask(chat("qwen"))).status == 200
        pharos.fleet.unreachable(pharos.fleet.backends["b"], "gone")
        assert (await pharos.ask(chat("qwen"))).status == 200
        assert set(asked_of(a)) == {"q4"}
        assert set(asked_of(b)) <= {"qwen"}
        assert [card["id"] for card in (await pharos.fetch("/v1/models")).json()["data"]] == ["qwen"]
