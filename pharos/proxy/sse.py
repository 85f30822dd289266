"""Reads a stream of server-sent events while it passes: usage, first token, end, errors. Takes the usage event out.

Forbidden here: I/O, clocks; decoding a line that cannot matter; holding back a complete line that is not usage; what
only one protocol means (`grammar.py`).

Operations: feed, finish, abandon, error_event. Goal: nearly no work per event after the first token; bounded memory.
Plan: a read that ends with a blank line and holds none of four byte strings goes out as it came. Of any other read,
whole events (and lines of an event that stays) without such a mark go out unread, and the lines around a mark are taken
one by one; an offset moves through the read, nothing of it is copied twice. Only whole lines go out, so that a cut
never leaves half a line behind; but comments go out at once, and a line over `LINE_LIMIT` goes out in pieces, of which
only the two ends are read, where its protocol says so.
Lines of an event that may still turn out to be the usage event are held until its blank line. Lines ahead of the data
of any event are held until that comes: an event with a name and nothing in it makes clients fail where it was cut.
Warning: where a read was split must not change any output byte, nor usage, nor ending.
"""

import enum

from pharos.core.engine.usage_fields import PLAIN, Dialect
from pharos.proxy.grammar import EVENTS, OTHER
from pharos.proxy.protocol import Protocol
from pharos.proxy.record import Ending
from pharos.proxy.signs import matters
from pharos.proxy.sse_marks import LINE_LIMIT, Marks, events_end, goes_ahead, line_end, lines_end
from pharos.proxy.streamtap import StreamTap

_BLANKS = (b"\n\n", b"\r\n\r\n")
_LF, _CR, _COLON = 10, 13, 58
_ENDS = (b"\n", b"\r")
_DATA = b"data:"
_BATCH = 256
"""Bytes of lines that are taken one by one before the next mark is looked for: that costs as much as five lines."""


class _Went(enum.Enum):
    """What became of the last complete line; the LF of a CRLF that a read split goes the same way."""

    OUT = enum.auto()
    HELD = enum.auto()
    AWAY = enum.auto()


