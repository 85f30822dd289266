"""The shapes of what is fetched from an engine and of what takes a value out of it. Parsers are elsewhere."""

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pharos.core.signals import LOAD_SIGNALS, Found, Signal

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
    """Wakes a sleeping model: not while it sleeps, nor while that is unknown."""
    PINS = "pins"
    """Keeps a model loaded: only while our own requests run there."""
    LOADS = "loads"
    """Loads a model: never."""
    DRAINS = "drains"
    """Takes the data away from other readers: never."""


class FeedKind(enum.StrEnum):
    """Where a probe's input comes from."""

    GET = "GET"
    LOG = "log"


class Feed(msgspec.Struct, frozen=True):
    """One source of input. Probes with an equal feed share one read."""

    kind: FeedKind
    path: str = ""
    side_effect: SideEffect = SideEffect.NONE
    interval_s: float | None = None
    """Seconds between reads; `None`: by the signals that are read from it."""


class FetchFault(enum.StrEnum):
    """Why a fetch brought no HTTP reply: a closed set."""

    REFUSED = "connection refused"
    NAME = "name not found"
    UNREACHABLE = "no connection"
    """No route, connect timed out, or an address that cannot be one."""
    TLS = "TLS failed"
    """What answers speaks plain HTTP, or shows a certificate that is not trusted."""
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
    parsed: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parsed forms of the body by parser name, so that probes on one path parse once."""


Pages = Mapping[str, Page]
"""Path (query included) to what its fetch brought."""


class ProbeError(Exception):
    """A probe could not read its signal; the reason is for people and machines."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail


class Probe(msgspec.Struct, frozen=True, eq=False):
    """Says where a signal can be found and how to take it out of there."""

    name: str
    signal: Signal
    feed: Feed
    parse: Callable[[Page], Found]
    """Only called with a 2xx page. Raises `ProbeError`. For a log feed the page's body is one line."""
    when: Callable[[str | None], bool] | None = None
    """Version guard, only for a meaning that changed without a trace in the payload; `None`: any version."""
    own: bool = False
    """Given by the operator, not by a recipe."""

    @property
    def interval_s(self) -> float:
        """Seconds between two reads that this probe wants."""
        if self.feed.interval_s is not None:
            return self.feed.interval_s
        return LOAD_INTERVAL_S if self.signal in LOAD_SIGNALS else FULL_INTERVAL_S
