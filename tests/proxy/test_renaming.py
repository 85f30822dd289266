"""`rewrite_reply_model`: a reply names the model as its client did, and not a byte of it changes beside that."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet.names import Meant
from pharos.proxy import renaming as module
from pharos.proxy.parse_scan import scan_object
from pharos.proxy.renaming import INSIDE, Renamed, renaming
from pharos.proxy.settings import ProxySettings
from pharos.proxy.tap import Tap, make_tap
from tests.fakes import captures
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, USAGE, chat, event, front
from tests.proxy.test_early_ends import says
from tests.proxy.test_tap_replay import REPLIES, Reply, content_type_of, is_stream, protocol_of

NAME = 'my "fast" é'
TEXT = json.dumps(NAME).encode()
ON = ProxySettings(rewrite_reply_model=True)
ALIASED: dict[str, Any] = {"models": ("org/model",), "aliases": {"fast": (Meant("org/model"),)}}
SPLITS = st.lists(st.integers(0, 1 << 20), max_size=9)
TEXTS = st.one_of(st.text(max_size=9), st.sampled_from(['"model":"m"', "model", "message", '\\"model\\":', "{[", "\\"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=9,
)


def pieces(body: bytes, where: list[int]) -> list[bytes]:
    ends = sorted({0, len(body), *(place % (len(body) + 1) for place in where)})
    return [body[a:b] for a, b in pairwise(ends)]


def expected(record: bytes, inside: bytes | None) -> bytes:
    """One record with the other name, by the scanner that reads requests."""
    at = 0
    if inside is not None:
        outer = [one for one in scan_object(record) if one.name == inside.decode()]
        if not outer or record[outer[0].start : outer[0].start + 1] != b"{":
            return record
        at = outer[0].start
    for one in scan_object(record, at):
        if one.name == "model" and record[one.start : one.start + 1] == b'"':
            return record[: one.start] + TEXT + record[one.end :]
    return record


def tap_for(reply: Reply) -> Tap:
    protocol = protocol_of(reply)
    kind = content_type_of(reply)
    tap = make_tap(protocol, streamed=is_stream(reply), content_type=kind, strip_usage=False)
    return renaming(tap, protocol, NAME)


def renamed(reply: Reply) -> bytes:
    body = captures.exchange(*reply).body
    if not is_stream(reply):
        return expected(body, None) if body.lstrip().startswith(b"{") else body
    lead = b"" if b"ndjson" in content_type_of(reply).encode() else b"data: "
    inside = INSIDE.get(protocol_of(reply))
    lines = []
    for line in body.splitlines(keepends=True):
        record = line.removeprefix(lead)
        is_record = line.startswith(lead) and record.startswith(b"{")
        lines.append(line[: len(line) - len(record)] + expected(record, inside) if is_record else line)
    return b"".join(lines)


@pytest.mark.parametrize("reply", REPLIES, ids="-".join)
def test_every_recorded_reply_keeps_all_its_bytes_but_the_name(reply: Reply) -> None:
    body, whole = captures.exchange(*reply).body, renamed(reply)
    for step in (1, 7, len(body) or 1):
        tap = tap_for(reply)
        sent = b"".join(tap.feed(body[at : at + step]) for at in range(0, len(body), step)) + tap.finish()
        assert sent == whole


def test_an_event_behind_the_mark_of_its_coding_is_renamed_too() -> None:
    first = b'\xef\xbb\xbfdata: {"id":"x","model":"org/model","choices":[]}\n\n'
    tap = renaming(
        make_tap("openai_chat", streamed=True, content_type="text/event-stream", strip_usage=False), "openai_chat", NAME
    )
    assert tap.feed(first) == first.replace(b'"org/model"', TEXT)
    assert tap.feed(first[3:]) == first[3:].replace(b'"org/model"', TEXT)


def test_recorded_replies_of_every_protocol_tell_a_name() -> None:
    told = {(protocol_of(reply), is_stream(reply)) for reply in REPLIES if TEXT in renamed(reply)}
    protocols = {"openai_chat", "openai_completion", "openai_responses", "anthropic", "ollama_chat", "ollama_generate"}
    assert told >= {(protocol, streamed) for protocol in protocols for streamed in (False, True)}
    assert ("plain", False) in told


@given(reply=st.sampled_from(REPLIES), where=SPLITS)
def test_where_a_reply_is_split_changes_nothing(reply: Reply, where: list[int]) -> None:
    tap = tap_for(reply)
    sent = b"".join(map(tap.feed, pieces(captures.exchange(*reply).body, where))) + tap.finish()
    assert sent == renamed(reply)


@given(
    others=st.dictionaries(TEXTS.filter(lambda name: name != "model"), VALUES, max_size=5),
    model=st.one_of(TEXTS, VALUES),
    inner=st.one_of(VALUES, st.dictionaries(st.sampled_from(["model", "id", "x"]), VALUES, max_size=3)),
    place=st.integers(0, 5),
    where=SPLITS,
    indent=st.sampled_from([None, 1]),
    is_ascii=st.booleans(),
    inside=st.sampled_from([None, b"message"]),
)
def test_in_any_document_only_the_value_at_its_place_changes(
    others: dict[str, Any],
    model: Any,
    inner: Any,
    place: int,
    where: list[int],
    indent: Any,
    is_ascii: Any,
    inside: Any,
) -> None:
    members = list(others.items())
    members.insert(place, ("model", model))
    document = dict(members) | {"message": inner}
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    body = text.encode("utf-8", "surrogatepass")
    one = Renamed(TEXT, inside)
    assert b"".join(map(one.feed, pieces(body, where))) == expected(body, inside)


@pytest.mark.parametrize(
    "body",
    [
        b'["model","m",{"model":"m"}]', b'"model"', b"12", b'{"a":{"model":"m"},"b":["model"]}', b'{"model":5,"x":"m"}',
        b'{"model":null}', b'{"x":"model","y":"m"}', b'{"model:":"m"}', b'{"mod\\u0065l":"m"}', b'{"\\"model":"m"}',
        b'{"model":["m"],"y":"m"}', b'{"model":{"model":"m"}}', b"no json", b"}{", b"",
    ],
)  # fmt: skip
def test_what_is_not_the_name_stays(body: bytes) -> None:
    for step in (1, 100):
        one = Renamed(TEXT)
        assert b"".join(one.feed(body[at : at + step]) for at in range(0, len(body), step)) == body


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_escapes_are_understood_wherever_they_are_cut(step: int) -> None:
    body = rb'{"a":"x\"y\\","b\"":"\\\\","c":"\",\"model\":\"m","model":"m\"n\\","d":"\""}'
    one = Renamed(TEXT)
    sent = b"".join(one.feed(body[at : at + step]) for at in range(0, len(body), step))
    assert sent == body.replace(rb'"m\"n\\"', TEXT)
    assert json.loads(sent)["model"] == NAME


def test_a_name_behind_too_many_values_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MARKS", 100)
    near = b'{"data":[' + b'"x",' * 40 + b'0],"model":"m"}'
    far = b'{"data":[' + b'"x",' * 99 + b'0],"model":"m"}'
    assert Renamed(TEXT).feed(near) == near.replace(b'"m"', TEXT)
    for step in (1, 7, len(far)):
        one = Renamed(TEXT)
        assert b"".join(one.feed(far[at : at + step]) for at in range(0, len(far), step)) == far
        assert one.is_over


def test_a_name_behind_30_mb_is_found_and_nothing_is_held() -> None:
    body = b'{"object":"list","data":[{"embedding":"' + b"Zm9v" * 64 * 1024 + b'"}],"model":"m"}'
    start, end = body[:100_000], body[100_000:]
    one = Renamed(TEXT)
    sent = len(one.feed(start))
    middle = b"Zm9v" * 16 * 1024
    tracemalloc.start()
    for _ in range(30 * 16):
        sent += len(one.feed(middle))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1024 * 1024
    assert sent > 30_000_000
    assert one.feed(end) == end.replace(b'"m"', TEXT)


def test_a_long_line_of_a_stream_is_renamed_at_its_beginning_and_passes_in_pieces() -> None:
    for protocol, line in (
        ("openai_chat", b'data: {"model":"m","choices":[{"delta":{"content":"' + b"x" * 300_000 + b'"}}]}\n\n'),
        ("openai_chat", b'data: {"choices":[{"delta":{"content":"' + b"x" * 300_000 + b'"}}],"model":"m"}\n\n'),
        ("ollama_chat", b'{"message":{"content":"' + b"x" * 300_000 + b'"},"model":"m","done":true}\n'),
    ):
        kind = "application/x-ndjson" if protocol == "ollama_chat" else "text/event-stream"
        body = line + (event("a", model="m") if protocol == "openai_chat" else b'{"model":"m"}\n')
        tap = renaming(
            make_tap(protocol, streamed=True, content_type=kind, strip_usage=True),  # type: ignore[arg-type]
            protocol,  # type: ignore[arg-type]
            NAME,
        )
        sent = b"".join(tap.feed(body[at : at + 9000]) for at in range(0, len(body), 9000)) + tap.finish()
        assert sent == body.replace(b'"model":"m"', b'"model":' + TEXT).replace(b'"model": "m"', b'"model": ' + TEXT)


def test_bodies_that_are_no_json_are_left_to_their_tap() -> None:
    tap = make_tap("plain", streamed=False, content_type="audio/wav", strip_usage=False)
    assert renaming(tap, "plain", NAME) is tap


def test_a_renamed_stream_never_passes_its_tap_by() -> None:
    tap = renaming(
        make_tap("openai_chat", streamed=True, content_type="text/event-stream", strip_usage=True), "openai_chat", NAME
    )
    tap.feed(event("a", model="m"))
    assert tap.saw_token
    assert not tap.is_between


# --- through the proxy


def answers(body: bytes) -> Script:
    async def play(turn: Turn) -> None:
        await turn.reply(200, body)

    return play


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_stream_names_the_model_as_asked_for_if_that_is_wanted(*, is_on: bool) -> None:
    said = [event(word, model="org/model") for word in "abc"]
    script = says(*said[:1], said[1] + said[2][:40], said[2][40:], DONE)
    settings = ON if is_on else ProxySettings()
    async with front(script, settings=settings, **ALIASED) as (pharos, _):
        reply = await pharos.ask(chat("fast"))
        wanted = b'"model": "fast"' if is_on else b'"model": "org/model"'
        assert reply.body == b"".join(said).replace(b'"model": "org/model"', wanted) + DONE
        assert reply.is_whole
        own = await pharos.ask(chat("org/model"))
        assert own.body == b"".join(said) + DONE
        assert [("upstream", "ok") in one.stages for one in pharos.done] == [True, True]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_reply_whose_length_changes_is_framed_anew(version: str) -> None:
    body = json.dumps({"choices": [{"message": {"model": "x"}}], "model": "org/model", "usage": USAGE}).encode()
    async with front(answers(body), settings=ON, **ALIASED) as (pharos, _):
        client = await pharos.client()
        client.post(chat("fast", stream=False), version=version)
        reply = await client.reply()
        assert reply.header("content-length") == []
        assert reply.header("transfer-encoding") == (["chunked"] if version == "1.1" else [])
        assert reply.is_whole
        assert reply.body == body.replace(b"org/model", b"fast")
        done = await pharos.finished()
        assert done.usage is not None
        plain = await pharos.ask(chat("org/model", stream=False))
        assert plain.header("content-length") == [str(len(body))]


async def test_half_a_reply_whose_length_changes_is_no_whole_one() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(
            b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"model":"org/model"'
        )
        turn.close()

    async with front(play, settings=ON, **ALIASED) as (pharos, _):
        reply = await pharos.ask(chat("fast", stream=False))
        assert not reply.is_whole
        assert reply.body == b'{"model":"fast"'


async def test_a_response_that_fails_is_told_under_the_same_name() -> None:
    created = {"type": "response.created", "response": {"id": "resp_1", "model": "org/model"}}
    script = says(f"event: response.created\ndata: {json.dumps(created)}\n\n".encode())
    body = json.dumps({"model": "fast", "input": "hi", "stream": True}).encode()
    async with front(script, settings=ON, **ALIASED) as (pharos, _):
        reply = await pharos.ask(body, path="/v1/responses")
        assert b"org/model" not in reply.body
        failed = json.loads(reply.body.rpartition(b"data: ")[2])
        assert failed["response"]["model"] == "fast"
        assert len(pharos.proxy.routes.door._responses) == 1, "its id is found all the same"
