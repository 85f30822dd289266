"""Reads of a request's body what routing needs, and refuses what an engine could read differently than we do.

Forbidden here: decoding messages or arguments of tools; changing the body (`inject.py`); quoting the body in a message.
"""

import json
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from pharos.core.engine.usage_fields import read_json
from pharos.proxy.errors import ClientFault, invalid_json, invalid_value, missing_parameter
from pharos.proxy.parse_scan import Scan, ScanError, TooMuchError

THREAD_BYTES = 256 * 1024
"""A larger body is parsed in a worker thread, in small steps: one long step in C would hold up all streams there too,
and a name of 30 MB would be decoded to four times its size."""
THREAD_MESSAGES = 2000
"""More messages are parsed in a worker thread."""
THREAD_BRACKETS = 4000
"""A body with more of them is parsed in a worker thread when only the tolerant scanner can read it (1 µs each)."""
MOST_MEMBERS = 500
"""Members of the top-level object; no protocol has a tenth of it, each costs memory."""
LONGEST_MODEL = 1024
"""Bytes of the longest model name, as it stands in the body: names are kept in records and written to logs."""

_LEAST_MESSAGE = len(b'{"role":"","content":""},')
_SMALL = 4096
"""Bytes of the largest value that is decoded; the fields read here have no larger ones that mean anything. And of the
largest body of which a second reader tells what is wrong with it, in words."""
_PIECE = 64 * 1024
"""Bytes of a long value that are copied at once to be searched."""
_UNCOUNTED = 64 * 1024
"""Bytes of a body that cannot hold so many members that counting them while they are read would matter."""
_QUICK = 2500
"""Bytes of a body that is tried the quick way: too few for `MOST_MEMBERS`, few enough to be looked through often."""
_TRUE = Raw(b"true")
_ABSENT = Raw()
_PROMPT_FIELDS = ("messages", "prompt", "input", "tools")
_IMAGE = b";base64,"
_POSITION = " at byte "


class ChatRequest(msgspec.Struct, frozen=True, gc=False):
    """What routing and the tap need to know of a request."""

    model: str
    stream: bool
    """The body says `"stream": true`; anything else is no stream, as engines judge it."""
    include_usage: bool | None
    """The client's own `stream_options.include_usage`; `None`: it does not say."""
    has_stream_options: bool
    """The body has `stream_options`, whatever they hold."""
    wants_injection: bool
    """Usage will only come when Pharos asks for it, and the body has a place for that."""
    prompt_bytes: int
    """Bytes of messages, prompt, input and tools, images left out."""
    max_tokens: int | None
    """The client's limit of the completion."""


class SlowBodyError(Exception):
    """Reading this body would hold up other streams noticeably: call `parse_chat` again in a worker thread."""


def needs_thread(body: bytes) -> bool:
    """Whether parsing the body would hold up other streams noticeably; `parse_chat` finds the rare rest by itself."""
    if len(body) > THREAD_BYTES:
        return True
    return len(body) > THREAD_MESSAGES * _LEAST_MESSAGE and body.count(b'"role"') > THREAD_MESSAGES


def parse_chat(body: bytes, path: str, *, in_loop: bool = False) -> ChatRequest:
    """Read a chat, completion or embedding request. Raises `ClientFault` (400), and `SlowBodyError` if `in_loop`."""
    if len(body) <= _QUICK:
        quick = _quickly(body, path)
        if quick is not None:
            return quick
    names, values = _members(body, in_loop=in_loop)
    if [*map(str.lower, names)].count("model") > 1:
        raise _ambiguous_model()
    fields = dict(zip(names, values, strict=True))  # of equal names the last one counts, as in engines
    model = _model(fields.get("model"))
    if path.endswith("/chat/completions"):
        _check_messages(fields.get("messages"))
    stream = fields.get("stream") == _TRUE
    options = _small(fields.get("stream_options"))
    include = options.get("include_usage") if isinstance(options, dict) else None
    # Adding to the options of a large body would mean to look for them again, on the loop.
    editable = options is None or (isinstance(options, dict) and len(body) <= THREAD_BYTES)
    asks = stream and include is not True and editable
    if asks and len(fields) != len(names):
        asks = names.count("stream") == 1 and names.count("stream_options") <= 1
    prompt_bytes = 0
    for name in _PROMPT_FIELDS:
        if name in fields:
            prompt_bytes += _text_bytes(fields[name])
    return ChatRequest(
        model=model,
        stream=stream,
        include_usage=include if isinstance(include, bool) else None,
        has_stream_options="stream_options" in fields,
        wants_injection=asks,
        prompt_bytes=prompt_bytes,
        max_tokens=_limit(_small(fields.get("max_completion_tokens")), _small(fields.get("max_tokens"))),
    )


