"""The shapes of what is fetched from an engine and of what takes a value out of it. Parsers are elsewhere."""

import enum
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from pharos.core.signals import BACKEND, LOAD_SIGNALS, Found, Signal

LOAD_INTERVAL_S = 1.0
"""How often signals that change with every request are read."""
FULL_INTERVAL_S = 5.0
"""How often all other signals are read."""


class DropReason(enum.StrEnum):
    """Why a probe gave nothing: a closed set, shown by doctor and the status page."""

    NOT_FOUND = "not found"
    """404, 405 or 501: the engine lacks the path."""
    UNAUTHORIZED = "needs a credential"
    """401 or 403."""
    STATUS = "error status"
    STARTING = "engine is starting"
    """503."""
    FETCH_ERROR = "no answer"
    PARSE_ERROR = "cannot be read"
    NO_VALUE = "no value"
    NO_EVIDENCE = "meaning not proven"
    """The body lacks the field or series that proves what the value means in this version."""
    VERSION_GUARD = "other version"
    REDUNDANT = "redundant"
    """A probe of higher trust already reads the signal."""
    NO_LOG_FEED = "no log feed"
    SIDE_EFFECT = "would disturb the engine"
    """Reading it would wake, load or drain the engine in its present state."""


class SideEffect(enum.StrEnum):
    """What reading a feed does to the engine."""

    NONE = "none"
    HEAVY = "heavy"
    """Costs the engine much: only when planning."""
    WAKES = "wakes"
    """Wakes a sleeping model, and read again and again keeps one awake: not while it sleeps, nor while that is unknown,
    and after the first plan only while our own requests run."""
    PINS = "pins"
    """Keeps a model loaded: only while our own requests run there."""
    LOADS = "loads"
    """Loads a model: never."""
    DRAINS = "drains"
    """Takes the data away from other readers: never."""


class FeedKind(enum.StrEnum):
    """Where a probe's input comes from."""

    GET = "GET"
    POST = "POST"
    """A question that needs a body and changes nothing in the engine."""
    SSE = "SSE"
    """A stream of events that stays open."""
    LOG = "log"


SCRAPED = frozenset({FeedKind.GET, FeedKind.POST})
"""Feeds that are asked again and again; the others are followed."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
MODEL = "{model}"
"""Stands in the path of a per-model feed for the model's name."""


class Feed(msgspec.Struct, frozen=True):
    """One source of input. Probes with an equal feed share one read."""

    kind: FeedKind
    path: str = ""
    side_effect: SideEffect = SideEffect.NONE
    interval_s: float | None = None
    """Seconds between reads; `None`: by the signals that are read from it."""
    per_model: bool = False
    """Asked once for each model: by its name in the path (GET) or in the body (POST)."""
    loaded_only: bool = False
    """Per model: asked only for models that are in memory."""
    passing: frozenset[int] = frozenset()
    """Statuses with which this engine says "not now" on this feed: they show nothing about its probes."""

    def ask(self, model: str = BACKEND) -> str:
        """Return what identifies one request to this feed among the pages of a visit; `split_ask` takes it apart."""
        if self.kind is FeedKind.POST:
            return f"POST {self.path} {model}"
        return self.path.replace(MODEL, _quoted(model)) if self.per_model else self.path


def _quoted(name: str) -> str:
    """Percent-encode all but what every part of a URL may hold as it is."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in name.encode("utf-8", "surrogatepass")
    )


def split_ask(ask: str) -> tuple[str, str, bytes | None]:
    """Return method, path and body of a request."""
    if not ask.startswith("POST "):
        return "GET", ask, None
    _, path, model = ask.split(" ", 2)
    return "POST", path, json.dumps({"model": model}).encode()


class FetchFault(enum.StrEnum):
    """Why a fetch brought no HTTP reply: a closed set."""

    REFUSED = "connection refused"
    NAME = "name not found"
    UNREACHABLE = "no connection"
    """No route, connect timed out, or an address that cannot be one."""
    TLS = "TLS failed"
    """What answers does not speak TLS, most likely plain HTTP."""
    CERTIFICATE = "certificate not trusted"
    """It is of an authority that is not known here, of another name, or too old."""
    TIMEOUT = "no answer in time"
    """Connected, then nothing: the engine may just be busy."""
    RESET = "connection closed"
    TOO_LARGE = "answer too large"
    NOT_HTTP = "not an HTTP answer"


class Page(msgspec.Struct, frozen=True, eq=False):
    """What one fetch of one path brought: an HTTP reply, or the fault that kept it from coming."""

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """Names in lower case."""
    fault: FetchFault | None = None
    sent_at: float = 0.0
    """When the request was sent, in seconds on the caller's clock: no value in it is newer."""
    took_s: float = 0.0
    """Seconds from sending the request to the end of its answer."""
    parsed: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parsed forms of the body by parser name, so that probes on one path parse once."""


Pages = Mapping[str, Page]
"""Ask (a GET's path with its query, see `Feed.ask`) to what its fetch brought."""


class ProbeError(Exception):
    """A probe could not read its signal; the reason is for people and machines.

    `will_pass`: it shows nothing about the probe. The engine has nothing to tell yet, and will have.
    """

    def __init__(self, reason: DropReason, detail: str = "", *, will_pass: bool = False) -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail
        self.will_pass = will_pass


class Follower(Protocol):
    """Reads the events of one stream, from its start on."""

    def feed(self, event: str, data: bytes) -> Found:
        """Take one event in; return the values that it sets. Raises `ProbeError`: nothing is known until a new stream.

        `event` is the event's name, empty when it has none; `data` its data lines, joined.
        """


class Probe(msgspec.Struct, frozen=True, eq=False):
    """Says where a signal can be found and how to take it out of there."""

    name: str
    signal: Signal
    feed: Feed
    parse: Callable[[Page], Found]
    """Only called with a 2xx page. Raises `ProbeError`. For a log feed the page's body is one line. What it finds on a
    per-model feed is filed under `BACKEND`: the plan knows whose page it is."""
    when: Callable[[str | None], bool] | None = None
    """Version guard, only for a meaning that changed without a trace in the payload; `None`: any version."""
    own: bool = False
    """Given by the operator, not by a recipe."""
    beside: bool = False
    """Kept although another probe reads the signal: it fills gaps, or tells sooner."""
    rank: int = 0
    """Of two fresh values for one model the lower rank wins; of equal ranks the newer."""
    lag_s: float = 0.0
    """Seconds that a value may be old already when the engine tells it: some renew their numbers only now and then."""
    wants: str = ""
    """The series or field that it reads, to look for a successor when it is gone."""
    may_be_empty: bool = False
    """Finding nothing is an answer, not a failure: it tells only of models in memory, or of some models."""
    follow: Callable[[tuple[str, ...]], Follower] | None = None
    """Makes the reader of a stream of events, for the models that the engine lists. `parse` is not used then."""

    @property
    def interval_s(self) -> float:
        """Seconds between two reads that this probe wants."""
        if self.feed.interval_s is not None:
            return self.feed.interval_s
        return LOAD_INTERVAL_S if self.signal in LOAD_SIGNALS else FULL_INTERVAL_S
