"""Reads a stream of JSON lines, as Ollama sends them, while it passes: usage, first token, end, errors.

Forbidden here: I/O, clocks; changing a byte; holding back a whole line.

Only whole lines go out, so that a cut never leaves half a line behind; but a line over the limit goes out in pieces,
and is read at its two ends. Only LF ends a line: a CR is a blank to JSON.
"""

from pharos.core.engine.usage_fields import PLAIN, Dialect
from pharos.proxy.ends import LIMIT
from pharos.proxy.grammar import LINES
from pharos.proxy.protocol import Protocol
from pharos.proxy.signs import matters
from pharos.proxy.streamtap import StreamTap

_LF = b"\n"


class NdjsonTap(StreamTap):
    """Tap of one stream of lines (`tap.Tap`)."""

    __slots__ = ()

    def __init__(self, protocol: Protocol, *, dialect: Dialect = PLAIN, counts_cached: bool = False) -> None:
        super().__init__(LINES[protocol], dialect, counts_cached=counts_cached)

    def __repr__(self) -> str:
        return f"<NdjsonTap {self.ending} token={self.saw_token} held={self._tail_bytes}>"

    @property
    def at_event_boundary(self) -> bool:
        """Whether the client has only whole lines."""
        return self._long is None

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent, return what the client gets now."""
        if self.is_between and data.endswith(_LF):
            first, second, third, fourth = self._late
            find = data.rfind  # as in sse.py
            if find(first) < 0 and find(second) < 0 and find(third) < 0 and find(fourth) < 0:
                return data
        sent = self._take(data)
        self.is_between = self.saw_token and not self._tail and self._long is None
        return sent

    def finish(self) -> bytes:
        """Return the rest, after a clean end of the reply: the last line may lack its end, not its last brace."""
        rest = self._untail()
        self._read(rest)
        if self._long is not None and self._long.tail.rstrip().endswith(b"}"):
            self._end_long()
        self.is_between = False
        return rest

    def abandon(self) -> bytes:
        """Return what may still be sent when the engine broke off: nothing, since only half a line is left."""
        self._untail()
        self.is_between = False
        return b""

    def error_event(self, message: str, code: str) -> bytes:
        """Build a line that tells of the failure, behind the end of whatever the client has; call `abandon` first."""
        lead = b"" if self._long is None else _LF
        self._long = None
        return lead + self._grammar.failure(message, code, self._begun)

    def _take(self, data: bytes) -> bytes:
        lead = b""
        if self._long is not None:
            at = data.find(_LF) + 1
            self._long.add(data[:at] if at else data)
            if not at:
                return data
            self._end_long()
            lead, data = data[:at], data[at:]
        at = data.rfind(_LF) + 1
        if not at:
            return lead + self._keep(data)
        lines = self._untail() + data[:at]
        self._read(lines)
        return lead + lines + self._keep(data[at:])

    def _keep(self, data: bytes) -> bytes:
        """Keep the beginning of a line; returns it when it is too long for that."""
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        if self._tail_bytes <= LIMIT:
            return b""
        held = self._untail()
        self._begin_long(held)
        return held

    def _read(self, lines: bytes) -> None:
        """Read the lines that may matter."""
        if self.saw_token and not matters(lines, self._late):
            return
        for line in lines.split(_LF):
            if len(line) > LIMIT:
                self._begin_long(line)
                self._end_long()
            else:
                self._judge(line.strip())
