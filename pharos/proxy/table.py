"""Every route that goes to an engine, as data: what a request on it looks like and who may serve it.

# ops: ROUTES.get(path), find(path) · goal: one look-up in a dictionary for each request
# plan: a row per exact path; the few paths with an id in them are found by their parts
# warning: what a request needs is read from its row; a new route is a new row, and no `if` elsewhere

Forbidden here: I/O, and anything about one request.
"""

from typing import Final, Literal
from urllib.parse import unquote

from msgspec import Struct

from pharos.proxy.errors import Shape
from pharos.proxy.parse_size import BASE64, IMAGES, SOURCE, Blob
from pharos.proxy.protocol import Protocol

Body = Literal["json", "multipart", "none"]
Streams = Literal["asked", "unless_refused", "never"]
"""When the reply is a stream: with `"stream": true`, always but with `"stream": false`, or never."""

POST: Final = ("POST",)
OLLAMA: Final = frozenset({"ollama"})
"""Kinds of engines that speak Ollama's own protocol."""


class Route(Struct, frozen=True, kw_only=True, eq=False):
    """What is known of all requests on one route."""

    path: str
    """As in the README; `{id}` stands for any one part."""
    methods: tuple[str, ...] = POST
    protocol: Protocol = "plain"
    """Of a reply that went well."""
    shape: Shape = "openai"
    """Of errors."""
    body: Body = "json"
    takes_slot: bool = True
    """False for what an engine answers at once, beside its generations."""
    kinds: frozenset[str] | None = None
    """Kinds of backends that may serve it; `None`: any."""
    stateful: bool = False
    """Its replies have an id by which a later request may ask for what only this very engine remembers."""
    streams: Streams = "never"
    model_names: tuple[str, ...] = ("model",)
    """Fields that may name the model; engines take the first of these that is not empty."""
    needs_messages: bool = False
    """Refuse a body without a list of `messages`: Pharos looks into it."""
    empty_loads: bool = False
    """A request without a prompt generates nothing: it loads the model, or unloads it."""
    blob: Blob = BASE64
    """How a file is written into a body; what is one is no prompt."""
    takes_usage_option: bool = False
    """A streamed reply tells usage when the body asks for it in `stream_options`."""

    def __repr__(self) -> str:
        return f"<Route {'|'.join(self.methods)} {self.path}>"


CHAT: Final = Route(
    path="/v1/chat/completions",
    protocol="openai_chat",
    streams="asked",
    needs_messages=True,
    takes_usage_option=True,
)
COMPLETION: Final = Route(
    path="/v1/completions", protocol="openai_completion", streams="asked", takes_usage_option=True
)
RESPONSES: Final = Route(path="/v1/responses", protocol="openai_responses", streams="asked", stateful=True)

_EXACT: Final = (
    CHAT,
    COMPLETION,
    RESPONSES,
    Route(path="/v1/responses/input_tokens", takes_slot=False),
    Route(path="/v1/embeddings"),
    Route(path="/v1/rerank"),
    Route(path="/v2/rerank"),
    Route(path="/rerank"),
    Route(path="/tokenize", takes_slot=False),
    Route(path="/detokenize", takes_slot=False),
    Route(path="/v1/audio/transcriptions", body="multipart", streams="asked"),
    Route(path="/v1/audio/translations", body="multipart"),
    Route(path="/v1/messages", protocol="anthropic", shape="anthropic", streams="asked", blob=SOURCE),
    Route(path="/v1/messages/count_tokens", shape="anthropic", takes_slot=False, blob=SOURCE),
    Route(
        path="/api/chat",
        protocol="ollama_chat",
        shape="ollama",
        kinds=OLLAMA,
        streams="unless_refused",
        empty_loads=True,
        blob=IMAGES,
    ),
    Route(
        path="/api/generate",
        protocol="ollama_generate",
        shape="ollama",
        kinds=OLLAMA,
        streams="unless_refused",
        empty_loads=True,
        blob=IMAGES,
    ),
    Route(path="/api/embed", shape="ollama", kinds=OLLAMA),
    Route(path="/api/embeddings", shape="ollama", kinds=OLLAMA),
    Route(path="/api/show", shape="ollama", kinds=OLLAMA, takes_slot=False, model_names=("model", "name")),
)
ROUTES: Final[dict[str, Route]] = {route.path: route for route in _EXACT}
"""By the path of a request."""

RESPONSE: Final = Route(
    path="/v1/responses/{id}", methods=("GET", "HEAD", "DELETE"), protocol="openai_responses", body="none",
    takes_slot=False,
)  # fmt: skip
RESPONSE_ITEMS: Final = Route(
    path="/v1/responses/{id}/input_items", methods=("GET", "HEAD"), body="none", takes_slot=False
)
RESPONSE_CANCEL: Final = Route(path="/v1/responses/{id}/cancel", body="none", takes_slot=False)
_OF_RESPONSE: Final = {"": RESPONSE, "input_items": RESPONSE_ITEMS, "cancel": RESPONSE_CANCEL}
_RESPONSES_PREFIX: Final = RESPONSES.path + "/"

ALL: Final = (*_EXACT, *_OF_RESPONSE.values())
"""Every route that goes to an engine."""


def of_response(path: str) -> tuple[Route, str] | None:
    """The route and the id (decoded once) of a path about one response that an engine keeps; `None` for other paths."""
    if not path.startswith(_RESPONSES_PREFIX):
        return None
    given, slash, rest = path[len(_RESPONSES_PREFIX) :].partition("/")
    route = _OF_RESPONSE.get(rest)
    if route is None or not given or (slash and not rest):
        return None
    return route, unquote(given)
