"""What instances say as bytes: recorded samples are understood for ever, and nothing that is none passes for one."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.peer import wire

SAMPLES = Path(__file__).parents[2] / "testdata" / "peer"
PROTOCOLS = sorted(SAMPLES.glob("proto-*"))


@pytest.mark.parametrize("folder", PROTOCOLS, ids=lambda folder: folder.name)
def test_recorded_samples_of_each_protocol_are_understood_for_ever(folder: Path) -> None:
    """A delta, an answer and a snapshot as an instance of that protocol said them."""
    told = json.loads((folder / "says.json").read_text())
    delta = wire.decode_delta((folder / "delta.bin").read_bytes())
    assert [delta.origin, delta.seq, delta.leaving, delta.fingerprint] == told["delta"]
    assert {name: shown(wire.decode_entries(raw)) for name, raw in wire.parts_of(delta)} == told["sections"]
    answer = wire.decode_answer((folder / "answer.bin").read_bytes())
    assert [answer.origin, answer.fingerprint] == told["answer"]
    blocks = wire.Blocks()
    frames = [*blocks.feed((folder / "snapshot.bin").read_bytes())]
    assert blocks.is_whole
    assert blocks.head is not None
    assert [blocks.head.origin, blocks.head.at] == told["head"]
    assert {frame.section: shown(wire.decode_entries(frame.entries)) for frame in frames} == told["frames"]


def test_there_are_samples_of_the_protocol_that_is_spoken() -> None:
    assert (SAMPLES / f"proto-{wire.PROTO}").is_dir()


def shown(value: object) -> object:
    """Entries as JSON has them; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return [shown(one) for one in value] if isinstance(value, list) else value


def delta(**fields: object) -> bytes:
    told = {"proto": 1, "origin": "a", "seq": 1, "sections": [], **fields}
    return msgspec.msgpack.encode(told)


def test_fields_and_sections_of_later_releases_are_passed_over() -> None:
    body = delta(later={"x": [1, 2]}, sections=[["cells", [[1]]], ["later", {"a": 1}]])
    read = wire.decode_delta(body)
    assert [name for name, _ in wire.parts_of(read)] == ["cells", "later"]
    assert wire.decode_entries(wire.parts_of(read)[0][1]) == [[1]]
    with pytest.raises(wire.WireError):
        wire.decode_entries(wire.parts_of(read)[1][1])


def test_a_delta_of_another_protocol_is_told_from_garbage() -> None:
    with pytest.raises(wire.ProtocolError) as told:
        wire.decode_delta(msgspec.msgpack.encode({"proto": 7, "everything": "else"}))
    assert told.value.theirs == 7
    with pytest.raises(wire.ForeignError):
        wire.decode_delta(b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": 7}, {"origin": ""}, {"origin": "x" * 65}, {"origin": "a\nb"}, {"seq": "1"}, {"fingerprint": [1]},
        {"leaving": 2},
    ],
)  # fmt: skip
def test_a_delta_with_impossible_fields_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_delta(delta(**fields))


@pytest.mark.parametrize("sections", [1, [1], [["a"]], [["a", [], 3]], {"a": []}])
def test_sections_that_are_none_are_refused(sections: object) -> None:
    with pytest.raises(wire.WireError):
        wire.parts_of(wire.decode_delta(delta(sections=sections)))


def test_lists_within_lists_without_end_are_refused_and_do_not_end_the_process() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(wire.WireError):
        wire.decode_entries(msgspec.Raw(deep))
    with pytest.raises(wire.WireError):
        wire.decode_delta(deep)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_a_wire_error(data: bytes) -> None:
    for read in (wire.decode_delta, wire.decode_answer, lambda some: [*wire.Blocks().feed(wire.MAGIC + some)]):
        try:
            read(data)
        except wire.WireError:
            continue


def snapshot(*sections: str) -> bytes:
    frames = [wire.Frame(section=name, entries=wire.encode_entries([name, 1])) for name in sections]
    blocks = [wire.Head(proto=1, origin="a", at=5.0), *frames, wire.Frame(section="", count=len(frames))]
    return wire.MAGIC + b"".join(map(wire.block, blocks))


@given(st.lists(st.integers(1, 300), max_size=20))
def test_a_snapshot_comes_out_the_same_however_its_bytes_are_cut(cuts: list[int]) -> None:
    data, blocks, frames = snapshot("x", "y", "z"), wire.Blocks(), []
    at = 0
    for cut in [*cuts, len(data)]:
        frames += [frame.section for frame in blocks.feed(data[at : at + cut])]
        at += cut
    assert (frames, blocks.is_whole) == (["x", "y", "z"], True)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_noticed(place: int, change: int) -> None:
    data = bytearray(snapshot("x", "y", "z"))
    data[place % len(data)] ^= change
    blocks = wire.Blocks()
    with pytest.raises(wire.WireError):  # noqa: PT012 - an end that does not come is noticed by who reads
        [*blocks.feed(bytes(data))]
        if not blocks.is_whole:
            raise wire.WireError("ends in the middle")


def test_frames_before_a_damaged_block_are_given_first() -> None:
    data = bytearray(snapshot("x", "y", "z"))
    data[-40] ^= 1
    frames = wire.Blocks().feed(bytes(data))
    assert [next(frames).section, next(frames).section] == ["x", "y"]
    with pytest.raises(wire.WireError, match="damaged"):
        all(frames)


def test_a_lost_frame_and_bytes_after_the_end_are_noticed() -> None:
    head, frame = wire.Head(proto=1, origin="a", at=5.0), wire.Frame(section="x")
    short = wire.MAGIC + b"".join(map(wire.block, [head, frame, wire.Frame(section="", count=2)]))
    with pytest.raises(wire.WireError, match="lost frames"):
        [*wire.Blocks().feed(short)]
    with pytest.raises(wire.WireError, match="after its end"):
        [*wire.Blocks().feed(snapshot("x") + b"y")]
    with pytest.raises(wire.WireError, match="too large"):
        [*wire.Blocks().feed(wire.MAGIC + b"\xff\xff\xff\xff0000")]
    with pytest.raises(wire.ForeignError):
        [*wire.Blocks().feed(wire.MAGIC + wire.block(frame))]
    with pytest.raises(wire.ProtocolError):
        [*wire.Blocks().feed(wire.MAGIC + wire.block(wire.Head(proto=2, origin="a", at=5.0)))]
    with pytest.raises(wire.WireError, match="no frame"):
        [*wire.Blocks().feed(wire.MAGIC + wire.block(head) + wire.block(wire.Answer(proto=1, origin="a")))]
