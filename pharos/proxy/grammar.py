"""What a stream of each protocol is made of, as data: what matters in its bytes, its tokens, its ends, its usage.

Forbidden here: state of a stream; framing. A new protocol is a row of `EVENTS` or `LINES`, and functions
of one record.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pharos.proxy import endings, record
from pharos.proxy.protocol import Protocol
from pharos.proxy.record import Begun, Ending, Record
from pharos.proxy.signs import DONE_MARK, ERROR, ESCAPE, TIMINGS, USAGE, Late, Signs


def _nothing(_: Record) -> Begun | None:
    return None


def _never(_: Record) -> bool:
    return False


class Grammar(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One protocol."""

    signs: Signs
    has_token: Callable[[Record], bool]
    ending: Callable[[Record], Ending | None]
    """Of one record; `None` when more is to come."""
    failure: Callable[[str, str, Begun | None], bytes]
    """(message, code, what the first event said) -> the last event of a stream that broke off."""
    begun: Callable[[Record], Begun | None] = _nothing
    """What a record says that `failure` must repeat. Asked before the first token only."""
    knows_end: bool = True
    """Every whole stream shows an end that `ending` or `[DONE]` tells."""
    ends_with_done: bool = False
    """`[DONE]` is the end of it, and not just an ornament."""
    is_last: Callable[[Record], bool] = _never
    """Whether a record shows that its stream is whole, though more may follow it."""
    usage_needs_end: bool = True
    """Without its end a reply has only told an estimate, or a part."""
    reads_long: bool = True
    """A line over the limit is read at both ends, since the end of a reply may repeat all of it."""
    is_silent: Callable[[Record], bool] = _never
    """Whether a line over the limit, of which the beginning was read, carries no output all the same."""


def _repeats_request(members: Record) -> bool:
    return "response" in members


def _begins_message(members: Record) -> bool:
    return "message" in members


def _repeats_context(members: Record) -> bool:
    return members.get("done") is True


def _events(late: Late, *output: bytes) -> Signs:
    """Signs of a stream of events; `output`: one of them is in each event that carries output of the model."""
    return Signs(late, early=(*late, *output, ESCAPE))


_CHUNKS: Final = _events((USAGE, TIMINGS, ERROR, DONE_MARK), b'"choices"')

CHAT: Final = Grammar(
    signs=_CHUNKS,
    has_token=record.chat_has_token,
    ending=record.openai_ending,
    failure=endings.chat_failure,
    ends_with_done=True,
    is_last=record.chat_is_over,
    usage_needs_end=False,
    reads_long=False,
)
"""Engines tell usage in their last chunk, which comes whole or not at all."""
COMPLETION: Final = msgspec.structs.replace(CHAT, has_token=record.completion_has_token)
RESPONSES: Final = Grammar(
    # All events that end a stream hold a response, and none with output does.
    signs=_events((USAGE, b'"response"', ERROR, b'"response.completed"'), b'"type"'),
    has_token=record.response_has_token,
    ending=record.response_ending,
    failure=endings.response_failure,
    begun=endings.response_begun,
    is_silent=_repeats_request,
)
ANTHROPIC: Final = Grammar(
    signs=_events((USAGE, b'"message_stop"', ERROR, TIMINGS), b'"type"'),
    has_token=record.message_has_token,
    ending=record.message_ending,
    failure=endings.message_failure,
    is_silent=_begins_message,
)
"""`message_start` tells a prompt, some engines an estimate of it; only the end tells the output."""
OTHER: Final = Grammar(
    signs=_events((USAGE, ERROR, DONE_MARK, b'"transcript.text.done"'), b'"choices"', b'"type"'),
    has_token=record.other_has_token,
    ending=record.other_ending,
    failure=endings.chat_failure,
    knows_end=False,
    ends_with_done=True,
)
"""Events on a route that is not known to stream, such as a transcription's: chunks or typed events."""
OLLAMA_CHAT: Final = Grammar(
    signs=Signs((USAGE, ERROR, b'"done":true', b'"done": true'), ends=(b"\n",), chunk_ends=(b"\n\r\n",)),
    has_token=record.ollama_chat_has_token,
    ending=record.ollama_ending,
    failure=endings.ollama_failure,
    is_silent=_repeats_context,
)
OLLAMA_GENERATE: Final = msgspec.structs.replace(OLLAMA_CHAT, has_token=record.ollama_generate_has_token)
"""Its last record holds the whole context as numbers."""

EVENTS: Final[Mapping[Protocol, Grammar]] = {
    "openai_chat": CHAT,
    "openai_completion": COMPLETION,
    "openai_responses": RESPONSES,
    "anthropic": ANTHROPIC,
}
"""Protocols whose streams are server-sent events; `OTHER` where others send them."""
LINES: Final[Mapping[Protocol, Grammar]] = {"ollama_chat": OLLAMA_CHAT, "ollama_generate": OLLAMA_GENERATE}
"""Protocols whose streams are lines of JSON."""
