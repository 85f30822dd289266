"""Takes a recorded reply apart into the JSON records that it is made of, whatever its protocol, and reads its usage.

Sans-IO, and slow on purpose: this is the other way to read what the taps read while it passes.
"""

from collections.abc import Iterator

import msgspec

from pharos.core.engine.usage_fields import PLAIN, Dialect, Usage, merge, read_json, usage_of

DONE = "[DONE]"
"""Stands for the end of an OpenAI stream, which is no JSON."""
LAST_TYPES = ("message_stop", "response.completed", "response.incomplete")
"""Types of the event that ends a stream."""


class Records(msgspec.Struct, frozen=True):
    """What one reply holds."""

    records: tuple[object, ...]
    is_whole: bool
    """The reply came to the end that its protocol gives it."""
    has_error: bool = False


def split(body: bytes, content_type: str) -> Records:
    """Take a reply apart by its content type. What is no JSON is no record; a reply without any is not whole."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return _joined(_sse_records(body))
    if kind == "application/x-ndjson":
        return _joined([record for line in body.splitlines() if (record := read_json(line)) is not None])
    record = read_json(body)
    if record is None:
        return Records((), is_whole=False)
    return Records((record,), is_whole=True, has_error=_is_error(record))


def usage_in(body: bytes, content_type: str, dialect: Dialect = PLAIN, *, counts_cached: bool = False) -> Usage | None:
    """Read what a reply says about its cost; `None` when it says nothing, was cut or reports an error."""
    reply = split(body, content_type)
    if not reply.is_whole or reply.has_error:
        return None
    usage: Usage | None = None
    for record in reply.records:
        found = usage_of(record, dialect, counts_cached=counts_cached)
        if found is not None:
            usage = merge(usage, found)
    return usage


def _sse_records(body: bytes) -> list[object]:
    return [record for data in _data_lines(body) if (record := _sse_record(data)) is not None]


def _data_lines(body: bytes) -> Iterator[bytes]:
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            yield line[len(b"data:") :].strip()


def _sse_record(data: bytes) -> object:
    return DONE if data == DONE.encode() else read_json(data)


def _joined(records: list[object]) -> Records:
    return Records(
        tuple(records), is_whole=any(map(_ends, records)), has_error=any(_is_error(record) for record in records)
    )


def _ends(record: object) -> bool:
    if isinstance(record, dict):
        return record.get("done") is True or record.get("type") in LAST_TYPES
    return record == DONE


def _is_error(record: object) -> bool:
    return isinstance(record, dict) and record.get("error") not in (None, False, "")
