"""Finds the model in a form with a file (`multipart/form-data`), wherever it stands. The form goes on as it came.

Only the plain form that clients write is taken: anything that two readers could see differently is refused, since the
engine must run the model that was checked here. Forbidden here: copying a file; changing a byte.
"""

import re
from typing import Final, NamedTuple

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
_BOUNDARY: Final = re.compile(r";[ \t]*boundary=(?:\"([^\"\\\r\n]+)\"|([^\s;\",]+))[ \t]*(?:;|$)", re.IGNORECASE)
_DISPOSITION: Final = re.compile(rb"content-disposition:[ \t]*form-data[ \t]*(;[^\r\n]*)", re.IGNORECASE)
_NAME: Final = re.compile(rb';[ \t]*name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)
_NAMES: Final = re.compile(rb";[ \t]*name[ \t]*=", re.IGNORECASE)
_OTHER_NAME: Final = re.compile(rb";[ \t]*name(?:\*|[ \t]+=)", re.IGNORECASE)
_CODED: Final = re.compile(
    rb"content-transfer-encoding[ \t]*+:[ \t]*+(?!(?:7bit|8bit|binary)[ \t]*\r\n)", re.IGNORECASE
)
_QUOTED: Final = re.compile(rb'="[^"\r\n]*"')


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
        raise _broken("its Content-Type has no boundary, or more than one")
    boundary = str(found[0][0] or found[0][1])
    if len(boundary) > _LONGEST_BOUNDARY or not boundary.isascii():
        raise _broken("its boundary is too long or no ASCII")
    return b"--" + boundary.encode()


def _fields(body: bytes, line: bytes) -> list[Field]:
    """The parts in order. Text before the first one, which no client sends, is refused."""
    if not body.startswith(line):
        raise _broken("it does not begin with its boundary")
    fields: list[Field] = []
    at = len(line)
    while body[at : at + 2] != b"--":
        if body[at : at + 2] != b"\r\n":
            raise _broken(f"a boundary is followed by other bytes, at byte {at}")
        if len(fields) >= MOST_PARTS:
            raise _broken(f"it has more than {MOST_PARTS} parts")
        head_end = body.find(b"\r\n\r\n", at, at + LONGEST_HEAD)
        if head_end < 0:
            raise _broken(f"a part has no end of its headers, at byte {at}")
        start = head_end + 4
        end = _find(body, b"\r\n" + line, start)
        if end < 0:
            raise _broken("its last boundary is missing")
        fields.append(Field(_name(body[at : head_end + 2]), start, end))
        at = end + 2 + len(line)
    return fields


def _find(body: bytes, wanted: bytes, at: int) -> int:
    while at < len(body):
        found = body.find(wanted, at, at + WINDOW + len(wanted) - 1)
        if found >= 0:
            return found
        at += WINDOW
    return -1


def _name(head: bytes) -> str:
    """The name of a part by its headers; empty where it has none.

    Readers differ in folded lines, other codings of names, escaped quotes and coded bodies; clients write none of it.
    """
    if b"\r\n " in head or b"\r\n\t" in head or _CODED.search(head) is not None:
        raise _broken("a part has a folded header or a coded body")
    told = _DISPOSITION.findall(head)
    if not told:
        if b"content-disposition" in head.lower():
            raise _broken("a part has a Content-Disposition that is no plain form-data")
        return ""
    if len(told) > 1 or b'\\"' in told[0]:
        raise _broken("a part does not tell its name once and plainly")
    said = _QUOTED.sub(b"=x", told[0])
    if _OTHER_NAME.search(said) is not None or len(_NAMES.findall(said)) > 1:
        raise _broken("a part does not tell its name once and plainly")
    found = _NAME.search(told[0])
    return "" if found is None else bytes(found[1] or found[2] or b"").decode("utf-8", "replace")


def _broken(why: str) -> ClientFault:
    return ClientFault(400, "invalid_form", f"The form in the request body cannot be read: {why}.")
