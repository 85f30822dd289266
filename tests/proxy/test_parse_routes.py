"""What is read of a JSON body on each route: names of fields differ, and so does what their absence means."""

import json
from typing import Any

import pytest

from pharos.proxy.errors import ClientFault
from pharos.proxy.parse import ChatRequest, parse_body
from pharos.proxy.table import ROUTES
from tests.fakes import captures

JSON_ROUTES = [path for path, route in ROUTES.items() if route.body == "json"]
RECORDED = [
    (path.parts[-4], path.parts[-3], path.name.removesuffix(".request.json"))
    for path in sorted(captures.TESTDATA.glob("*/*/streams/*.request.json"))
]


def read(path: str, **body: Any) -> ChatRequest:
    return parse_body(json.dumps(body).encode(), ROUTES[path])


def test_every_recorded_request_of_these_routes_is_read() -> None:
    seen = set()
    for reply in RECORDED:
        asked = json.loads(captures.request(*reply))
        if not isinstance(asked, dict) or asked.get("path") not in ROUTES or not isinstance(asked.get("body"), dict):
            continue
        path, body = asked["path"], asked["body"]
        if ROUTES[path].needs_messages and not isinstance(body.get("messages"), list):
            continue
        if "model" not in body:
            continue
        parsed = read(path, **body)
        seen.add(path)
        assert parsed.model == body["model"]
        default = ROUTES[path].streams == "unless_refused"
        assert parsed.stream is (body.get("stream", default) and ROUTES[path].streams != "never")
        options = body.get("options", {})
        limit = body.get("max_tokens", body.get("max_output_tokens", options.get("num_predict")))
        assert parsed.max_tokens == limit
    assert {"/v1/responses", "/v1/messages", "/api/chat", "/api/generate", "/v1/embeddings", "/api/show"} <= seen


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_a_body_names_its_model_once(path: str) -> None:
    assert read(path, model="m", messages=[]).model == "m"
    for body in (b'{"model":"a","model":"b","messages":[]}', b'{"model":"a","Model":"a","messages":[]}'):
        with pytest.raises(ClientFault, match="more than once"):
            parse_body(body, ROUTES[path])
    with pytest.raises(ClientFault, match="no `model`"):
        read(path, messages=[])


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize(
    "other",
    [
        b'"Model":"other"',
        b'"MODEL":null',
        b'"mod\\u0065L":"other"',
        b'"Stream":true',
        b'"\xc5\xbftream":true',
        b'"\\u017ftream":true',
        b'"Previous_Response_ID":"resp_1"',
        b'"previou\xc5\xbf_response_id":"resp_1"',
    ],
)
def test_what_pharos_goes_by_is_taken_in_its_one_spelling_only(path: str, other: bytes) -> None:
    """Engines in Go match names without regard to case, in the first field that fits or in the last."""
    named = ROUTES[path].model_names[-1].encode()
    for body in (
        b'{"' + named + b'":"m","messages":[],' + other + b"}",
        b"{" + other + b',"' + named + b'":"m","messages":[],"x":"' + b"x" * 300_000 + b'"}',
    ):
        if b"previou" in other.lower() and not ROUTES[path].stateful:
            assert parse_body(body, ROUTES[path]).model == "m", "no response is gone on from there"
            continue
        with pytest.raises(ClientFault) as caught:
            parse_body(body, ROUTES[path])
        assert caught.value.status == 400
        assert caught.value.param in ("model", "stream", "previous_response_id")


def test_a_stream_asked_for_in_one_spelling_is_one_though_another_field_is_like_it() -> None:
    for more in (b'"streaming":1', b'"Streams":1', b'"x":"Stream"', b'"x":"\xc5\xbftream"', b'"x":{"Stream":1}'):
        body = b'{"model":"m","messages":[],"stream":true,' + more + b"}"
        assert parse_body(body, ROUTES["/v1/chat/completions"]).stream is True
        body = b'{"model":"m","messages":[],' + more + b"}"
        assert parse_body(body, ROUTES["/v1/chat/completions"]).stream is False


def test_the_response_to_go_on_from_is_named_once() -> None:
    body = b'{"model":"m","input":"x","previous_response_id":"a","previous_response_id":"b"}'
    with pytest.raises(ClientFault, match="previous_response_id"):
        parse_body(body, ROUTES["/v1/responses"])


@pytest.mark.parametrize("other", ["Name", "NAME", "n\\u0061mE"])
def test_show_s_older_name_has_one_spelling_too(other: str) -> None:
    with pytest.raises(ClientFault, match="`name` more than once"):
        parse_body(b'{"model":"m","' + other.encode() + b'":"b"}', ROUTES["/api/show"])
    assert parse_body(b'{"model":"m","' + other.encode() + b'":"b"}', ROUTES["/v1/embeddings"]).model == "m"


def test_only_show_takes_the_model_by_its_older_name() -> None:
    assert read("/api/show", name="m").model == "m"
    assert read("/api/show", name="old", model="new").model == "new"
    assert read("/api/show", name="m", model="").model == "m", "as the ollama command sends it"
    with pytest.raises(ClientFault, match="not empty"):
        read("/api/show", name="", model="")
    with pytest.raises(ClientFault, match="`name` more than once"):
        parse_body(b'{"name":"a","Name":"b"}', ROUTES["/api/show"])
    with pytest.raises(ClientFault, match="no `model`"):
        read("/api/chat", name="m", messages=[])


