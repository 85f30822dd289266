import json
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pharos.proxy.errors import ClientFault
from pharos.proxy.inject import inject_usage
from pharos.proxy.parse import ChatRequest, SlowBodyError, needs_thread, parse_body
from pharos.proxy.table import ROUTES

CHAT = "/v1/chat/completions"
STREAMS = sorted((Path(__file__).parents[2] / "testdata" / "llamacpp").glob("*/streams/*.request.json"))
DEEP = b"[" * 100_000 + b"]" * 100_000


def chat(body: bytes) -> ChatRequest:
    return parse_body(body, ROUTES[CHAT])


def refusal(body: bytes, path: str = CHAT) -> ClientFault:
    with pytest.raises(ClientFault) as caught:
        parse_body(body, ROUTES[path])
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recorded_requests_are_read(path: Path) -> None:
    recorded = json.loads(path.read_bytes())
    if not isinstance(recorded, dict) or "completions" not in recorded.get("path", ""):
        return
    body = json.dumps(recorded["body"]).encode()
    if recorded["path"] == CHAT and not isinstance(recorded["body"].get("messages"), list):
        assert refusal(body, recorded["path"]).param == "messages"
        return
    parsed = parse_body(body, ROUTES[recorded["path"]])
    assert parsed.model == recorded["body"]["model"]
    assert parsed.stream is recorded["body"].get("stream", False)
    assert parsed.max_tokens == recorded["body"].get("max_tokens")


def test_prompt_bytes_count_messages_and_tools_but_no_images() -> None:
    messages = b'[{"role":"user","content":[{"image_url":{"url":"data:image/png;base64,%b"}}]}]'
    small = chat(b'{"model":"m","messages":' + messages % b"" + b',"tools":[1]}').prompt_bytes
    assert small == len(messages % b"") + 3
    assert chat(b'{"model":"m","messages":' + messages % (b"A" * 5000) + b',"tools":[1]}').prompt_bytes == small
    assert parse_body(b'{"model":"m","prompt":"abc"}', ROUTES["/v1/completions"]).prompt_bytes == 5
    assert parse_body(b'{"model":"m","input":["abc",";base64,x"]}', ROUTES["/v1/embeddings"]).prompt_bytes > 5


