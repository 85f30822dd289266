"""What instances say to each other, as bytes: MessagePack, with names of fields, so that newer ones may say more.

# ops: encode, decode, block, Blocks · goal: a tick's news are encoded once for all peers
# plan: a delta holds sections whose entries stay raw until their owner wants them; a snapshot is blocks with checksums
# warning: recorded samples under testdata/peer are decoded for ever; a breaking change counts `PROTO` up

Forbidden here: sockets, files, and knowing what a section means. `docs/adr/0019-peer-protocol.md` has the whole.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

PROTO: Final = 1
"""Counted up when an older instance would misunderstand what is said, and never for something more."""
MOST_DELTA: Final = 4 * 1024**2
"""Bytes of the largest delta that is taken; one that is sent has a quarter of it at most."""
MOST_BLOCK: Final = 4 * 1024**2
"""Bytes of the largest block of a snapshot."""
LONGEST_NAME: Final = 64
"""Characters of an origin and of a section's name."""
MAGIC: Final = b"PHAROS STATE\n"
_BLOCK: Final = struct.Struct(">II")

Entries = list[Any]


class WireError(Exception):
    """What came is not what an instance says; the text says why, without any of it."""


class ForeignError(WireError):
    """Something else altogether."""


class ProtocolError(WireError):
    """It is said in another version of the protocol."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"speaks protocol {theirs}, and this is {PROTO}")
        self.theirs = theirs


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance tells its peers, several times a second."""

    proto: int
    origin: str
    """Who tells: drawn when its process began."""
    seq: int
    """Counts up with each delta to anybody: what replaces older news is told apart from it."""
    fingerprint: dict[str, int] = {}
    """Part of the configuration -> hash of it."""
    leaving: bool = False
    """It ends now; what it says of the moment is void from here on."""
    sections: msgspec.Raw = msgspec.Raw(b"\x90")
    """Pairs of a section's name and its entries; a name may come several times."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance answers to a delta that it took."""

    proto: int
    origin: str
    fingerprint: dict[str, int] = {}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first block of a snapshot."""

    proto: int
    origin: str
    at: float
    """When it was made, seconds since 1970."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries of one section. The last block of a snapshot has no name, and the number of frames as `count`."""

    section: str
    entries: msgspec.Raw = msgspec.Raw(b"\x90")
    count: int = 0


class _Proto(msgspec.Struct, frozen=True):
    proto: int


Part = tuple[str, msgspec.Raw]
"""A section's name and its entries."""

_encode = msgspec.msgpack.Encoder().encode
_delta = msgspec.msgpack.Decoder(Delta)
_proto = msgspec.msgpack.Decoder(_Proto)
_answer = msgspec.msgpack.Decoder(Answer)
_head = msgspec.msgpack.Decoder(Head)
_frame = msgspec.msgpack.Decoder(Frame)
_parts = msgspec.msgpack.Decoder(list[Part])
_entries = msgspec.msgpack.Decoder(list[Any])
_FAULTS = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)


def encode_entries(entries: Entries) -> msgspec.Raw:
    """Entries as they stand in a delta or a frame. Raises `TypeError` and `ValueError` for what has no such form."""
    return msgspec.Raw(_encode(entries))


def decode_entries(raw: msgspec.Raw) -> Entries:
    """The entries of a section. Raises `WireError`."""
    try:
        return _entries.decode(raw)
    except _FAULTS:
        raise WireError("has a section that is no list of entries") from None


def encode_delta(delta: Delta, parts: list[Part]) -> bytes:
    """A delta with these sections."""
    return _encode(msgspec.structs.replace(delta, sections=msgspec.Raw(_encode(parts))))


def decode_delta(data: bytes) -> Delta:
    """A delta of this protocol; its sections may still be anything. Raises `WireError`."""
    try:
        theirs = _proto.decode(data).proto
    except _FAULTS:
        raise ForeignError("is no delta") from None
    if theirs != PROTO:
        raise ProtocolError(theirs)
    try:
        delta = _delta.decode(data)
    except _FAULTS:
        raise WireError("is a delta with other fields than protocol 1 has") from None
    check_name(delta.origin)
    return delta


def parts_of(delta: Delta) -> list[Part]:
    """Its sections. Raises `WireError`."""
    try:
        return _parts.decode(delta.sections)
    except _FAULTS:
        raise WireError("is a delta whose sections are none") from None


def encode_answer(answer: Answer) -> bytes:
    """An answer as bytes."""
    return _encode(answer)


def decode_answer(data: bytes) -> Answer:
    """An answer. Raises `WireError`."""
    try:
        answer = _answer.decode(data)
    except _FAULTS:
        raise ForeignError("answers as no instance of Pharos does") from None
    check_name(answer.origin)
    return answer


def check_name(name: str) -> None:
    """Refuse what cannot be an origin or a section. Raises `WireError`."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isascii() or not name.isprintable():
        raise WireError("bears a name that cannot be one")


# --- snapshots


def block(payload: msgspec.Struct) -> bytes:
    """A block of a snapshot: its length, its checksum, its content."""
    data = _encode(payload)
    return _BLOCK.pack(len(data), zlib.crc32(data)) + data


class Blocks:
    """Reads a snapshot as its bytes come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_begun = False
        self.head: Head | None = None
        self.frames = 0
        """Frames so far."""
        self.is_whole = False
        """Whether its end has come."""

    def __repr__(self) -> str:
        return f"<Blocks {self.frames} frames{', whole' if self.is_whole else ''}>"

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes, and give the frames that are complete with them. Raises `WireError`, after the good frames."""
        self._buffer += data
        if not self._is_begun:
            if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
                raise ForeignError("is not a state of Pharos")
            if len(self._buffer) < len(MAGIC):
                return
            del self._buffer[: len(MAGIC)]
            self._is_begun = True
        while (payload := self._next()) is not None:
            if self.head is None:
                self.head = _head_of(payload)
                continue
            try:
                frame = _frame.decode(payload)
            except _FAULTS:
                raise WireError("has a block that is no frame") from None
            if not frame.section:
                self.is_whole = frame.count == self.frames
                if not self.is_whole:
                    raise WireError("has lost frames")
                continue
            self.frames += 1
            yield frame

    def _next(self) -> bytes | None:
        """The content of the next block, when all of it is there."""
        buffer = self._buffer
        if self.is_whole:
            if buffer:
                raise WireError("goes on after its end")
            return None
        if len(buffer) < _BLOCK.size:
            return None
        size, told = _BLOCK.unpack_from(buffer)
        if size > MOST_BLOCK:
            raise WireError("has a block that is too large")
        end = _BLOCK.size + size
        if len(buffer) < end:
            return None
        payload = bytes(buffer[_BLOCK.size : end])
        del buffer[:end]
        if zlib.crc32(payload) != told:
            raise WireError("has a damaged block")
        return payload


def _head_of(payload: bytes) -> Head:
    try:
        theirs = _proto.decode(payload).proto
        if theirs != PROTO:
            raise ProtocolError(theirs)
        head = _head.decode(payload)
    except _FAULTS:
        raise ForeignError("does not begin as a state of Pharos does") from None
    check_name(head.origin)
    return head