@pytest.mark.parametrize(
    ("path", "unsaid", "null", "text"),
    [
        ("/v1/chat/completions", False, False, False),
        ("/v1/messages", False, False, False),
        ("/v1/responses", False, False, False),
        ("/api/chat", True, True, True),
        ("/api/generate", True, True, True),
        ("/api/embed", False, False, False),
        ("/v1/embeddings", False, False, False),
        ("/v1/rerank", False, False, False),
    ],
)
def test_whether_a_reply_is_a_stream_is_as_the_engines_judge_it(
    path: str, *, unsaid: bool, null: bool, text: bool
) -> None:
    streams = ROUTES[path].streams != "never"
    assert read(path, model="m", messages=[]).stream is unsaid
    assert read(path, model="m", messages=[], stream=None).stream is null
    assert read(path, model="m", messages=[], stream="yes").stream is text
    assert read(path, model="m", messages=[], stream=True).stream is streams
    assert read(path, model="m", messages=[], stream=False).stream is False


@pytest.mark.parametrize(("path", "can"), [(p, p in ("/v1/chat/completions", "/v1/completions")) for p in JSON_ROUTES])
def test_usage_is_asked_for_only_where_the_protocol_has_a_field_for_it(path: str, *, can: bool) -> None:
    assert read(path, model="m", messages=[], stream=True).wants_injection is can


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"system": "12345", "messages": []}),
        ("/v1/messages", {"system": "", "messages": [1234]}),
        ("/v1/responses", {"input": "12345", "instructions": ""}),
        ("/v1/responses", {"input": [1234], "instructions": ""}),
        ("/v1/rerank", {"query": "123", "documents": ["a"]}),
        ("/api/generate", {"prompt": "12", "suffix": "345"}),
        ("/api/embed", {"input": "1234567"}),
        ("/tokenize", {"content": "1234567"}),
    ],
)
def test_every_protocol_s_prompt_is_counted(path: str, body: dict[str, Any]) -> None:
    wanted = sum(len(json.dumps(value)) for value in body.values())
    assert read(path, model="m", temperature=0, **body).prompt_bytes == wanted


FILE = "QUJD" * 30_000


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/chat/completions", {"image_url": {"url": "data:image/png;base64,FILE"}}),
        ("/v1/responses", {"image_url": "data:image/png;base64,FILE"}),
        ("/v1/messages", {"source": {"type": "base64", "media_type": "image/png", "data": "FILE"}}),
        ("/v1/messages", {"source": {"data": "FILE", "type": "base64"}}),
        ("/api/chat", {"role": "user", "content": "hi", "images": ["FILE", "FILE"]}),
    ],
)
@pytest.mark.parametrize("lead", [0, 65_400, 65_490, 65_530])
def test_files_are_no_prompt_in_any_protocol(path: str, message: dict[str, Any], lead: int) -> None:
    def size(file: str) -> int:
        written = json.loads(json.dumps(message).replace("FILE", file))
        return read(path, model="m", messages=["l" * lead, written], input=[written], tools=[1]).prompt_bytes

    assert size(FILE) < lead + 1000
    assert size(FILE) <= size("QUJD" * 30)


def test_text_in_a_field_called_data_is_a_prompt() -> None:
    text = "word " * 1000
    assert read("/v1/messages", model="m", messages=[{"input": {"data": text}}]).prompt_bytes > len(text)


@pytest.mark.parametrize(
    ("path", "body", "teaches"),
    [
        ("/api/generate", {}, False),
        ("/api/generate", {"prompt": ""}, False),
        ("/api/generate", {"prompt": "", "keep_alive": 0}, False),
        ("/api/generate", {"prompt": "hi"}, True),
        ("/api/chat", {"messages": []}, False),
        ("/api/chat", {"messages": [], "keep_alive": 0}, False),
        ("/api/chat", {}, False),
        ("/api/chat", {"messages": [{"role": "user", "content": ""}]}, True),
        ("/v1/chat/completions", {"messages": []}, True),
        ("/v1/completions", {"prompt": ""}, True),
    ],
)
def test_only_ollama_s_empty_requests_teach_nothing(path: str, body: dict[str, Any], *, teaches: bool) -> None:
    assert read(path, model="m", **body).teaches is teaches


def test_the_response_that_a_request_goes_on_from_is_read() -> None:
    assert read("/v1/responses", model="m", input="x", previous_response_id="resp_1").previous_response == "resp_1"
    assert read("/v1/responses", model="m", input="x", previous_response_id=None).previous_response is None
    assert read("/v1/chat/completions", model="m", messages=[], previous_response_id="r").previous_response is None
    with pytest.raises(ClientFault) as caught:
        read("/v1/responses", model="m", input="x", previous_response_id=5)
    assert caught.value.param == "previous_response_id"


def test_where_the_model_stands_is_told_of_bodies_too_large_to_look_again() -> None:
    for name in ("m", "é", 'a"b'):
        body = json.dumps({"x": "y" * 300_000, "model": name, "messages": []}).encode()
        span = parse_body(body, ROUTES["/v1/chat/completions"]).model_span
        assert span is not None
        assert json.loads(body[slice(*span)]) == name
    assert read("/v1/chat/completions", model="m", messages=[]).model_span is None


def test_the_first_limit_that_is_one_counts() -> None:
    assert read("/v1/responses", model="m", input="x", max_output_tokens=7).max_tokens == 7
    assert read("/api/chat", model="m", options={"num_predict": 9}).max_tokens == 9
    assert read("/api/chat", model="m", options={"num_predict": -1}).max_tokens is None
    assert read("/api/chat", model="m", options=[]).max_tokens is None
    assert read("/v1/messages", model="m", max_tokens=5, messages=[]).max_tokens == 5