@pytest.mark.parametrize(
    ("extra", "tokens"),
    [
        (b'"max_tokens":5', 5),
        (b'"max_tokens":5,"max_completion_tokens":7', 7),
        (b'"max_tokens":-1', None),
        (b'"max_tokens":"5"', None),
    ],
)
def test_the_limit_of_the_completion_is_read(extra: bytes, tokens: int | None) -> None:
    assert chat(b'{"model":"m","messages":[],' + extra + b"}").max_tokens == tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "model"),
        (b'{"model":null,"messages":[]}', "model"),
        (b'{"model":"","messages":[]}', "model"),
        (b'{"model":3,"messages":[]}', "model"),
        (b'{"Model":"m","messages":[]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":"nope"}', "messages"),
        (b'{"model":"m","messages":null}', "messages"),
        (b'{"model":"m\xff"}', "messages"),
        (b'{"model":' + DEEP + b"}", "model"),
    ],
)
def test_a_wrong_field_is_named(body: bytes, param: str) -> None:
    assert refusal(body).param == param


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no body"),
        (b" \n", "no body"),
        (b"[1]", "no object"),
        (b'"model"', "no object"),
        (DEEP, "no object"),
        (b'{"model":"m","messages":[tru]}', "at byte 25"),
        (b'{"model":"m"', "at byte 12"),
        (b'{"model":"m","messages":[]}x', "at byte 27"),
        (b'{"model":"\x00"}', "at byte 10"),
        (b"\xef\xbb\xbf{}", "at byte 0"),
        (b"\x28\xb5\x2f\xfd", "at byte 0"),
        (b'{"model":"m","a":' + DEEP, "at byte"),
        (b'{"model":"m","a":' + DEEP[:-1] + b"}}", "at byte"),
        (b"{" + b",".join(b'"f%d":1' % i for i in range(501)) + b"}", "more than 500"),
        (b'{"a":"\\ud83d",' + b",".join(b'"f%d":1' % i for i in range(501)) + b"}", "more than 500"),
        (b'{"model":"m","x":"\\ud83d","y":' + b"1" * 5000 + b"z}", "at byte"),
        (b'{"model":"m","messages":[],"x":' + DEEP + b',"y":[;base64,]}', "at byte"),
        (b'{"model":"m","messages":[;base64,]}', "at byte 25"),
        (b'{"model":"m","messages":' + b'[{"":' * 600_000, "nest less"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_place(body: bytes, words: str) -> None:
    fault = refusal(body)
    assert fault.code == "invalid_json"
    assert words in fault.message


@pytest.mark.parametrize(
    "second", [b'"model"', b'"Model"', b'"MODEL"', b'"mod\\u0065l"', b'"\\u004dODEL"'], ids=lambda name: name.decode()
)
@pytest.mark.parametrize("spoil", [b"", b',"x":"\\ud83d"', b',"x":' + DEEP], ids=["plain", "surrogate", "deep"])
def test_a_model_named_twice_is_refused(second: bytes, spoil: bytes) -> None:
    for first, then in ((b'"model"', second), (second, b'"model"')):
        fault = refusal(b"{" + first + b':"a","messages":[],' + then + b':"a"' + spoil + b"}")
        assert fault.param == "model"
        assert "more than once" in fault.message


def test_a_model_named_inside_the_messages_is_none() -> None:
    assert chat(b'{"messages":[{"model":"x"},"\\"model\\""],"model":"m"}').model == "m"


@pytest.mark.parametrize("text", [b"\\ud83d", b"\\ude00", b"\xff\xfe", DEEP])
def test_text_that_a_strict_reader_refuses_is_for_the_engine_to_judge(text: bytes) -> None:
    value = text if text is DEEP else b'"' + text + b'"'
    body = b'{"messages":[{"content":' + value + b'}], "stream" : true,\n"model":"m"}'
    parsed = chat(body)
    assert (parsed.model, parsed.stream, parsed.wants_injection) == ("m", True, True)
    injected = b"".join(inject_usage(body, parsed))
    assert injected == body[:-1] + b',"stream_options":{"include_usage":true}}'


def test_an_unpaired_surrogate_in_the_model_gives_a_name_that_can_be_written() -> None:
    assert chat(b'{"model":"a\\ud83d","messages":[]}').model.encode() == b"a?"


@pytest.mark.parametrize("stream", [b"false", b"null", b'"true"', b"1", b"[]", b'"' + b"x" * 9000 + b'"'])
def test_only_json_true_streams(stream: bytes) -> None:
    body = b'{"model":"m","messages":[],"stream_options":{"x":1},"stream":' + stream + b"}"
    parsed = chat(body)
    assert (parsed.stream, parsed.wants_injection, parsed.has_stream_options) == (False, False, True)
    assert b"".join(inject_usage(body, parsed)) == body


@pytest.mark.parametrize(
    ("options", "injected"),
    [
        (b"{}", b'{"include_usage":true}'),
        (b"{ }", b'{ "include_usage":true}'),
        (b"null", b'{"include_usage":true}'),
        (b'{"include_usage":false}', b'{"include_usage":true}'),
        (b'{"include_usage": null , "x":[1]}', b'{"include_usage": true , "x":[1]}'),
        (b'{"include_obfuscation":false}', b'{"include_obfuscation":false,"include_usage":true}'),
        (b'{"x":{"include_usage":false}}', b'{"x":{"include_usage":false},"include_usage":true}'),
    ],
)
def test_usage_is_asked_for_beside_the_clients_own_stream_options(options: bytes, injected: bytes) -> None:
    for name in (b'"stream_options"', b'"stream_\\u006fptions"'):
        for order in (b'{"a":{"stream_options":{}},%b:%b,"model":"m","messages":[],"stream":true}',):
            body = order % (name, options)
            assert b"".join(inject_usage(body, chat(body))) == order % (name, injected)


def test_stream_options_of_many_members_can_be_added_to() -> None:
    options = b'{"":1' + b',"":1' * 815 + b"}"
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":%b}'
    assert b"".join(inject_usage(body % options, chat(body % options))) == body % (
        options[:-1] + b',"include_usage":true}'
    )


@pytest.mark.parametrize("options", [b'{"include_usage":true}', b'"x"', b"[1]", b'{"x":"' + b"x" * 9000 + b'"}'])
def test_stream_options_that_ask_already_or_mean_nothing_are_left_alone(options: bytes) -> None:
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":' + options + b"}"
    parsed = chat(body)
    assert not parsed.wants_injection
    assert parsed.has_stream_options
    assert b"".join(inject_usage(body, parsed)) == body


