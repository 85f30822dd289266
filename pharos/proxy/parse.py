"""Reads of a request's body what routing needs, and refuses what an engine could read differently than we do.

Forbidden here: decoding messages or arguments of tools; changing the body (`inject.py`); quoting the body in a message.
"""

import json

import msgspec

from pharos.core.engine.usage_fields import read_json
from pharos.proxy.errors import ClientFault, invalid_json, invalid_value, missing_parameter
from pharos.proxy.parse_scan import ScanError, scan_object

THREAD_BYTES = 256 * 1024
"""A larger body is parsed in a worker thread."""
THREAD_MESSAGES = 2000
"""More messages are parsed in a worker thread."""
MOST_MEMBERS = 500
"""Members of the top-level object; no protocol has a tenth of it, each costs memory."""

_LEAST_MESSAGE = len(b'{"role":"","content":""},')
_SMALL = 4096
"""Bytes of the largest value that is decoded; the fields read here have no larger ones that mean anything."""
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


Members = list[tuple[str, msgspec.Raw | bytes]]


def needs_thread(body: bytes) -> bool:
    """Whether parsing the body would hold up other streams noticeably."""
    if len(body) > THREAD_BYTES:
        return True
    return len(body) > THREAD_MESSAGES * _LEAST_MESSAGE and body.count(b'"role"') > THREAD_MESSAGES


def parse_chat(body: bytes, path: str) -> ChatRequest:
    """Read a chat, completion or embedding request. Raises `ClientFault` (400)."""
    fields: dict[str, msgspec.Raw | bytes] = {}
    twice: set[str] = set()
    for name, raw in _members(body):
        lower = name.lower()
        if lower == "model" and "model" in twice:
            raise _ambiguous_model()
        if lower == "model":
            twice.add(lower)
        if name in fields:
            twice.add(name)
        fields[name] = raw
    model = _model(fields.get("model"))
    if path.endswith("/chat/completions"):
        _check_messages(fields.get("messages"))
    stream = _small(fields.get("stream")) is True
    options = _small(fields.get("stream_options"))
    include = options.get("include_usage") if isinstance(options, dict) else None
    editable = options is None or isinstance(options, dict)
    asks = stream and include is not True and editable and not twice & {"stream", "stream_options"}
    return ChatRequest(
        model=model,
        stream=stream,
        include_usage=include if isinstance(include, bool) else None,
        has_stream_options="stream_options" in fields,
        wants_injection=asks,
        prompt_bytes=sum(_text_bytes(fields[name]) for name in _PROMPT_FIELDS if name in fields),
        max_tokens=_max_tokens(fields),
    )


class _Name:
    """Stands for one occurrence of a name: `msgspec` then keeps two equal names apart, however they are spelled."""

    __slots__ = ()


def _members(body: bytes) -> Members:
    """Names and undecoded values of the top-level object, in order, repeated names included."""
    names: list[str] = []

    def keep(_type: type, name: object) -> _Name:
        if len(names) >= MOST_MEMBERS:
            raise invalid_json(
                f"The request body has more than {MOST_MEMBERS} fields: send those of the protocol only."
            )
        names.append(str(name))
        return _Name()

    try:
        values = msgspec.json.decode(body, type=dict[_Name, msgspec.Raw], dec_hook=keep)
    except (msgspec.DecodeError, RecursionError):
        return _tolerant(body)
    return list(zip(names, values.values(), strict=True))


def _tolerant(body: bytes) -> Members:
    """Read a body that the strict reader refused: unpaired surrogates and deep nesting are for the engine to judge."""
    if not body.strip():
        raise invalid_json("The request has no body: send a JSON object.")
    try:
        json.loads(body.decode("latin-1"))  # one character per byte, so that positions are bytes
    except RecursionError:
        pass
    except json.JSONDecodeError as error:
        raise invalid_json(f"The request body is no JSON{_POSITION}{error.pos}: {error.msg}.") from None
    if body.lstrip()[:1] != b"{":
        raise invalid_json("The request body is JSON, but no object: send `{...}`.")
    try:
        members = scan_object(body, most=MOST_MEMBERS)
    except ScanError as error:
        raise invalid_json(f"The request body is no JSON{_POSITION}{error.at}.") from None
    return [(member.name, body[member.start : member.end]) for member in members]


def _ambiguous_model() -> ClientFault:
    return invalid_value("model", "The request names `model` more than once (or in another case): send it once.")


def _model(raw: msgspec.Raw | bytes | None) -> str:
    if raw is None:
        raise missing_parameter("model")
    model = read_json(bytes(raw))
    if not isinstance(model, str) or not model:
        raise invalid_value("model", "`model` must be a text that is not empty: see GET /v1/models for the names.")
    # An unpaired surrogate cannot be written to a log or a metric. No engine has such a name, so none will be found.
    return model.encode("utf-8", "replace").decode("utf-8")


def _check_messages(raw: msgspec.Raw | bytes | None) -> None:
    if raw is None:
        raise missing_parameter("messages")
    if bytes(memoryview(raw)[:1]) != b"[":
        raise invalid_value("messages", "`messages` must be a list of messages.")


def _small(raw: msgspec.Raw | bytes | None) -> object:
    """Decode a small value; `None` also when it is null. A large one is for the engine to judge: it reads as a text."""
    if raw is None:
        return None
    return read_json(bytes(raw)) if len(memoryview(raw)) <= _SMALL else "large"


def _max_tokens(fields: dict[str, msgspec.Raw | bytes]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = _small(fields.get(name))
        if type(value) is int and value > 0:
            return value
    return None


def _text_bytes(raw: msgspec.Raw | bytes) -> int:
    """Count the bytes of a value without images: those are no text, and a megabyte of them is not a long prompt."""
    text = bytes(raw)
    count = len(text)
    at = text.find(_IMAGE) if b";" in text else -1  # one byte is found ten times faster than eight
    while at >= 0:
        end = text.index(b'"', at)  # a JSON value: the string around it ends
        count -= end - at - len(_IMAGE)
        at = text.find(_IMAGE, end)
    return count
