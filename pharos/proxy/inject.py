"""Changes a body on its way to an engine: the field that asks for usage, and the engine's own name of the model.

Forbidden here: decoding and encoding the body again. All other bytes stay as the client sent them.
"""

import json
from typing import NamedTuple

from pharos.core.engine.usage_fields import read_json
from pharos.proxy.parse import ChatRequest, find_model
from pharos.proxy.parse_scan import Member, scan_object
from pharos.proxy.table import Route

_ASK = b'"include_usage":true'
_OPTIONS = b'"stream_options":{' + _ASK + b"}"


Pieces = tuple[bytes | memoryview, ...]
"""A body in parts that are sent one after the other."""


class _Edit(NamedTuple):
    """Other bytes in place of some of the body's."""

    start: int
    end: int
    text: bytes


def inject_usage(body: bytes, parsed: ChatRequest) -> Pieces:
    """Return the body with `stream_options.include_usage` true, beside the client's other stream options.

    The parts around what is put in are views of the body, not copies: it may be large. `parsed` is what `parse_body`
    read of this body; without `wants_injection` the body is returned as it is.
    """
    return _edited(body, _usage(body, parsed)) if parsed.wants_injection else (body,)


def with_model(body: bytes, parsed: ChatRequest, route: Route, served: str) -> Pieces:
    """Return the body with another name of the model, as views around it. `served`: as the engine lists it."""
    return _edited(body, _model(body, parsed, route, served))


def rewritten(body: bytes, parsed: ChatRequest, route: Route, served: str, *, asks: bool) -> Pieces:
    """Return the body with another name of the model; `asks`: as `inject_usage` returns it, too."""
    model = _model(body, parsed, route, served)
    if not asks or not parsed.wants_injection:
        return _edited(body, model)
    return _edited(body, *sorted((model, _usage(body, parsed))))


def _model(body: bytes, parsed: ChatRequest, route: Route, served: str) -> _Edit:
    span = parsed.model_span if parsed.model_span is not None else find_model(body, route)
    # In a form the text stands as it is; in JSON everything beyond ASCII is escaped, unpaired surrogates included.
    text = served.encode("utf-8", "replace") if route.body == "multipart" else json.dumps(served).encode()
    return _Edit(*span, text)


def _usage(body: bytes, parsed: ChatRequest) -> _Edit:
    options = _member(body, 0, "stream_options") if parsed.has_stream_options else None
    if options is None:
        return _add(body.rindex(b"}"), _OPTIONS, alone=False)
    if body[options.start : options.start + 1] != b"{":  # null
        return _Edit(options.start, options.end, b"{" + _ASK + b"}")
    include = _member(body, options.start, "include_usage")
    if include is not None:
        return _Edit(include.start, include.end, b"true")
    alone = not read_json(body[options.start : options.end])
    return _add(options.end - 1, _ASK, alone=alone)


def _member(body: bytes, at: int, name: str) -> Member | None:
    """The last member of that name, which is the one engines take."""
    return next((member for member in reversed(scan_object(body, at)) if member.name == name), None)


def _add(at: int, text: bytes, *, alone: bool) -> _Edit:
    return _Edit(at, at, text if alone else b"," + text)


def _edited(body: bytes, *edits: _Edit) -> Pieces:
    """The body with edits made, which are in order."""
    view = memoryview(body)
    pieces: list[bytes | memoryview] = []
    at = 0
    for edit in edits:
        pieces += (view[at : edit.start], edit.text)
        at = edit.end
    pieces.append(view[at:])
    return tuple(pieces)
