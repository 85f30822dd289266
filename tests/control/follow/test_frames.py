import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.control.follow.docker import MAX_FRAME, FrameReader
from pharos.control.follow.fault import Fault, FeedError
from tests.fakes.docker import DOCKER, ERRORS, OUTPUT, frame

WRITES = st.lists(st.tuples(st.sampled_from([OUTPUT, ERRORS]), st.text("ab\n", max_size=9)), max_size=12)


@given(WRITES, st.lists(st.integers(0, 400)))
def test_each_streams_lines_come_whole_however_frames_and_reads_cut_them(
    writes: list[tuple[int, str]], places: list[int]
) -> None:
    data = b"".join(frame(text.encode(), stream) for stream, text in writes)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    reader = FrameReader()
    lines = [line for start, end in itertools.pairwise(edges) for line in reader.feed(data[start:end])]
    whole = ["".join(text for stream, text in writes if stream == wanted) for wanted in (OUTPUT, ERRORS)]
    assert sorted(lines) == sorted(line.encode() for text in whole for line in text.split("\n")[:-1])


def test_lines_of_two_streams_that_are_written_in_turns_do_not_mix() -> None:
    reader = FrameReader()
    assert reader.feed(frame(b"load ") + frame(b"warn", ERRORS) + frame(b"model\n")) == [b"load model"]
    assert reader.feed(frame(b"") + frame(b"ing\n", ERRORS)) == [b"warning"]


def test_what_a_terminals_reader_typed_has_a_stream_of_its_own() -> None:
    assert FrameReader().feed(frame(b"x", OUTPUT) + frame(b"typed\n", 0) + frame(b"y\n", OUTPUT)) == [b"typed", b"xy"]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"time=20", id="text"),
        pytest.param(b"\x01\0\0\0\xff\xff\xff\xff", id="four gigabytes"),
        pytest.param(b"\x01\0\0\0" + (MAX_FRAME + 1).to_bytes(4), id="over the limit"),
        pytest.param(b"\x04\0\0\0\0\0\0\x01", id="a stream that there is not"),
        pytest.param(b"\x01\0\x01\0\0\0\0\x01", id="no padding"),
    ],
)
def test_what_is_no_frame_is_told_and_never_waited_for(head: bytes) -> None:
    with pytest.raises(FeedError) as caught:
        FrameReader().feed(head + b"source.go")
    assert caught.value.fault is Fault.UNREADABLE
    assert str(caught.value) == "Docker sends the log in a form that is not known here"


def test_a_message_of_docker_itself_ends_the_log_and_is_not_quoted() -> None:
    with pytest.raises(FeedError) as caught:
        FrameReader().feed(frame(b"Error grabbing logs: secret\n", DOCKER))
    assert str(caught.value) == "Docker cannot read the log"


def test_a_frame_of_the_greatest_length_is_never_held() -> None:
    reader = FrameReader()
    reader.feed(b"\x01\0\0\0" + MAX_FRAME.to_bytes(4))
    for _ in range(MAX_FRAME // 65536):
        assert reader.feed(b"x" * 65536) == []
    assert repr(reader) == "<FrameReader 0 bytes of a frame to come>"
    assert reader.feed(frame(b"x\n") + frame(b"next\n")) == [b"next"]
