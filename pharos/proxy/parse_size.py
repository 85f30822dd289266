"""Counts the bytes of a prompt, without images and other files in it: a megabyte of those is not a long prompt.

Forbidden here: decoding; one long step in C (a value may have 30 MB).
"""

import re
from typing import Final

from msgspec import Raw, Struct

PIECE: Final = 64 * 1024
"""Bytes of a long value that are copied at once to be searched."""
_SPACE: Final = r"[ \t\r\n]{0,4}"


class Blob(Struct, frozen=True):
    """How a protocol writes a file into a request: it goes on until `ends`, which base64 does not have."""

    first: bytes
    """What is looked for before all else: one byte is found far faster than eight."""
    hint: bytes
    """What surely stands where one begins."""
    begins: re.Pattern[bytes]
    longest: int
    """Bytes that `begins` matches, and looks at, at most."""
    ends: bytes


BASE64: Final = Blob(b";", b";base64,", re.compile(rb";base64,"), len(b";base64,"), b'"')
"""OpenAI: a data URL."""
SOURCE: Final = Blob(
    b'"data"', b'"data"', re.compile(rf'"data"{_SPACE}:{_SPACE}"(?=[A-Za-z0-9+/]{{64}})'.encode()), 80, b'"'
)
"""Anthropic: `"data"` of a source."""
IMAGES: Final = Blob(b'"images"', b'"images"', re.compile(rf'"images"{_SPACE}:{_SPACE}\['.encode()), 18, b"]")
"""Ollama: a list of its own beside the text."""


def text_bytes(raw: Raw, blob: Blob) -> int:
    """Count the bytes of a value without files."""
    view = memoryview(raw)
    count = size = len(view)
    at, is_inside = 0, False
    while at < size:
        piece = bytes(view[at : at + PIECE])
        left_out, done, is_inside = _left_out(piece, blob, is_inside=is_inside, is_last=at + len(piece) == size)
        count -= left_out
        at += done
    return count


def _left_out(piece: bytes, blob: Blob, *, is_inside: bool, is_last: bool) -> tuple[int, int, bool]:
    """Bytes of files in a piece of a value, how far it was read, and whether a file goes on behind it."""
    count = at = 0
    while True:
        if is_inside:
            end = piece.find(blob.ends, at)
            if end < 0:
                return count + len(piece) - at, len(piece), True
            count += end - at
            at, is_inside = end, False
        hint = piece.find(blob.hint, at) if piece.find(blob.first, at) >= 0 else -1
        found = blob.begins.search(piece, hint) if hint >= 0 else None
        if found is None:
            return count, len(piece) if is_last else max(at, len(piece) - blob.longest + 1), False
        at, is_inside = found.end(), True
