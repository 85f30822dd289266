"""What every tap of a stream knows of its reply, and how it learns it from the records that it reads.

Forbidden here: framing (`sse.py`, `ndjson.py`); what only one protocol means (`grammar.py`).
"""

from pharos.core.engine.usage_ends import read_ends
from pharos.core.engine.usage_fields import Dialect, Usage, merge, read_json, usage_of
from pharos.proxy.ends import LIMIT, Ends
from pharos.proxy.grammar import Grammar
from pharos.proxy.record import Begun, Ending, Record, is_usage_only
from pharos.proxy.signs import DONE_MARK, matters

_SEEN = LIMIT - len(b"data:")
"""Bytes that are there of each record of a line over the limit, however it came."""


class StreamTap:
    """The part of a tap that is the same for all streams."""

    __slots__ = (
        "_begun", "_counts_cached", "_dialect", "_grammar", "_late", "_long", "_usage", "ending", "is_between",
        "saw_token", "signs",
    )  # fmt: skip

    def __init__(self, grammar: Grammar, dialect: Dialect, *, counts_cached: bool) -> None:
        self.saw_token = False
        self.is_between = False
        self.ending = Ending.OPEN
        self.signs = grammar.signs
        self._late = grammar.signs.late
        self._grammar = grammar
        self._dialect = dialect
        self._counts_cached = counts_cached
        self._usage: Usage | None = None
        self._begun: Begun | None = None
        self._long: Ends | None = None
        """The ends of a record whose line has not ended and is too long to be kept."""

    @property
    def knows_end(self) -> bool:
        """Whether a whole stream shows its end."""
        return self._grammar.knows_end

    @property
    def usage(self) -> Usage | None:
        """What the reply said about its cost so far; a reply with an error in it is unmetered.

        Of a stream that was cut, chunks of chat and completions have told what they told; the other protocols nothing.
        """
        if self.ending is Ending.ERROR or (self.ending is Ending.OPEN and self._grammar.usage_needs_end):
            return None
        return self._usage

    def _judge(self, payload: bytes) -> bool:
        """Read what may be a record, without blanks around it; tells whether it is a chunk of nothing but usage."""
        if payload == DONE_MARK:
            if self._grammar.ends_with_done and self.ending is Ending.OPEN:
                self.ending = Ending.COMPLETED
            return False
        if self.saw_token and not matters(payload, self._late):
            return False
        record = read_json(payload) if payload.startswith(b"{") and payload.endswith(b"}") else None
        if not isinstance(record, dict):
            return False
        self._note(record)
        return is_usage_only(record)

    def _note(self, record: Record) -> None:
        """Learn from one record."""
        grammar = self._grammar
        ending = grammar.ending(record)
        if ending is Ending.ERROR or (ending is not None and self.ending is Ending.OPEN):
            self.ending = ending
        if not self.saw_token:
            self.saw_token = grammar.has_token(record)
            self._begun = self._begun or grammar.begun(record)
        usage = usage_of(record, self._dialect, counts_cached=self._counts_cached)
        if usage is not None:
            self._usage = merge(self._usage, usage)

    def _begin_long(self, data: bytes) -> None:
        """Take a record, or the beginning of one, that is too long to be kept: it is output, if not known better."""
        if not self._grammar.reads_long:
            self.saw_token = True
            return
        self._long = ends = Ends()
        ends.add(data)
        if not self.saw_token:
            self.saw_token = not self._grammar.is_silent(read_ends(data[:_SEEN], b""))

    def _end_long(self) -> None:
        """Learn from the two ends of a long record, if there is one."""
        ends, self._long = self._long, None
        if ends is not None and (matters(ends.head, self._late) or matters(ends.tail, self._late)):
            self._note(read_ends(ends.head, ends.tail))
