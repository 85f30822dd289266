"""Why a stream of lines or events gives nothing (more): a closed set, with words for people.

Forbidden here: quoting what an engine, its log or Docker said.
"""

import enum
from typing import Final

from pharos.core.engine.probe import DropReason


class Fault(enum.StrEnum):
    """What keeps a log or an event stream from being followed."""

    ENDED = "it ended"
    REPLACED = "replaced or cut short"
    """The file is another one now, or was begun anew."""
    CUT = "connection closed"
    NO_CONNECTION = "no connection"
    NOT_FOUND = "not found"
    NO_PERMISSION = "no permission"
    UNAUTHORIZED = "needs a credential"
    NOT_RUNNING = "not running"
    STARTING = "engine is starting"
    STATUS = "error status"
    WRONG_TYPE = "no event stream"
    SILENT = "silent for too long"
    TOO_LARGE = "event too large"
    UNREADABLE = "cannot be read"
    PHAROS = "a fault of Pharos itself"


REASONS: Final = {
    Fault.NOT_FOUND: DropReason.NOT_FOUND,
    Fault.UNAUTHORIZED: DropReason.UNAUTHORIZED,
    Fault.STARTING: DropReason.STARTING,
    Fault.STATUS: DropReason.STATUS,
    Fault.WRONG_TYPE: DropReason.PARSE_ERROR,
    Fault.TOO_LARGE: DropReason.PARSE_ERROR,
    Fault.UNREADABLE: DropReason.PARSE_ERROR,
}
"""What a fault means for a probe that reads the stream; the rest is `FETCH_ERROR`."""


class FeedError(Exception):
    """A log or an event stream cannot be followed, or no longer; its text is for people."""

    def __init__(self, fault: Fault, text: str | None = None) -> None:
        super().__init__(text if text is not None else fault.value)
        self.fault = fault

    @property
    def reason(self) -> DropReason:
        """Why probes that read this stream know nothing."""
        return REASONS.get(self.fault, DropReason.FETCH_ERROR)
