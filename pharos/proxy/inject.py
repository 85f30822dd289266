"""Asks the engine for usage on behalf of Pharos: puts `include_usage` into a body that lacks it.

Forbidden here: decoding and encoding the body again. All other bytes stay as the client sent them.
"""

from pharos.core.engine.usage_fields import read_json
from pharos.proxy.parse import ChatRequest
from pharos.proxy.parse_scan import Member, scan_object

_ASK = b'"include_usage":true'
_OPTIONS = b'"stream_options":{' + _ASK + b"}"


Pieces = tuple[bytes | memoryview, ...]
"""A body in parts that are sent one after the other."""


def inject_usage(body: bytes, parsed: ChatRequest) -> Pieces:
    """Return the body with `stream_options.include_usage` true, beside the client's other stream options.

    The parts around what is put in are views of the body, not copies: it may be large. `parsed` is what `parse_chat`
    read of this body; without `wants_injection` the body is returned as it is.
    """
    if not parsed.wants_injection:
        return (body,)
    options = _member(body, 0, "stream_options") if parsed.has_stream_options else None
    if options is None:
        return _add(body, body.rindex(b"}"), _OPTIONS, alone=False)
    if body[options.start : options.start + 1] != b"{":  # null
        return _replace(body, options.start, options.end, b"{" + _ASK + b"}")
    include = _member(body, options.start, "include_usage")
    if include is not None:
        return _replace(body, include.start, include.end, b"true")
    alone = not read_json(body[options.start : options.end])
    return _add(body, options.end - 1, _ASK, alone=alone)


def _member(body: bytes, at: int, name: str) -> Member | None:
    """The last member of that name, which is the one engines take."""
    return next((member for member in reversed(scan_object(body, at)) if member.name == name), None)


def _add(body: bytes, at: int, text: bytes, *, alone: bool) -> Pieces:
    return _replace(body, at, at, text if alone else b"," + text)


def _replace(body: bytes, start: int, end: int, text: bytes) -> Pieces:
    view = memoryview(body)
    return view[:start], text, view[end:]
