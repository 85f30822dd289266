"""What every tap of a stream knows of its reply, and how it learns it from the records that it reads.

Forbidden here: framing (`sse.py`, `ndjson.py`); what only one protocol means (`grammar.py`).
"""

from typing import Self

from pharos.core.engine.usage_ends import read_ends
from pharos.core.engine.usage_fields import Dialect, Usage, merge, read_json, usage_of
from pharos.proxy.ends import LIMIT, Ends
from pharos.proxy.grammar import Grammar
from pharos.proxy.record import Begun, Ending, Record, is_usage_only
from pharos.proxy.signs import DONE_MARK, matters

_DATA = b"data:"
_SEEN = LIMIT - len(_DATA)
"""Bytes that are there of each record of a line over the limit, however it came."""


class StreamTap:
    """The part of a tap that is the same for all streams."""

    __slots__ = (
        "_begun", "_counts_cached", "_dialect", "_grammar", "_last", "_late", "_long", "_says_done", "_tail",
        "_tail_bytes", "_usage", "ending", "is_between", "is_torn", "saw_token", "signs",
    )  # fmt: skip

    changes_length = True

    def __init__(self, grammar: Grammar, dialect: Dialect, *, counts_cached: bool, says_done: bool = False) -> None:
        self.saw_token = False
        self.is_between = False
        self.is_torn = False
        """It has ended inside a record."""
        self.ending = Ending.OPEN
        self.signs = grammar.signs
        self._late = grammar.signs.late
        self._grammar = grammar
        self._dialect = dialect
        self._counts_cached = counts_cached
        self._usage: Usage | None = None
        self._begun: Begun | None = None
        self._last: Record | None = None
        """The last record that was read; of those after the first token only such as matter are."""
        self._says_done = says_done or dialect.says_done
        self._tail: list[bytes] = []
        """Pieces of a line that has not ended."""
        self._tail_bytes = 0
        self._long: Ends | None = None
        """The ends of a record whose line has not ended and is too long to be kept."""

    @property
    def bare(self) -> Self:
        """This one."""
        return self

    @property
    def knows_end(self) -> bool:
        """Whether a whole stream shows its end."""
        return self._grammar.knows_end

    @property
    def shows_end(self) -> bool:
        """Whether the stream has shown that it is whole, or that it failed."""
        if self.ending is not Ending.OPEN:
            return True
        return self._last is not None and not self.is_torn and self._grammar.is_last(self._last)

    @property
    def is_short(self) -> bool:
        """Whether it surely lacks its end, now that it has ended in good order.

        `[DONE]` is missed only where it is known to come. A stream of nothing at all lacks it anyway.
        """
        grammar = self._grammar
        if self.shows_end or not (grammar.knows_end or self.is_torn):
            return False
        is_empty = self._last is None and not self.saw_token
        return is_empty or self.is_torn or self._says_done or not grammar.ends_with_done

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

    def _is_torn_by(self, last: bytes) -> bool:
        """Whether a last line of an event lacks its end: all are torn but a comment and the protocol's own end."""
        if last.startswith(_DATA):
            self._judge(last[len(_DATA) :].strip())
        return self.ending is Ending.OPEN and last != b"" and not last.startswith(b":")

    def _note(self, record: Record) -> None:
        """Learn from one record."""
        self._last = record
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

    def _untail(self) -> bytes:
        """Take the pieces of the line that has not ended."""
        data = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return data
