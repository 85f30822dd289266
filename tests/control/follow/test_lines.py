import itertools

from hypothesis import given
from hypothesis import strategies as st

from pharos.control.follow.lines import LineSplitter

BYTES = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"bc", b"x" * 9, b"\xff\x00"]), max_size=20).map(
    b"".join
)


def split(pieces: list[bytes], limit: int) -> list[bytes]:
    splitter = LineSplitter(limit)
    return [line for piece in pieces for line in splitter.feed(piece)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(BYTES, st.lists(st.integers(0, 200)), st.integers(1, 12))
def test_lines_are_the_same_however_the_stream_is_cut(data: bytes, places: list[int], limit: int) -> None:
    whole = [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]]
    expected = [line for line in whole if len(line) <= limit]
    assert split(cut(data, places), limit) == expected


def test_a_line_without_its_end_waits_for_it() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"Parallel:1") == []
    assert splitter.feed(b"6\nnext") == [b"Parallel:16"]


def test_a_longer_line_is_left_out_up_to_its_end_and_never_held() -> None:
    splitter = LineSplitter(limit=4)
    assert splitter.feed(b"12345") == []
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    assert repr(splitter) == "<LineSplitter skipping>"
    assert splitter.feed(b"x\n1234\r\n") == [b"1234"]


@given(BYTES, st.integers(1, 12))
def test_no_more_than_the_limit_and_one_byte_is_held(data: bytes, limit: int) -> None:
    splitter = LineSplitter(limit)
    for place in range(len(data)):
        splitter.feed(data[place : place + 1])
        assert len(splitter._tail) <= limit + 1
