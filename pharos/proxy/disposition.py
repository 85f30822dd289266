"""The name of a part of a form, by its headers (RFC 7578, 6266).

Readers differ in quotes, escapes, case and repeated parameters. So only the plain form that clients write is taken, and
what some reader could take for the field `model` and another not is refused. Forbidden here: guessing.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from pharos.proxy.errors import ClientFault

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*)\Z")
"""A line; one that is folded does not begin with a name."""
_KIND: Final = re.compile(rb"form-data[ \t]*(;|\Z)", re.IGNORECASE)
_PARAMETER: Final = re.compile(
    rb"[ \t]*(" + _TOKEN + rb')=(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|(' + _TOKEN + rb"))[ \t]*(?:;[ \t]*|\Z)", re.DOTALL
)
_LOOSE: Final = re.compile(rb"name[ \t]*=[ \t]*[\"']?[ \t]*([^\"';]*)", re.IGNORECASE)
"""What looks like a name to a reader that does not tell `filename` from it."""
_PLAIN: Final = frozenset({b"7bit", b"8bit", b"binary"})
_MODEL: Final = b"model"


def part_name(head: bytes) -> str:
    """The name of a part; empty where it has none. Raises ClientFault (400) for what is not plain.

    `head`: from the line break behind the boundary up to the one that ends the last header.
    """
    told: bytes | None = None
    for line in head[2:].split(b"\r\n")[:-1]:
        found = _HEADER.match(line)
        if found is None:
            raise broken("a part has a header that is none, or a folded one")
        name = found[1].lower()
        if name == b"content-disposition":
            if told is not None:
                raise _unclear()
            told = found[2].rstrip(b" \t")
        elif name == b"content-transfer-encoding" and found[2].strip().lower() not in _PLAIN:
            raise broken("a part has a coded body")
    if told is None:
        return ""
    name = _name(told)
    if (name == _MODEL) is not _may_be_model(told, name):
        raise _unclear()
    return name.decode("utf-8", "replace")


def broken(why: str) -> ClientFault:
    """What is wrong with a form."""
    return ClientFault(400, "invalid_form", f"The form in the request body cannot be read: {why}.")


def _unclear() -> ClientFault:
    return broken("a part does not tell its name once and plainly")


def _name(told: bytes) -> bytes:
    """The value of `name`, in a list of parameters that has each once."""
    kind = _KIND.match(told)
    if kind is None:
        raise broken("a part has a Content-Disposition that is no plain form-data")
    seen: set[bytes] = set()
    name, at = b"", kind.end()
    while at < len(told):
        found = _PARAMETER.match(told, at)
        if found is None:
            raise _unclear()
        key, low = found[1], found[1].lower()
        if low in seen or low.startswith(b"name*") or (low == b"name" and key != low):
            raise _unclear()
        seen.add(low)
        if low == b"name":
            name = found[3] if found[2] is None else found[2]
        at = found.end()
    if name == _MODEL and any(key.startswith(b"filename") for key in seen):
        raise _unclear()  # to some readers it is a file then, and no field
    return name


def _may_be_model(told: bytes, name: bytes) -> bool:
    """Whether some reader may take the part for the model; for one that is it, whether all do."""
    low = told.lower()
    if _MODEL not in low and b"%" not in name and b"=?" not in name and b"\\" not in name:
        return False
    if name != _MODEL and name.lower() == _MODEL:
        return False  # another case: said so by who reads the form
    if name != _MODEL and _resembles(name):
        return True
    if b'\\"' in told or b"\\\\" in told:  # not all readers know escapes: where the text ends is not sure
        return name != _MODEL
    split = _split(told)
    if name == _MODEL:
        return all(value == _MODEL for value in split)
    loose = _LOOSE.search(told)
    return _MODEL in split or (loose is not None and loose[1].strip().lower() == _MODEL)


def _resembles(name: bytes) -> bool:
    """Whether a name is the model's but for what some readers undo: escapes, codings, lists, blanks, case."""
    if b"\\" in name or b"=?" in name:
        return True
    bare = unquote_to_bytes(name).partition(b"[")[0].strip(b"\"' \t\x00").lower()
    return bare == _MODEL and name.lower() != _MODEL


def _split(told: bytes) -> list[bytes]:
    """The names that a reader finds which knows of no quotes."""
    found = (part.partition(b"=") for part in told.split(b";")[1:])
    values = [value.strip() for key, _, value in found if key.strip().lower() == b"name"]
    return [value[1:-1] if len(value) > 1 and value[:1] == value[-1:] == b'"' else value for value in values]