class _Plain(msgspec.Struct, gc=False):
    """What is read of a small plain body."""

    model: str
    messages: Raw = _ABSENT
    prompt: Raw = _ABSENT
    input: Raw = _ABSENT
    tools: Raw = _ABSENT
    stream: bool = False
    stream_options: Raw = _ABSENT
    max_tokens: object = None
    max_completion_tokens: object = None


_PLAIN = msgspec.json.Decoder(_Plain)


def _quickly(body: bytes, path: str) -> ChatRequest | None:
    """Read a small body in one step; `None` for any that is not plain or has a fault, which the long way then finds.

    Without a backslash a name is its own bytes, so that counting proves that none comes twice, in any case.
    """
    if b"\\" in body or body.lower().count(b'"model"') != 1 or body.count(b'"stream') > 1:
        return None
    try:
        plain = _PLAIN.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not plain.model or len(plain.model) > LONGEST_MODEL // 4 or plain.stream_options is not _ABSENT:
        return None
    if path.endswith("/chat/completions"):
        if plain.messages is _ABSENT:
            return None
        _check_messages(plain.messages)
    prompt_bytes = 0
    for raw in (plain.messages, plain.prompt, plain.input, plain.tools):
        if raw is not _ABSENT:
            prompt_bytes += _text_bytes(raw)
    return ChatRequest(
        model=plain.model,
        stream=plain.stream,
        include_usage=None,
        has_stream_options=False,
        wants_injection=plain.stream,
        prompt_bytes=prompt_bytes,
        max_tokens=_limit(plain.max_completion_tokens, plain.max_tokens),
    )


class _AnyName:
    """The type of names as `msgspec` knows it: none of its own, so that it asks `_Name` for each."""

    __slots__ = ()


class _Name(_AnyName, msgspec.Struct, frozen=True, eq=False, gc=False):
    """One occurrence of a name, made by `msgspec` without a call of Python.

    No two are equal, so that two members of one name are kept apart.
    """

    kind: type
    text: str


_Object = dict[_AnyName, Raw]
_OBJECT = msgspec.json.Decoder(_Object, dec_hook=_Name)


def _members(body: bytes, *, in_loop: bool) -> tuple[list[str], Iterable[Raw]]:
    """Names and undecoded values of the top-level object, in order, repeated names included."""
    if len(body) > THREAD_BYTES:
        return _tolerant(body)
    try:
        values = _OBJECT.decode(body) if len(body) <= _UNCOUNTED else _counted(body)
    except (msgspec.DecodeError, RecursionError):
        if in_loop and body.count(b"[") + body.count(b"{") > THREAD_BRACKETS:
            raise SlowBodyError from None
        return _tolerant(body)
    if len(values) > MOST_MEMBERS:
        raise _too_many()
    return [name.text for name in values], values.values()  # type: ignore[attr-defined]  # all are `_Name`


def _counted(body: bytes) -> _Object:
    """Read a body that could hold millions of members: stop at the first one too many, before they fill the memory."""
    count = 0

    def name(kind: type, text: str) -> _Name:
        nonlocal count
        count += 1
        if count > MOST_MEMBERS:
            raise _too_many()
        return _Name(kind, text)

    return msgspec.json.decode(body, type=_Object, dec_hook=name)


def _too_many() -> ClientFault:
    return invalid_json(f"The request body has more than {MOST_MEMBERS} fields: send those of the protocol only.")


