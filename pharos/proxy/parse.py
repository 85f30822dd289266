"""Reads of a request's body what routing needs, and refuses what an engine could read differently than we do.

Forbidden here: decoding messages or arguments of tools; changing the body (`inject.py`); quoting the body in a message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from pharos.core.engine.usage_fields import read_json
from pharos.proxy.errors import ClientFault, invalid_json, invalid_value, missing_parameter
from pharos.proxy.parse_scan import Scan, ScanError, TooMuchError
from pharos.proxy.parse_size import BASE64, text_bytes
from pharos.proxy.table import Route

THREAD_BYTES = 256 * 1024
"""A larger body is parsed in a worker thread."""
LIGHT_BYTES = 3 * 1024 * 1024
"""A larger body is parsed in small steps: one long step in C would hold up all streams in a worker thread, too, and a
name of 30 MB would be decoded to four times its size. At 2 ns a byte of text, this one takes some 5 ms at most."""
LIGHT_MARKS = 60_000
"""So is a large body with more values in it, or so: each is an object to make, at some 50 ns."""
THREAD_MESSAGES = 2000
"""More messages are parsed in a worker thread."""
THREAD_BRACKETS = 4000
"""A body with more of them is parsed in a worker thread when only the tolerant scanner can read it (1 µs each)."""
MOST_MEMBERS = 500
"""Members of the top-level object; no protocol has a tenth of it, each costs memory."""
LONGEST_MODEL = 1024
"""Bytes of the longest model name, as it stands in the body: names are kept in records and written to logs."""

_WINDOW = 64 * 1024
_LEAST_MESSAGE = len(b'{"role":"","content":""},')
_SMALL = 4096
"""Bytes of the largest value that is decoded; the fields read here have no larger ones that mean anything. And of the
largest body of which a second reader tells what is wrong with it, in words."""
UNCOUNTED = 64 * 1024
"""Bytes of a body that cannot hold so many members that counting them while they are read would matter."""
_QUICK = 2500
"""Bytes of a body that is tried the quick way: too few for `MOST_MEMBERS`, few enough to be looked through often."""
_TRUE = Raw(b"true")
_FALSE = Raw(b"false")
_ABSENT = Raw()
_PROMPT_FIELDS = frozenset({
    "messages", "prompt", "input", "tools",
    "system", "instructions", "suffix", "template",  # Anthropic, Responses, Ollama
    "query", "documents", "texts", "content",  # rerank, tokenize
})  # fmt: skip
"""What a model reads, on any route."""
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Names of the limit of a completion, the one that counts first."""
PREVIOUS = "previous_response_id"
_LONG_STREAM = '"\u017ftream'.encode()
"""Go takes this letter for an `s`, as Python does when it folds case."""
_EMPTY = (b"null", b"[]", b'""', b"")
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
    teaches: bool = True
    """It makes the model compute; false for a request that only loads or unloads it."""
    previous_response: str | None = None
    """Id of the response that it goes on from, which one engine keeps."""
    model_span: tuple[int, int] | None = None
    """Start and end of the model's name in the body, the quotes of JSON included; `None`: to be found again."""
    context_tokens: int | None = None
    """The context size that it asks for (Ollama's `num_ctx`)."""

    @classmethod
    def empty(cls, model: str) -> "ChatRequest":
        """What is known of a request without a body."""
        return cls(model, False, None, False, False, 0, None, False)  # noqa: FBT003 - in the order above


class SlowBodyError(Exception):
    """Reading this body would hold up other streams noticeably: call `parse_body` again in a worker thread."""


def needs_thread(body: bytes) -> bool:
    """Whether parsing the body would hold up other streams noticeably; `parse_body` finds the rare rest by itself."""
    if len(body) > THREAD_BYTES:
        return True
    return len(body) > THREAD_MESSAGES * _LEAST_MESSAGE and body.count(b'"role"') > THREAD_MESSAGES


def is_light(body: bytes) -> bool:
    """Whether one step in C reads the body in so little time that it may be taken, in a worker thread if it is large.

    In small steps the same takes ten times as long, of which the loop feels each.
    """
    size, marks = len(body), 0
    if not THREAD_BYTES < size <= LIGHT_BYTES:
        return size <= THREAD_BYTES
    for at in range(0, size, _WINDOW):  # not at once: the loop may run in between
        end = at + _WINDOW
        marks += body.count(b",", at, end) + body.count(b"[", at, end) + body.count(b"{", at, end)
        if marks > LIGHT_MARKS:
            return False
    return True


