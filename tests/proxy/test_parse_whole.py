"""Reading a body and its prompt in one step: the same as in two, or left to those."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pharos.core.prefix import Known
from pharos.proxy.errors import ClientFault
from pharos.proxy.parse import LIGHT_BYTES, LIGHT_MARKS, THREAD_BYTES, ChatRequest, is_light, parse_body
from pharos.proxy.parse_whole import guess_model, parse_whole
from pharos.proxy.prompt import has_prompt, prompt_in, prompt_of
from pharos.proxy.table import ALL, ROUTES

CHAT = "/v1/chat/completions"
PATHS = sorted(route.path for route in ALL if has_prompt(route) and route.path in ROUTES)
RECORDED = sorted((Path(__file__).parents[2] / "testdata").glob("*/*/streams/*.request.json"))


def at_once(body: bytes, path: str) -> tuple[ChatRequest, Any] | tuple[str, str] | None:
    try:
        found = parse_whole(body, ROUTES[path])
    except ClientFault as fault:
        return str(fault.param), fault.message
    return (
        None
        if found is None
        else (structs.replace(found[0], model_span=None), prompt_in(found[1], ROUTES[path], "m", b"s", Known()))
    )


def in_two(body: bytes, path: str) -> tuple[ChatRequest, Any] | tuple[str, str]:
    try:
        parsed = parse_body(body, ROUTES[path])
    except ClientFault as fault:
        return str(fault.param), fault.message
    # Where the one step is taken, the length of the prompt comes from its chain.
    plain = structs.replace(parsed, prompt_bytes=0, model_span=None)
    return plain, prompt_of(body, ROUTES[path], "m", b"s")


def test_every_route_with_a_prompt_is_held_against_the_two_steps() -> None:
    assert len(PATHS) == 6


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: "/".join(path.parts[-4:]))
def test_recorded_requests_are_read_the_same_in_one_step(recorded: Path) -> None:
    body = recorded.read_bytes()
    for path in PATHS:
        assert at_once(body, path) in (None, in_two(body, path))


def chat(**more: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True} | more).encode()


PLAIN = [
    (CHAT, chat()),
    (CHAT, chat(stream_options={"include_usage": True}, max_tokens=5, tools=[{"type": "function"}])),
    (CHAT, chat(stream_options=None, max_completion_tokens=7, max_tokens=5, made_up=[1])),
    (CHAT, chat(**{f"x{n}": n for n in range(450)}, y="z" * 70_000)),
    ("/v1/completions", b'{"model":"m","prompt":"text","max_tokens":-1}'),
    ("/v1/messages", chat(system="s", max_tokens=9)),
    ("/v1/responses", b'{"model":"m","input":"hi","previous_response_id":"r"}'),
    ("/api/chat", chat(stream=None, options={"num_ctx": 4096, "num_predict": 7, "temperature": 0.5})),
    ("/api/chat", b'{"model":"m","messages":[]}'),
    ("/api/generate", b'{"model":"m","prompt":"text","stream":false}'),
]


@pytest.mark.parametrize(("path", "body"), PLAIN)
def test_what_clients_send_is_read_in_one_step(path: str, body: bytes) -> None:
    assert at_once(body, path) == in_two(body, path)


@pytest.mark.parametrize(("path", "body"), PLAIN)
def test_a_large_body_of_long_texts_is_read_in_one_step_and_its_model_is_found_there(path: str, body: bytes) -> None:
    for name in ("instructions", "y", "prompt", "tools"):
        text = json.dumps("an escape \n and \u0416 " * 20_000)
        large = body[:-1] + b', "%b": %b}' % (name.encode(), text.encode())
        if json.loads(body).get(name) is not None:
            continue
        assert THREAD_BYTES < len(large) < LIGHT_BYTES
        assert at_once(large, path) == in_two(large, path)
        whole = parse_whole(large, ROUTES[path])
        assert whole is not None
        assert whole[0].model_span == parse_body(large, ROUTES[path]).model_span
        start, end = whole[0].model_span or (0, 0)
        assert large[start:end] == b'"m"'


def test_a_large_body_is_light_by_its_size_and_by_how_many_values_it_has() -> None:
    assert is_light(b'{"a":"' + b"x" * (LIGHT_BYTES - 8) + b'"}')
    assert not is_light(b'{"a":"' + b"x" * LIGHT_BYTES + b'"}')
    few, many = ([[]] * count for count in (LIGHT_MARKS // 2 - 8, LIGHT_MARKS // 2 + 8))
    pad = " " * THREAD_BYTES
    assert is_light((json.dumps(few) + pad).encode())
    assert not is_light((json.dumps(many) + pad).encode())
    assert is_light(json.dumps([1] * (LIGHT_MARKS + 8)).encode()), "a small one is read in one step whatever it holds"


LEFT = [
    b"{",
    b"[]",
    b'{"model":"m","messages":5}',
    b'{"model":5,"messages":[]}',
    b'{"model":"","messages":[]}',
    b'{"messages":[]}',
    b'{"model":"m","model":"n","messages":[]}',
    b'{"model":"m","messages":[],"stream":true,"stream":true}',
    chat(model="m" * 81),
    chat(stream_options=5),
    chat(stream_options={"x" * 5000: 1}),
    chat(options={"a": [1]}),
    chat(options={str(n): 1 for n in range(40)}),
    chat(options=5),
    b'{"model":"m","messages":["\\ud83d"]}',
    b'{"model":"m","messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b"{" + b",".join(b'"%d":1' % n for n in range(501)) + b"}",
]


@pytest.mark.parametrize("body", LEFT, ids=lambda body: str(body[:40]))
def test_whatever_is_not_plain_is_left_to_the_two_steps(body: bytes) -> None:
    assert parse_whole(body, ROUTES[CHAT]) is None


def test_an_id_of_a_response_that_is_none_is_left_to_the_two_steps() -> None:
    for previous in ("5", '"%s"' % ("x" * 400)):
        body = b'{"model":"m","input":"hi","previous_response_id":%b}' % previous.encode()
        assert parse_whole(body, ROUTES["/v1/responses"]) is None


def test_a_name_in_another_case_is_refused_in_the_same_words() -> None:
    for name in ("Model", "STREAM"):
        body = chat(**{name: "m"})
        assert at_once(body, CHAT) == in_two(body, CHAT)
        assert "in another case" in str(at_once(body, CHAT))


def test_too_many_fields_of_a_large_body_are_refused_before_they_fill_the_memory() -> None:
    body = b'{"model":"m","messages":[],' + b",".join(b'"%d":1' % n for n in range(9000)) + b"}"
    assert at_once(body, CHAT) == in_two(body, CHAT)


texts = st.text(st.characters(exclude_categories=()), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
odd = values | st.sampled_from([True, False, 5, -1, 5.0, 2**70, "m", [], {"include_usage": True}, {"num_ctx": 4096}])
names = st.sampled_from([
    "model", "Model", "messages", "stream", "Stream", "stream_options", "max_tokens", "max_output_tokens", "tools",
    "prompt", "options", "input", "system", "previous_response_id", "images",
])  # fmt: skip
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]) | texts, "content": texts | values},
        optional={"tool_calls": values},
    ),
    max_size=4,
)


@given(messages, st.lists(st.tuples(names | texts, odd), max_size=6), st.booleans(), st.sampled_from(PATHS))
def test_any_body_is_read_the_same_in_one_step_or_left_to_two(
    said: list[object],
    more: list[tuple[str, object]],
    ascii_only: bool,  # noqa: FBT001 - drawn
    path: str,
) -> None:
    pairs = [("model", "m"), ("messages", said), ("input", said), ("prompt", "text"), *more]
    text = ",".join(json.dumps(n) + ":" + json.dumps(v, ensure_ascii=ascii_only) for n, v in pairs)
    body = ("{" + text + "}").encode("utf-8", "replace")
    assert at_once(body, path) in (None, in_two(body, path))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"model":"m:3b","messages":[]}', "m:3b"),
        (b'{"messages":["%b"],\n "model" : "m"}' % (b"x" * 9000), "m"),
        (b'{"messages":["%b"],"model":"m","x":"%b"}' % (b"x" * 9000, b"y" * 9000), None),
        (b'{"messages":[]}', None),
        (b'{"model":5}', None),
        (b'{"model":"%b"}' % (b"m" * 81), None),
        (b'{"model":"\\u0061"}', None),
    ],
)
def test_the_model_is_guessed_from_either_end_of_a_body(body: bytes, name: str | None) -> None:
    assert guess_model(body) == name