class SseTap(StreamTap):
    """Tap of one stream of events (`tap.Tap`)."""

    __slots__ = (
        "_after_cr", "_committed", "_droppable", "_held", "_held_bytes", "_open", "_passing", "_sent_cr", "_strip",
        "_went",
    )  # fmt: skip

    def __init__(
        self, protocol: Protocol, *, strip_usage: bool, dialect: Dialect = PLAIN, counts_cached: bool = False,
        says_done: bool = False,
    ) -> None:  # fmt: skip
        grammar = EVENTS.get(protocol, OTHER)
        super().__init__(grammar, dialect, counts_cached=counts_cached, says_done=says_done)
        self._strip = strip_usage
        self._held: list[bytes] = []
        """Complete lines of the open event that may yet be taken out."""
        self._held_bytes = 0
        self._droppable = False
        """The held lines hold the usage chunk."""
        self._committed = False
        """A line of the open event went out that was no comment: the event stays."""
        self._passing = False
        """Inside a line whose beginning went out."""
        self._open = False
        """The client has lines of an event whose blank line it has not."""
        self._after_cr = self._sent_cr = False
        self._went = _Went.OUT

    def __repr__(self) -> str:
        return f"<SseTap {self.ending} token={self.saw_token} held={self._held_bytes + self._tail_bytes}>"

    @property
    def at_event_boundary(self) -> bool:
        """Whether the client has only whole events, so that a new one may follow."""
        return not self._open and not self._passing

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent, return what the client gets now."""
        if self.is_between and data.endswith(_BLANKS):
            first, second, third, fourth = self._late
            find = data.rfind  # half the time of `find`, and `in` makes and drops an exception each time
            may_matter = find(first) >= 0 or find(second) >= 0 or find(third) >= 0 or find(fourth) >= 0
            if not may_matter or not matters(data, self._late):
                return data
        out: list[bytes] = []
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                self._take_lf(out)
                data = data[1:]
        if data:
            self._take(data, out)
        self.is_between = self.saw_token and not (
            self._tail or self._held or self._open or self._passing or self._after_cr or self._committed
        )
        return self._sent(out)

    def finish(self) -> bytes:
        """Return the rest, after a clean end of the reply: not a line without its end, unless it is of no matter.

        An error, or the record that finishes, gets the blank line that it lacks: clients skip an event without one.
        """
        out: list[bytes] = []
        last = self._untail()
        self.is_torn = self.ending is Ending.OPEN and ((self._passing and self._committed) or self._is_torn_by(last))
        if last and not self.is_torn:
            self._take_line(last, out)
        self._long = None  # a line that has ended was read
        if self._droppable:
            self._forget()
        self._release(out)
        self.is_between = False
        sent = self._sent(out)
        if self._committed and self.ending is not Ending.COMPLETED and self.shows_end:
            return sent + (b"\n\n" if last or self._sent_cr else b"\n")
        return sent

    def abandon(self) -> bytes:
        """Return what may still be sent when the engine broke off: nothing, since only half a line or event is left."""
        self._untail()
        self._forget()
        self._long = None
        self.is_between = self._after_cr = False
        return b""

    def error_event(self, message: str, code: str) -> bytes:
        """Build an error event that starts on a fresh line after whatever the client has; call `abandon` first."""
        ends = 2 if self._passing or (self._open and self._sent_cr) else int(self._open)
        self._open = self._passing = self._committed = self.is_between = False
        return b"\n" * ends + self._grammar.failure(message, code, self._begun)

    def _sent(self, out: list[bytes]) -> bytes:
        sent = b"".join(out)
        self._sent_cr = sent[-1] == _CR if sent else self._sent_cr
        return sent

    def _take_lf(self, out: list[bytes]) -> None:
        """Take the LF of a CRLF whose CR ended the last read."""
        if self._went is _Went.OUT:
            out.append(b"\n")
        elif self._went is _Went.HELD:
            self._hold(self._held.pop() + b"\n", out, 1)

    def _take(self, data: bytes, out: list[bytes]) -> None:
        if b"\n" not in data and b"\r" not in data:
            self._take_piece(data, out)
            return
        if self._tail:
            self._tail.append(data)
            data = self._untail()
        at, size, blankless = 0, len(data), 0
        if self._passing:
            at = line_end(data, 0)
            self._take_lines(data[:at], out)
        self._after_cr = data[-1] == _CR
        if size - at < _BATCH:
            self._take_lines(data[at:], out)
            return
        signs = self.signs
        marks = Marks(data, signs.early)
        while at < size:
            early = not self.saw_token
            start, stop = at, marks.after(at, signs.early if early else signs.late, early=early)
            if stop - at >= _BATCH and not self._droppable:
                if at >= blankless:
                    at, blankless = self._pass_events(data, at, stop, out), stop
                if self._committed and not data.startswith(_ENDS, at):
                    at = self._pass_on(data, at, lines_end(data, at, stop), out)
            if at == start:
                at = line_end(data, at + _BATCH)
                self._take_lines(data[start:at], out)

    def _pass_events(self, data: bytes, at: int, stop: int, out: list[bytes]) -> int:
        """Let whole events go out, unread; returns where they end. Comments go ahead of held lines here as well."""
        end = events_end(data, at, stop)
        if self._strip and goes_ahead(data, at, end, held=bool(self._held)):
            self._take_lines(data[at:end], out)
        elif end > at:
            self._release(out)
            self._committed = self._open = False
            self._pass_on(data, at, end, out)
        return end

    def _pass_on(self, data: bytes, at: int, end: int, out: list[bytes]) -> int:
        if end > at:
            out.append(data[at:end])
            self._went = _Went.OUT
        return end

    def _take_lines(self, data: bytes, out: list[bytes]) -> None:
        """Take lines one by one; the last may lack its end."""
        for line in data.splitlines(keepends=True):
            take = self._take_line if line[-1] in (_LF, _CR) else self._take_piece
            take(line, out)

    def _take_piece(self, data: bytes, out: list[bytes]) -> None:
        """Take bytes without a line end."""
        if self._passing:
            if self._long is not None:
                self._long.add(data)
            out.append(data)
            return
        if not self._tail and data[0] == _COLON:
            self._take_comment(data, out)
            self._passing = True
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        if self._tail_bytes > LINE_LIMIT:
            self._take_long(self._untail(), out)
            self._passing = True

    def _take_line(self, line: bytes, out: list[bytes]) -> None:
        """Take one complete line with its end (at the end of a reply it may lack one)."""
        self._went = _Went.OUT
        if self._passing:
            if self._long is not None:
                self._long.add(line.rstrip(b"\r\n"))
                self._end_long()
            self._passing = False
            out.append(line)
        elif line[0] in (_LF, _CR):
            self._take_blank(line, out)
        elif line[0] == _COLON:
            self._take_comment(line, out)
        elif len(line) > LINE_LIMIT:
            self._take_long(line, out)
            self._end_long()
        else:
            is_chunk = line.startswith(_DATA)
            drop = is_chunk and self._judge(line[len(_DATA) :].strip()) and self._strip
            if self._committed or (is_chunk and (self._droppable or not drop)):
                self._commit(line, out)
            else:
                self._droppable = drop or self._droppable
                self._hold(line, out, len(line))

    def _take_comment(self, data: bytes, out: list[bytes]) -> None:
        """Take a comment, or its beginning: it never waits, nor, where nothing is taken out, do lines ahead of it."""
        if not self._strip:
            self._release(out)
        elif self._held and self._held[-1][-1] == _CR:  # it and the LF of a blank line would be one end, not two
            self._held[-1] = self._held[-1][:-1] + b"\n"
        self._open = True
        out.append(data)

    def _take_blank(self, line: bytes, out: list[bytes]) -> None:
        if self._droppable:
            self._forget()
            if self._open:  # a comment inside the event went ahead, and this line ends it
                out.append(line)
            else:
                self._went = _Went.AWAY
        else:
            self._release(out)
            out.append(line)
        self._committed = self._open = False

    def _take_long(self, data: bytes, out: list[bytes]) -> None:
        """Take a line, or the beginning of one, that is too long to be kept."""
        if data.startswith(_DATA):
            self._begin_long(data[len(_DATA) :].rstrip(b"\r\n"))
        self._commit(data, out)

    def _commit(self, line: bytes, out: list[bytes]) -> None:
        self._release(out)
        self._committed = self._open = True
        out.append(line)

    def _hold(self, line: bytes, out: list[bytes], more: int) -> None:
        self._held.append(line)
        self._held_bytes += more
        self._went = _Went.HELD
        if self._held_bytes > LINE_LIMIT:
            self._release(out)
            self._committed = True
            self._went = _Went.OUT

    def _release(self, out: list[bytes]) -> None:
        if self._held:
            out.extend(self._held)
            self._open = True
            self._forget()

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        self._droppable = False