def test_repeated_stream_fields_are_left_alone() -> None:
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":{},"stream_options":{}}'
    assert not chat(body).wants_injection


def test_what_the_client_says_of_usage_is_known() -> None:
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":%b}}'
    assert chat(body % b"true").include_usage is True
    assert chat(body % b"false").include_usage is False
    assert chat(body % b"3").include_usage is None


def test_large_bodies_and_many_messages_want_a_thread() -> None:
    assert not needs_thread(b'{"model":"m"}')
    assert not needs_thread(b" " * 100_000)
    assert needs_thread(b" " * 262_145)
    assert needs_thread(b'{"role":"","content":""},' * 2001)


@pytest.mark.parametrize("brackets", [DEEP, b"[" + b"[]," * 4000 + b'"\\ud83d"]'], ids=["deep", "many"])
def test_a_body_that_only_the_slow_reader_can_read_is_not_read_in_the_loop(brackets: bytes) -> None:
    body = b'{"model":"m","messages":' + brackets + b"}"
    with pytest.raises(SlowBodyError):
        parse_body(body, ROUTES[CHAT], in_loop=True)
    assert chat(body).model == "m"
    few = b'{"model":"m","messages":[[],"\\ud83d"]}'
    assert parse_body(few, ROUTES[CHAT], in_loop=True) == chat(few)


@pytest.mark.parametrize("size", [0, 100_000, 300_000], ids=["small", "large", "huge"])
def test_fields_are_limited_in_small_and_in_large_bodies(size: int) -> None:
    start = b'{"model":"m","messages":[],"a":"' + b"x" * size + b'"'
    assert chat(start + b"".join(b',"f%d":1' % i for i in range(497)) + b"}").model == "m"
    assert "more than 500" in refusal(start + b"".join(b',"f%d":1' % i for i in range(498)) + b"}").message
    assert "more than once" in refusal(start + b',"MODEL":"m"}').message


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
bodies = st.dictionaries(st.text(), values, max_size=5)


@given(
    extra=bodies,
    ascii_only=st.booleans(),
    options=st.sampled_from([None, {}, {"x": 1}, {"include_usage": False}]),
    indent=st.sampled_from([None, 1]),
    first=st.booleans(),
)
def test_an_injected_body_differs_only_in_the_option(
    extra: dict[str, object], *, ascii_only: bool, options: dict[str, object] | None, indent: int | None, first: bool
) -> None:
    rest = {name: value for name, value in extra.items() if name.lower() != "model"}
    own: dict[str, object] = {"model": "m", "messages": [], "stream": True, "stream_options": options}
    body = {**own, **rest} if first else {**rest, **own}
    body.update(own)
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace")
    parsed = chat(raw)
    assert json.loads(b"".join(inject_usage(raw, parsed))) == {
        **json.loads(raw),
        "stream_options": {**(options if options is not None else {}), "include_usage": True},
    }


odd = values | st.sampled_from([True, False, 5, -1, 5.0, 2**70, "", "m", "model", [], "é", "\\", [";base64,x"]])
names = st.sampled_from(["model", "Model", "messages", "stream", "stream_options", "max_tokens", "tools", "prompt"])


def outcome(body: bytes, path: str) -> object:
    try:
        return structs.replace(parse_body(body, ROUTES[path]), model_span=None)  # told of large bodies only
    except ClientFault as fault:
        return fault.param, fault.message


