"""How log lines look: text for people or JSON for machines. Never holds prompts, keys or engines' own lines.

An event is one line. Whatever is no printable character is escaped, and every text is cut, so that nothing a client or
an engine sends can start a line of its own, end a value, or fill a disk. Only the trace of a fault of Pharos itself
takes more lines, in text: each of them begins with `  | `, which no event does.
"""

import datetime as dt
import logging
import sys
from typing import Final, Literal

import msgspec

Format = Literal["text", "json"]
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LONGEST_MESSAGE: Final = 4000
"""Characters of a message; a list of problems in a configuration is long."""
LONGEST_VALUE: Final = 500
"""Characters of one field."""
LONGEST_TRACE: Final = 20_000
TRACE: Final = "\n  | "
"""What begins each line of a trace in text."""


def escaped(text: str) -> str:
    """The text with control characters written out, on one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, longest: int) -> str:
    """The text, or its beginning with a mark that more followed."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


class TextLines(logging.Formatter):
    """`2026-11-30T12:00:00+00:00 INFO message key=value other="two words" …`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of text for one record."""
        line = f"{_stamp(record)} {record.levelname:7} {escaped(cut(record.getMessage(), LONGEST_MESSAGE))}"
        fields = getattr(record, "fields", None)
        if fields:
            line += "".join(f" {name}={_value(value)}" for name, value in fields.items() if value is not None)
        return line + self._trace(record)

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        lines = cut(self.formatException(record.exc_info), LONGEST_TRACE).split("\n")
        return "".join(f"{TRACE}{escaped(line)}" for line in lines)


def _value(value: object) -> str:
    """A field's value, in quotes where it could be taken for more than one."""
    text = cut(f"{value:.6g}" if isinstance(value, float) else str(value), LONGEST_VALUE)
    if text and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(inside)}"'


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, message and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON for one record."""
        row: dict[str, object] = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "message": _encodable(cut(record.getMessage(), LONGEST_MESSAGE)),
        }
        fields: dict[str, object] = getattr(record, "fields", None) or {}
        row |= {
            name: _encodable(cut(value, LONGEST_VALUE)) if isinstance(value, str) else value
            for name, value in fields.items()
        }
        if record.exc_info:
            row["trace"] = _encodable(cut(self.formatException(record.exc_info), LONGEST_TRACE))
        return _printable(msgspec.json.encode(row, enc_hook=str).decode())


def _encodable(text: str) -> str:
    """The text with halves of surrogate pairs written out: engines may have them in names, and UTF-8 has none."""
    return text.encode("utf-8", "backslashreplace").decode()


def _printable(line: str) -> str:
    r"""A line of JSON with `\u…` for what JSON lets through, and some readers of lines take for their end."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _json_escape(c) for c in line)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _stamp(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")


def set_up(level: str, form: Format) -> None:
    """Send Pharos's log to standard error at `level`, in `form`; libraries only from warning on."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(logging.WARNING)
    logging.getLogger("pharos").setLevel(LEVELS[level])
