"""Reads the prompt of a body that is large, or that the strict reader refuses: in small steps, one value at a time.

One long step in C would hold up all streams, in a worker thread too. Forbidden here: judging the body (`parse.py` has),
and telling more of it apart than `prompt.py` needs.
"""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from pharos.proxy.parse import MOST_MEMBERS, THREAD_BYTES
from pharos.proxy.parse_scan import Scan, ScanError
from pharos.proxy.parse_size import Blob, text_bytes
from pharos.proxy.prompt_parts import AsSent

LARGEST_BYTES: Final = 4 * 1024 * 1024
"""A larger value is not decoded: that would be one step of more than some 5 ms. Its bytes tell it apart as well, unless
a client writes it in two ways."""
MOST_MARKS: Final = 200_000
"""Quotes, commas and brackets of the largest value that is decoded: each may become an object in memory."""

_LISTS: Final = frozenset({"messages", "input"})


def members(body: bytes, names: Collection[str], blob: Blob) -> dict[str, Any] | None:
    """Members of the body with these names, decoded; of those that may be long lists, an iterator over their elements.

    `None` when the body is no JSON object. What cannot be decoded is `AsSent`. Equal to what a strict reader finds
    wherever that finds anything.
    """
    scan = Scan(body)
    try:
        found = scan.document(MOST_MEMBERS)
    except ScanError:
        return None
    if found is None:
        return None
    return {
        member.name: (
            _elements(scan, body, member.start, blob)
            if member.name in _LISTS and body[member.start : member.start + 1] == b"["
            else value(body[member.start : member.end], blob)
        )
        for member in found
        if member.name in names
    }


def _elements(scan: Scan, body: bytes, at: int, blob: Blob) -> Iterator[Any]:
    for start, end in scan.elements(at):
        yield value(body[start:end], blob)


def value(raw: bytes, blob: Blob) -> Any:  # noqa: ANN401 - any JSON value
    """Decode one value, also with unpaired surrogates; `AsSent` when that cannot be done, or would take long."""
    if len(raw) > THREAD_BYTES and (len(raw) > LARGEST_BYTES or _marks(raw) > MOST_MARKS):
        return _as_sent(raw, blob)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return _as_sent(raw, blob)


def _marks(raw: bytes) -> int:
    return sum(map(raw.count, (b'"', b",", b"[", b"{")))


def _as_sent(raw: bytes, blob: Blob) -> AsSent:
    return AsSent(raw, text_bytes(msgspec.Raw(raw), blob))