def parse_body(body: bytes, route: Route, *, in_loop: bool = False) -> ChatRequest:
    """Read a JSON body of a route. Raises `ClientFault` (400), and `SlowBodyError` if `in_loop`."""
    if len(body) <= _QUICK and route.takes_usage_option:
        quick = _quickly(body, route)
        if quick is not None:
            return quick
    names, values, spans = _members(body, in_loop=in_loop)
    check_named_once(names, route)
    fields = dict(zip(names, values, strict=True))  # of equal names the last one counts, as in engines
    named_by = "model" if len(route.model_names) == 1 else _named_by(fields, route)
    model = _model(fields.get(named_by))
    if route.needs_messages:
        _check_messages(fields.get("messages"))
    stream = _streams(fields.get("stream"), route)
    options = _small(fields.get("stream_options"))
    include = options.get("include_usage") if isinstance(options, dict) else None
    # Adding to the options of a large body would mean to look for them again, on the loop.
    editable = options is None or (isinstance(options, dict) and len(body) <= THREAD_BYTES)
    asks = route.takes_usage_option and stream and include is not True and editable
    if asks and len(fields) != len(names):
        asks = names.count("stream") == 1 and names.count("stream_options") <= 1
    given = _small(fields.get("options"))
    ollama = given if isinstance(given, dict) else {}
    prompt_bytes, blob = 0, route.blob
    for name, raw in fields.items():
        if name in _PROMPT_FIELDS:
            prompt_bytes += text_bytes(raw, blob)
    return ChatRequest(
        model=model,
        stream=stream,
        include_usage=include if isinstance(include, bool) else None,
        has_stream_options="stream_options" in fields,
        wants_injection=asks,
        prompt_bytes=prompt_bytes,
        max_tokens=_most_tokens(fields, ollama),
        context_tokens=as_limit(ollama.get("num_ctx") if route.kinds is not None else None),
        teaches=not (route.empty_loads and _is_empty(fields)),
        previous_response=_previous(fields.get(PREVIOUS)) if route.stateful else None,
        model_span=spans[names.index(named_by)] if spans is not None else None,
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


def _quickly(body: bytes, route: Route) -> ChatRequest | None:
    """Read a small body in one step; `None` for any that is not plain or has a fault, which the long way then finds.

    Without a backslash a name is its own bytes, so that counting proves that none comes twice, in any case.
    """
    low = body.lower()
    streams = low.count(b'"stream')
    if b"\\" in body or low.count(b'"model"') != 1 or streams > 1:
        return None
    if not body.isascii() and _LONG_STREAM in low:
        return None
    try:
        plain = _PLAIN.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if streams and not plain.stream and b'"stream' not in body:
        return None  # in another case
    if not plain.model or len(plain.model) > LONGEST_MODEL // 4 or plain.stream_options is not _ABSENT:
        return None
    if route.needs_messages:
        if plain.messages is _ABSENT:
            return None
        _check_messages(plain.messages)
    prompt_bytes = 0
    for raw in (plain.messages, plain.prompt, plain.input, plain.tools):
        if raw is not _ABSENT:
            prompt_bytes += text_bytes(raw, BASE64)
    return ChatRequest(
        model=plain.model,
        stream=plain.stream,
        include_usage=None,
        has_stream_options=False,
        wants_injection=plain.stream,
        prompt_bytes=prompt_bytes,
        max_tokens=as_limit(plain.max_completion_tokens) or as_limit(plain.max_tokens),
    )


def find_model(body: bytes, route: Route) -> tuple[int, int]:
    """Where the model's name stands in a body that `parse_body` has read without telling, quotes included.

    Values are stepped over by their length, as the decoder found it: how they are nested does not matter.
    """
    names, values, spans = _members(body, in_loop=False)
    fields = dict(zip(names, values, strict=True))
    named_by = "model" if len(route.model_names) == 1 else _named_by(fields, route)
    index = names.index(named_by)
    return (_spans(body, values) if spans is None else spans)[index]


def model_in_light(body: bytes) -> tuple[int, int]:
    """Do the same for a body that `is_light`, is plain, and names its model in one way."""
    values: _Object = _OBJECT.decode(body)
    names = [name.text for name in values]  # type: ignore[attr-defined]  # all are `Name`
    return _spans(body, values.values())[names.index("model")]


def _spans(body: bytes, values: Iterable[Raw]) -> list[tuple[int, int]]:
    return Scan(body).spans([len(memoryview(value)) for value in values])


class AnyName:
    """The type of names as `msgspec` knows it: none of its own, so that it asks `Name` for each."""

    __slots__ = ()


class Name(AnyName, msgspec.Struct, frozen=True, eq=False, gc=False):
    """One occurrence of a name, made by `msgspec` without a call of Python.

    No two are equal, so that two members of one name are kept apart.
    """

    kind: type
    text: str


_Object = dict[AnyName, Raw]
_OBJECT = msgspec.json.Decoder(_Object, dec_hook=Name)


def _members(body: bytes, *, in_loop: bool) -> tuple[list[str], Iterable[Raw], list[tuple[int, int]] | None]:
    """Names and undecoded values of the top-level object, in order, repeated names included.

    And where those values stand: of a large body, in which they should not be looked for again.
    """
    if not is_light(body):
        return _tolerant(body)
    try:
        values: _Object = _OBJECT.decode(body) if len(body) <= UNCOUNTED else counted(body)
    except (msgspec.DecodeError, RecursionError):
        if in_loop and body.count(b"[") + body.count(b"{") > THREAD_BRACKETS:
            raise SlowBodyError from None
        return _tolerant(body)
    if len(values) > MOST_MEMBERS:
        raise _too_many()
    raws = values.values()
    names = [name.text for name in values]  # type: ignore[attr-defined]  # all are `Name`
    return names, raws, _spans(body, raws) if len(body) > THREAD_BYTES else None


def counted(body: bytes, kind: Any = _Object) -> Any:  # noqa: ANN401 - what `kind` says
    """Read a body that could hold millions of members: stop at the first one too many, before they fill the memory.

    `kind`: a dictionary of `AnyName`. Raises ClientFault, and what `msgspec` raises.
    """
    count = 0

    def name(kind: type, text: str) -> Name:
        nonlocal count
        count += 1
        if count > MOST_MEMBERS:
            raise _too_many()
        return Name(kind, text)

    return msgspec.json.decode(body, type=kind, dec_hook=name)


def _too_many() -> ClientFault:
    return invalid_json(f"The request body has more than {MOST_MEMBERS} fields: send those of the protocol only.")


def _tolerant(body: bytes) -> tuple[list[str], list[Raw], list[tuple[int, int]]]:
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
    spans = [(member.start, member.end) for member in members]
    return [member.name for member in members], [Raw(view[start:end]) for start, end in spans], spans


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


def check_named_once(names: list[str], route: Route) -> None:
    """Refuse what an engine could take for another model, stream or response: it must run what is checked here.

    Engines in Go match names without regard to case, so that an odd spelling counts where Pharos has read none.
    """
    low = [*map(str.casefold, names)]
    for name in route.model_names:
        if low.count(name) != names.count(name) or names.count(name) > 1:
            raise invalid_value(
                "model", f"The request names `{name}` more than once (or in another case): send it once."
            )
    if low.count("stream") != names.count("stream"):
        raise invalid_value("stream", "The request names `stream` in another case: send it in lower case.")
    if route.stateful and (low.count(PREVIOUS) != names.count(PREVIOUS) or names.count(PREVIOUS) > 1):
        raise invalid_value(
            PREVIOUS, f"The request names `{PREVIOUS}` more than once (or in another case): send it once."
        )


def _named_by(fields: Mapping[str, Raw], route: Route) -> str:
    """Which field names the model: the first that is not empty, as in engines. Clients send the others empty."""
    given = (name for name in route.model_names if name in fields)
    return next((name for name in given if bytes(memoryview(fields[name])[:5]) not in _EMPTY), "model")


def _model(raw: Raw | None) -> str:
    if raw is None:
        raise missing_parameter("model")
    view = memoryview(raw)
    is_text = bytes(view[:1]) == b'"'
    if is_text and len(view) > LONGEST_MODEL:
        raise invalid_value("model", f"Model names have at most {LONGEST_MODEL} bytes: see GET /v1/models.")
    model = read_json(bytes(view)) if is_text else None
    if not isinstance(model, str):
        raise invalid_value("model", "`model` must be a text that is not empty: see GET /v1/models for the names.")
    return as_model_name(model)


def as_model_name(text: str) -> str:
    """Return a name as it can be written to a log or a metric: without unpaired surrogates, which no engine's name has.

    Raises ClientFault (400) for an empty one.
    """
    if not text:
        raise invalid_value("model", "`model` must be a text that is not empty: see GET /v1/models for the names.")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


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


def _streams(raw: Raw | None, route: Route) -> bool:
    """Whether the reply will come as a stream, as engines judge it: by `true` and `false` only."""
    if route.streams == "asked":
        return raw == _TRUE
    return route.streams == "unless_refused" and raw != _FALSE


def _is_empty(fields: Mapping[str, Raw]) -> bool:
    """Whether there is no prompt: neither messages nor a text."""
    return all(bytes(memoryview(fields[name])[:5]) in _EMPTY for name in ("messages", "prompt") if name in fields)


def _previous(raw: Raw | None) -> str | None:
    value = _small(raw)
    if value is None or isinstance(value, str):
        return value
    raise invalid_value("previous_response_id", "`previous_response_id` must be a text: the id of a response.")


def _most_tokens(fields: Mapping[str, Raw], options: Mapping[str, object]) -> int | None:
    """The limit of the completion, under the name that each protocol has for it. `options`: Ollama's."""
    for name in LIMITS:
        limit = as_limit(_small(fields.get(name)))
        if limit is not None:
            return limit
    return as_limit(options.get("num_predict"))


def as_limit(value: object) -> int | None:
    """A value that can be a limit of tokens."""
    return value if type(value) is int and value > 0 else None
