"""Finds the model in a form with a file (`multipart/form-data`), wherever it stands. The form goes on as it came.

Only the plain form that clients write is taken: anything that two readers could see differently is refused, since the
engine must run the model that was checked here. Forbidden here: copying a file; changing a byte.
"""

import re
from typing import Final, NamedTuple

from pharos.proxy.disposition import broken, part_name
from pharos.proxy.errors import ClientFault, invalid_value, missing_parameter
from pharos.proxy.parse import LONGEST_MODEL, ChatRequest, as_model_name
from pharos.proxy.table import Route

MOST_PARTS: Final = 200
LONGEST_HEAD: Final = 8 * 1024
"""Bytes of the headers of one part."""
WINDOW: Final = 256 * 1024
"""Bytes that are searched in one step (0.1 ms): a longer one would hold up all streams, from a thread too."""
_LONGEST_BOUNDARY: Final = 70
_LONGEST_FIELD: Final = 1024
"""Bytes of a field that is read; a file is only passed over."""
_LONGEST_END: Final = 64
"""Bytes of the last boundary's dashes and the blanks behind it."""
_BOUNDARY: Final = re.compile(r";[ \t]*boundary=(?:\"([^\"\\\r\n]+)\"|([^\s;\",]+))[ \t]*(?:;|$)", re.IGNORECASE)


class Field(NamedTuple):
    """One part of a form."""

    name: str
    start: int
    """Where its value begins, in bytes."""
    end: int


def parse_multipart(body: bytes, route: Route, content_type: str) -> ChatRequest:
    """Read of a form what routing needs. Raises ClientFault (400, 415). `model_span` has no quotes in it."""
    fields = _fields(body, _boundary(content_type))
    model: Field | None = None
    stream = False
    for field in fields:
        low = field.name.lower()
        if low == "model":
            if model is not None or field.name != "model":
                raise invalid_value(
                    "model", "The form names `model` more than once (or in another case): send it once."
                )
            model = field
        elif low == "stream" and field.end - field.start <= _LONGEST_FIELD:
            stream = body[field.start : field.end].strip().lower() in (b"true", b"1")
    if model is None:
        raise missing_parameter("model")
    return ChatRequest(
        model=_model(body, model),
        stream=stream and route.streams != "never",
        include_usage=None,
        has_stream_options=False,
        wants_injection=False,
        prompt_bytes=0,
        max_tokens=None,
        model_span=(model.start, model.end),
    )


def _model(body: bytes, field: Field) -> str:
    if field.end - field.start > LONGEST_MODEL:
        raise invalid_value("model", f"Model names have at most {LONGEST_MODEL} bytes: see GET /v1/models.")
    return as_model_name(body[field.start : field.end].decode("utf-8", "replace"))


def _boundary(content_type: str) -> bytes:
    """The line that parts a form, as its Content-Type tells."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise ClientFault(
            415, "unsupported_media_type", "This route takes a form: send `Content-Type: multipart/form-data`."
        )
    found = _BOUNDARY.findall(content_type)
    if len(found) != 1 or content_type.lower().count("boundary=") != 1:
        raise broken("its Content-Type has no boundary, or more than one")
    boundary = str(found[0][0] or found[0][1])
    if len(boundary) > _LONGEST_BOUNDARY or not boundary.isascii():
        raise broken("its boundary is too long or no ASCII")
    return b"--" + boundary.encode()


def _fields(body: bytes, line: bytes) -> list[Field]:
    """The parts in order. Text before the first one, which no client sends, is refused."""
    if not body.startswith(line):
        raise broken("it does not begin with its boundary")
    fields: list[Field] = []
    at = len(line)
    while body[at : at + 2] != b"--":
        if body[at : at + 2] != b"\r\n":
            raise broken(f"a boundary is followed by other bytes, at byte {at}")
        if len(fields) >= MOST_PARTS:
            raise broken(f"it has more than {MOST_PARTS} parts")
        head_end = body.find(b"\r\n\r\n", at, at + LONGEST_HEAD)
        if head_end < 0:
            raise broken(f"a part has no end of its headers, at byte {at}")
        start = head_end + 4
        end = _end(body, line, start)
        fields.append(Field(part_name(body[at : head_end + 2]), start, end))
        at = end + 2 + len(line)
    if len(body) - at > _LONGEST_END or body[at + 2 :].strip():
        raise broken("bytes follow its last boundary")
    return fields


def _end(body: bytes, line: bytes, start: int) -> int:
    """Where the value ends that begins there. Readers by line take a boundary behind any line break for one."""
    found = _find(body, b"\n" + line, start - 1, len(body))
    if found < 0:
        raise broken("its last boundary is missing")
    end = found - 1
    if end < start or body[end:found] != b"\r" or _find(body, b"\r" + line, start, end) >= 0:
        raise broken(f"a boundary is not behind a whole line break, at byte {found}")
    return end


def _find(body: bytes, wanted: bytes, at: int, until: int) -> int:
    while at < until:
        found = body.find(wanted, at, min(at + WINDOW + len(wanted) - 1, until))
        if found >= 0:
            return found
        at += WINDOW
    return -1
