"""Finds the usage of a reply that is too large to keep, from its first and its last bytes.

Forbidden here: which fields mean what (`usage_fields.py`); taking a member of which it is not proved where it stands.

Goal: usage of embeddings, long texts and the last event of a stream of `/v1/responses`, which repeats the whole reply.
Plan: from the start, members are read until the bytes run out. From the end, a walk from a known name must reach the
closing brace of the text, which proves that it began at the top. One level further down only the object counts that the
start broke off in, when it is the `response` of an event.
"""

import json
import re

from pharos.core.engine.usage_fields import OMITTED, PLAIN, Dialect, Usage, usage_of

Members = dict[str, object]

_KEY = re.compile(r'(?<!\\)"(?:usage|timings|done|total_duration)"')
_BLANKS = frozenset(" \t\r\n")
_TRIES = 8
"""Places in a tail from which a walk to the end is tried: nested objects may hold the same names."""
_NESTED = "response"
_READ = json.JSONDecoder()


def parse_usage_ends(
    head: bytes, tail: bytes, dialect: Dialect = PLAIN, *, counts_cached: bool = False
) -> Usage | None:
    """Read the usage of a reply or of one record, as `usage_of` does; `None` when neither end holds it.

    Engines put usage behind the choices or ahead of the data; what tells the protocol stands at either end.
    """
    return usage_of(read_ends(head, tail), dialect, counts_cached=counts_cached)


def read_ends(head: bytes, tail: bytes) -> Members:
    """Read what both ends of one record prove of its members. A value that is not whole is `None`."""
    members, broken = _from_start(head.decode("latin-1"))
    last, nested = _from_end(tail.decode("latin-1"))
    members |= last
    if broken is not None:
        members[_NESTED] = broken | nested
    for name in OMITTED:
        members.setdefault(name, None)  # what was not read is not left out
    return members


def _from_start(text: str) -> tuple[Members, Members | None]:
    """Members of the object that begins the text, up to where the text breaks off, the last without its value.

    Also those of its `response`, when the text breaks off in there.
    """
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return {}, None
    members, at, complete = _members(text, _skip(text, at + 1))
    if complete or not members or next(reversed(members)) != _NESTED or text[at : at + 1] != "{":
        return members, None
    return members, _members(text, _skip(text, at + 1))[0]


def _from_end(text: str) -> tuple[Members, Members]:
    """Members of the object that ends the text, and those of an object in it that ends further ahead, as far as read.

    Only from the first name after which all is read to the closing brace.
    """
    for match in list(_KEY.finditer(text))[-_TRIES:]:
        members, at, complete = _members(text, match.start())
        if not complete:
            continue
        if at == len(text):
            return members, {}
        outer, at, complete = _after(text, at)
        if complete and at == len(text):
            return outer, members
    return {}, {}


def _after(text: str, at: int) -> tuple[Members, int, bool]:
    """What follows a nested object in the object around it."""
    if text[at] == "}":
        return {}, _skip(text, at + 1), True
    return _members(text, _skip(text, at + 1)) if text[at] == "," else ({}, at, False)


def _members(text: str, at: int) -> tuple[Members, int, bool]:
    """Read `"name": value, ...` from `at`; tells where it ended and whether that is behind the object's brace.

    A member without its whole value is `None`, and the place is where its value begins.
    """
    members: Members = {}
    try:
        while True:
            name, at = _READ.raw_decode(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                return members, at, False
            at = _skip(text, at + 1)
            members[str(name)] = None
            value, end = _READ.raw_decode(text, at)
            end = _skip(text, end)
            if end == len(text):  # a number may go on
                return members, at, False
            members[str(name)], at = value, end
            if text[at] != ",":
                return members, _skip(text, at + 1), text[at] == "}"
            at = _skip(text, at + 1)
    except (ValueError, RecursionError):
        return members, at, False


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at