@given(
    members=st.lists(st.tuples(names | st.text(max_size=3), odd), max_size=6),
    ascii_only=st.booleans(),
    path=st.sampled_from([CHAT, "/v1/completions"]),
)
def test_small_bodies_are_read_as_large_ones_are(
    members: list[tuple[str, object]], *, ascii_only: bool, path: str
) -> None:
    pairs = [("model", "m"), ("messages", []), *members]
    text = ",".join(json.dumps(n) + ":" + json.dumps(v, ensure_ascii=ascii_only) for n, v in pairs)
    raw = ("{" + text + "}").encode("utf-8", "replace")
    assert outcome(raw, path) == outcome(raw + b" " * 3000, path) == outcome(raw + b" " * 300_000, path)


fragments = st.sampled_from(
    [
        *(bytes([byte]) for byte in b'{}[],:" \\;'),
        b'"model":"m",', b'"messages":[', b'"stream":true', b";base64,", b"\\ud83d", b"\\u", b"\xff", b"\x00",
        b"1" * 5000, b"-", b"1e999", b"NaN", b"null", b"tru", b"[" * 5000, b'{"":' * 2000, b"]" * 5000, b" " * 70_000,
    ]
)  # fmt: skip


@given(
    st.binary() | st.lists(fragments, max_size=20).map(b"".join), st.booleans(), st.sampled_from([CHAT, "/api/chat"])
)
def test_no_body_makes_the_reader_fail_otherwise(body: bytes, whole: bool, path: str) -> None:  # noqa: FBT001
    if whole:
        body = b'{"model":"m","messages":[],"x":' + body + b"}"
    for one in (body, body + b" " * 300_000):
        with suppress(ClientFault, SlowBodyError):
            assert isinstance(parse_body(one, ROUTES[path], in_loop=True), ChatRequest)
        with suppress(ClientFault):
            assert isinstance(parse_body(one, ROUTES[path]), ChatRequest)


@pytest.mark.parametrize("spoil", [b"", b',"x":"\\ud83d"', b',"x":"' + b"x" * 300_000 + b'"'])
def test_a_model_name_has_a_limit(spoil: bytes) -> None:
    def body(name: bytes) -> bytes:
        return b'{"model":"' + name + b'","messages":[]' + spoil + b"}"

    assert len(chat(body(b"n" * 1022)).model) == 1022
    assert chat(body("é".encode() * 511)).model == "é" * 511
    for name in (b"n" * 1023, "é".encode() * 512, b"n" * 50_000):
        fault = refusal(body(name))
        assert (fault.code, fault.param) == ("invalid_value", "model")
        assert "at most 1024 bytes" in fault.message


MIB = 2**20
GREEDY = {
    "a model of lists": b'{"messages":[],"model":[' + b"[]," * (8 * MIB // 3) + b"[]]}",
    "lists and a surrogate": b'{"model":"m","s":"\\ud83d","messages":[' + b"[]," * (8 * MIB // 3) + b"[]]}",
    "a name of many bytes": b'{"model":"m","messages":[],"' + b"x" * 8 * MIB + "😀".encode() + b'":1}',
    "a long text": b'{"model":"m","messages":["' + b"x" * 8 * MIB + b'"]}',
    "an image": b'{"model":"m","messages":[";base64,' + b"x" * 8 * MIB + b'"]}',
    "deep": b'{"model":"m","messages":' + DEEP + b',"x":"' + b"x" * 8 * MIB + b'"}',
    "no end": b'{"model":"m","messages":["' + b"\\n" * 4 * MIB,
}


@pytest.mark.parametrize("body", GREEDY.values(), ids=GREEDY)
def test_reading_a_large_body_takes_little_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(ClientFault):
            chat(body)
        assert tracemalloc.get_traced_memory()[1] < len(body) // 2
    finally:
        tracemalloc.stop()


def test_images_are_left_out_wherever_they_stand() -> None:
    text = b"t" * 70_000
    for size in (0, 60_000, 200_000):
        for lead in (*range(65_480, 65_540, 7), 5):
            image = b'"' + b"l" * lead + b";base64," + b"A" * size + b'","' + text + b'"'
            body = b'{"model":"m","messages":[' + image + b"]}"
            assert chat(body).prompt_bytes == len(image) - size + 2, (size, lead)
