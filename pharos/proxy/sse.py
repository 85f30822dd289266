"""Reads a stream of server-sent events while it passes: usage, first token, end, errors. Takes the usage event out.

Forbidden here: I/O, clocks; decoding a line that cannot matter; holding back a complete line that is not usage.

Operations: feed, finish, abandon, error_event. Goal: nearly no work per event after the first token; bounded memory.
Plan: a read that ends with a blank line and holds none of four byte strings goes out as it came. Of any other read,
whole events (and lines of an event that stays) without such a mark go out unread, and the lines around a mark are taken
one by one; an offset moves through the read, nothing of it is copied twice. Only whole lines go out, so that a cut
never leaves half a line behind; but comments go out at once, and a line over `LINE_LIMIT` goes out in pieces, unread.
Lines of an event that may still turn out to be the usage event are held until its blank line.
Warning: where a read was split must not change any output byte, nor usage, nor ending.
"""

import enum

from pharos.core.engine.usage_fields import Usage, merge, read_json, usage_of
from pharos.proxy.record import HAS_TOKEN, Ending, is_error, is_usage_only
from pharos.proxy.sse_marks import (
    DONE_MARK,
    LINE_LIMIT,
    Marks,
    error_event,
    events_end,
    goes_ahead,
    line_end,
    lines_end,
    matters,
)

_BLANKS = (b"\n\n", b"\r\n\r\n")
_LF, _CR, _COLON = 10, 13, 58
_ENDS = (b"\n", b"\r")
_BATCH = 256
"""Bytes of lines that are taken one by one before the next mark is looked for: that costs as much as five lines."""


class _Went(enum.Enum):
    """What became of the last complete line; the LF of a CRLF that a read split goes the same way."""

    OUT = enum.auto()
    HELD = enum.auto()
    AWAY = enum.auto()


class SseTap:
    """Tap of one OpenAI stream (`tap.Tap`)."""

    __slots__ = (
        "_after_cr", "_committed", "_droppable", "_has_token", "_held", "_held_bytes", "_open", "_passing", "_quick",
        "_sent_cr", "_strip", "_tail", "_tail_bytes", "_usage", "_went", "ending", "saw_token",
    )  # fmt: skip

    def __init__(self, protocol: str, *, strip_usage: bool) -> None:
        self.saw_token = False
        self.ending = Ending.OPEN
        self._has_token = HAS_TOKEN[protocol]
        self._strip = strip_usage
        self._usage: Usage | None = None
        self._quick = False
        """Between two events, with the first token seen: the next read may go out unread."""
        self._tail: list[bytes] = []
        """Pieces of a line that has not ended."""
        self._tail_bytes = 0
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
    def usage(self) -> Usage | None:
        """What the reply said about its cost so far; a reply with an error in it is unmetered."""
        return None if self.ending is Ending.ERROR else self._usage

    @property
    def at_event_boundary(self) -> bool:
        """Whether the client has only whole events, so that a new one may follow."""
        return not self._open and not self._passing

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent, return what the client gets now."""
        if self._quick and data.endswith(_BLANKS):
            may_matter = b'"usage"' in data or b'"timings"' in data or b'"error"' in data or b"[DONE]" in data
            if not may_matter or not matters(data):
                return data
        out: list[bytes] = []
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                self._take_lf(out)
                data = data[1:]
        if data:
            self._take(data, out)
        self._quick = self.saw_token and not (
            self._tail or self._held or self._open or self._passing or self._after_cr or self._committed
        )
        return self._sent(out)

    def finish(self) -> bytes:
        """Return the rest, after a clean end of the reply."""
        out: list[bytes] = []
        if self._tail:
            self._take_line(self._untail(), out)
        if self._droppable:
            self._forget()
        self._release(out)
        self._quick = False
        return self._sent(out)

    def abandon(self) -> bytes:
        """Return what may still be sent when the engine broke off: nothing, since only half a line or event is left."""
        self._untail()
        self._forget()
        self._quick = self._after_cr = False
        return b""

    def error_event(self, message: str, code: str) -> bytes:
        """Build an error event that starts on a fresh line after whatever the client has; call `abandon` first."""
        ends = 2 if self._passing or (self._open and self._sent_cr) else int(self._open)
        self._open = self._passing = self._committed = self._quick = False
        return b"\n" * ends + error_event(message, code)

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
        marks = Marks(data)
        while at < size:
            start, stop = at, marks.after(at, early=not self.saw_token)
            if stop - at >= _BATCH and not self._droppable:
                if at >= blankless:
                    at, blankless = self._pass_events(data, at, stop, out), stop
                if self._committed and not data.startswith(_ENDS, at):
                    at = self._pass_on(data, at, lines_end(data, at, stop), out)
            if at == start:
                at = line_end(data, at + _BATCH)
                self._take_lines(data[start:at], out)
        self._after_cr = data[-1] == _CR

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
            self._passing = False
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
            out.append(data)
            return
        if not self._tail and data[0] == _COLON:
            self._open = self._passing = True
            out.append(data)
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
            self._passing = False
            out.append(line)
        elif line[0] in (_LF, _CR):
            self._take_blank(line, out)
        elif line[0] == _COLON:
            self._open = True
            out.append(line)
        elif len(line) > LINE_LIMIT:
            self._take_long(line, out)
        else:
            is_chunk = line.startswith(b"data:")
            drop = self._judge(line[5:].strip()) and self._strip if is_chunk else False
            if not self._strip or self._committed or (is_chunk and (self._droppable or not drop)):
                self._commit(line, out)
            else:
                self._droppable = drop or self._droppable
                self._hold(line, out, len(line))

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
        """Take a line, or the beginning of one, that is too long to be read: surely output of the model."""
        self.saw_token = self.saw_token or data.startswith(b"data:")
        self._commit(data, out)

    def _judge(self, payload: bytes) -> bool:
        """Read the payload of one data line; tells whether it is the chunk to take out."""
        if payload == DONE_MARK:
            if self.ending is Ending.OPEN:
                self.ending = Ending.COMPLETED
            return False
        if self.saw_token and not matters(payload):
            return False
        record = read_json(payload) if payload.startswith(b"{") and payload.endswith(b"}") else None
        if not isinstance(record, dict):
            return False
        if is_error(record):
            self.ending = Ending.ERROR
        self.saw_token = self.saw_token or self._has_token(record)
        usage = usage_of(record)
        if usage is not None:
            self._usage = merge(self._usage, usage)
        return is_usage_only(record)

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

    def _untail(self) -> bytes:
        data = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return data
