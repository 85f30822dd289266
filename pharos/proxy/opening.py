"""What the head of a reply says of the body behind it: whether it streams, who reads it, how its end will be known.

Forbidden here: I/O, and looking into the body.
"""

from collections.abc import Callable
from typing import Final

from pharos.proxy import head
from pharos.proxy.grammar import EVENTS, LINES
from pharos.proxy.head import Headers
from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import Tap
from pharos.proxy.unframed import Unframed

TapMaker = Callable[[bool, str], Tap]
"""(whether the reply is a stream, its content type) -> a tap."""

Wanted = frozenset[bytes]
"""Content types that an answer to a request for a stream may have."""

OK: Final = range(200, 300)
_LINES: Final = frozenset({*head.STREAM_TYPES, b"", b"application/json", b"text/plain"})
"""One line of JSON may be all of it, and the clients of this protocol read it so, whatever it is called."""
WANTED: Final[dict[Protocol, Wanted]] = {
    **dict.fromkeys(EVENTS, frozenset({b"text/event-stream", b""})),
    **dict.fromkeys(LINES, _LINES),
}
"""By protocol. On other routes an engine may take no notice of `stream`, as OpenAI itself does for some models."""


def opened(
    status: int, headers: Headers, length: int | None, make_tap: TapMaker, wanted: Wanted | None = None
) -> tuple[bool, Tap | None, Unframed | None, int | None]:
    """Whether it is a stream, its tap, what tells its end if the head does not, and how long it is for the client.

    `wanted`: the types of a stream, if one was asked for.
    """
    kind = head.media_type(headers)
    is_stream = kind in head.STREAM_TYPES if wanted is None or status not in OK else kind in wanted
    if status in head.UNREAD:
        return False, None, None, length
    tap = None if head.is_encoded(headers) else make_tap(is_stream, kind.decode("latin-1"))
    unframed = None if is_framed(headers, length) else Unframed(status, kind, tap, is_stream=is_stream)
    return is_stream, tap, unframed, None if tap is not None and tap.changes_length else length


def is_framed(headers: Headers, length: int | None) -> bool:
    """Whether the engine said where its reply ends."""
    return length is not None or head.find(headers, b"transfer-encoding") is not None
