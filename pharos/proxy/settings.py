"""What the data plane can be told, with defaults. Values only: nothing here reads a file."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class ProxySettings(msgspec.Struct, frozen=True):
    """Limits and switches of the client-facing side."""

    body_bytes: int = 32 * MIB
    """Largest request body; more is answered 413."""
    header_bytes: int = 64 * KIB
    """Largest request line with all its headers; more is answered 431."""
    buffered_bytes: int = 256 * MIB
    """Request bodies in memory at once, all requests together; more is answered 503 with Retry-After."""
    connections: int = 10_000
    """Client connections at once; more are answered 503 and closed, but for a few that ask for health or metrics."""
    first_head_s: float = 30.0
    """Seconds a client has for a whole head, from connecting or from the first byte of a later one."""
    connect_s: float = 5.0
    """Seconds one connection attempt to an engine may take, all its addresses together."""
    first_byte_warm_s: float | None = None
    """Seconds an engine that has the model in memory has for the first byte of a reply; `None`: no limit."""
    first_byte_cold_s: float | None = None
    """The same where the model is not, or may not be, in memory."""
    reply_idle_s: float | None = None
    """Seconds between two reads of a reply, to about a second; `None`: no limit."""
    retry_attempts: int = 1
    """Times a request may be sent elsewhere before any byte of a reply reached the client."""
    retry_budget: float = 0.2
    """Retries per request over the last minute."""
    rewrite_reply_model: bool = False
    """Whether replies name the model as their client did, where the engine has another name for it."""
    show_target: bool = False
    """Whether replies carry X-Pharos-Target."""
    show_reason: bool = False
    """Whether replies carry X-Pharos-Reason."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may read replies, as browsers write them; `*` is every page."""
    idle_s: float = 620.0
    """Seconds an idle client connection stays open: longer than load balancers in front keep theirs (60 to 600 s)."""
    queue_told_s: tuple[float, float] = (5.0, 10.0)
    """Seconds of waiting after which a client that wants to know is told its place in the queue, and between two such
    comments. Until the first one a failure can still have a status of its own."""