def _tolerant(body: bytes) -> tuple[list[str], list[Raw]]:
    """Read a body that the strict reader refused: unpaired surrogates and deep nesting are for the engine to judge."""
    try:
        members = Scan(body).document(MOST_MEMBERS)
    except TooMuchError as error:
        if error.what == "fields":
            raise _too_many() from None
        raise invalid_json("The request body has too many lists and objects inside each other: nest less.") from None
    except ScanError as error:
        raise _no_json(body, error.at) from None
    if members is None:
        raise invalid_json("The request body is JSON, but no object: send `{...}`.")
    view = memoryview(body)
    return [member.name for member in members], [Raw(view[member.start : member.end]) for member in members]


def _no_json(body: bytes, at: int) -> ClientFault:
    if at == len(body) and not body.strip():
        return invalid_json("The request has no body: send a JSON object.")
    if len(body) <= _SMALL:
        try:
            json.loads(body.decode("latin-1"))  # one character per byte, so that positions are bytes
        except json.JSONDecodeError as error:
            return invalid_json(f"The request body is no JSON{_POSITION}{error.pos}: {error.msg}.")
        except (ValueError, RecursionError):
            pass  # a number of too many digits, too deep nesting: the place must do
    return invalid_json(f"The request body is no JSON{_POSITION}{at}.")


def _ambiguous_model() -> ClientFault:
    return invalid_value("model", "The request names `model` more than once (or in another case): send it once.")


def _model(raw: Raw | None) -> str:
    if raw is None:
        raise missing_parameter("model")
    view = memoryview(raw)
    is_text = bytes(view[:1]) == b'"'
    if is_text and len(view) > LONGEST_MODEL:
        raise invalid_value("model", f"Model names have at most {LONGEST_MODEL} bytes: see GET /v1/models.")
    model = read_json(bytes(view)) if is_text else None
    if not isinstance(model, str) or not model:
        raise invalid_value("model", "`model` must be a text that is not empty: see GET /v1/models for the names.")
    # An unpaired surrogate cannot be written to a log or a metric. No engine has such a name, so none will be found.
    return model if model.isascii() else model.encode("utf-8", "replace").decode("utf-8")


def _check_messages(raw: Raw | None) -> None:
    if raw is None:
        raise missing_parameter("messages")
    if bytes(memoryview(raw)[:1]) != b"[":
        raise invalid_value("messages", "`messages` must be a list of messages.")


def _small(raw: Raw | None) -> object:
    """Decode a small value; `None` also when it is null. A large one is for the engine to judge: it reads as a text."""
    if raw is None:
        return None
    return read_json(bytes(raw)) if len(memoryview(raw)) <= _SMALL else "large"


def _limit(*values: object) -> int | None:
    """The first that can be a limit of tokens."""
    for value in values:
        if type(value) is int and value > 0:
            return value
    return None


def _text_bytes(raw: Raw) -> int:
    """Count the bytes of a value without images: those are no text, and a megabyte of them is not a long prompt."""
    view = memoryview(raw)
    count = size = len(view)
    at, in_image = 0, False
    while at < size:
        piece = bytes(view[at : at + _PIECE])
        left_out, done, in_image = _image_bytes(piece, in_image=in_image, is_last=at + len(piece) == size)
        count -= left_out
        at += done
    return count


def _image_bytes(piece: bytes, *, in_image: bool, is_last: bool) -> tuple[int, int, bool]:
    """Bytes of images in a piece of a value, how far it was read, and whether an image goes on behind it."""
    count = at = 0
    while True:
        if in_image:
            end = piece.find(b'"', at)  # the string around it ends
            if end < 0:
                return count + len(piece) - at, len(piece), True
            count += end - at
            at, in_image = end, False
        found = piece.find(_IMAGE, at) if piece.find(b";", at) >= 0 else -1  # one byte is found far faster than eight
        if found < 0:
            return count, len(piece) if is_last else max(at, len(piece) - len(_IMAGE) + 1), False
        at, in_image = found + len(_IMAGE), True
