import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.sse import EventParser, SseEvent

ENDS = st.sampled_from(["\n", "\r", "\r\n"])
TEXT = st.text(st.sampled_from("ab: {é"), max_size=5)
LINES = st.one_of(
    st.just(("", "")),
    st.tuples(st.just("data"), TEXT),
    st.tuples(st.just("data"), TEXT),
    st.tuples(st.just("event"), TEXT),
    st.tuples(st.sampled_from(["", "id", "retry", "date", "Data"]), TEXT),
)


def parse(*pieces: bytes, limit: int = 1000) -> list[tuple[str, bytes]]:
    parser = EventParser(limit)
    return [(event.event, event.data) for piece in pieces for event in parser.feed(piece)]


def meaning(lines: list[tuple[str, str]]) -> list[tuple[str, bytes]]:
    """What the standard says about fields and values; a blank line is an empty field without a value."""
    events, name, data = list[tuple[str, bytes]](), "", list[str]()
    for field, value in lines:
        if (field, value) == ("", ""):
            if data:
                events.append((name, "\n".join(data).encode()))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


@given(st.lists(st.tuples(LINES, ENDS), max_size=20), st.lists(st.integers(0, 500)), st.sampled_from(["", "\ufeff"]))
def test_events_are_what_the_standard_says_however_the_stream_is_cut(
    lines: list[tuple[tuple[str, str], str]], places: list[int], mark: str
) -> None:
    text = mark
    told = list[tuple[str, str]]()
    for (field, value), end in lines:
        if text.endswith("\r") and end == "\n" and not field + value:
            end = "\r\n"  # noqa: PLW2901 (a lone LF here would be the second half of the line end before)
        text += (f"{field}: {value}" if field + value else "") + end
        told.append((field, value))
    data = text.encode()
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(*pieces) == meaning(told)


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_whatever_give_the_same_in_one_piece_and_in_many(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert parse(whole) == parse(*pieces) == parse(*(whole[at : at + 1] for at in range(len(whole))))


def test_a_value_loses_one_space_and_a_field_without_a_colon_is_an_empty_one() -> None:
    assert parse(b"data:  a\ndata\ndata:b\n\n") == [("", b" a\n\nb")]


def test_an_event_without_data_is_none_and_its_name_is_forgotten() -> None:
    assert parse(b"event: gone\n\ndata: x\n\n") == [("", b"x")]


def test_what_the_end_of_the_stream_cuts_is_no_event() -> None:
    assert parse(b"data: x\n\ndata: half\n") == [("", b"x")]


def test_an_event_is_given_with_the_first_byte_that_ends_it() -> None:
    parser = EventParser()
    assert parser.feed(b"data: x\r\n\r") == [SseEvent("", b"x")]
    assert parser.feed(b"\n") == []


def test_comments_are_not_kept_however_long() -> None:
    parser = EventParser(limit=10)
    parser.feed(b": ")
    for _ in range(100):
        parser.feed(b"x" * 1000)
    assert repr(parser) == "<EventParser 0 bytes of an event>"
    assert parser.feed(b"\ndata: x\n\n") == [SseEvent("", b"x")]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"data: 5678", b"90", b"1"], id="one line"),
        pytest.param([b"data: a\n", b"data: b"], id="lines together"),
        pytest.param([b"x" * 13], id="a field of no meaning"),
    ],
)
def test_an_event_longer_than_the_limit_ends_the_stream_since_it_may_matter(pieces: list[bytes]) -> None:
    with pytest.raises(FeedError, match="longer than 12 bytes") as caught:
        parse(*pieces, limit=12)
    assert caught.value.fault is Fault.TOO_LARGE


def test_the_limit_is_for_each_event_alone() -> None:
    assert parse(b"data: 123456\n\n" * 3, limit=12) == [("", b"123456")] * 3
