"""How log lines look: text for people or JSON for machines. Never holds prompts, keys or engines' own lines.

Control characters are escaped, so that nothing a client or an engine sends can start a line of its own.
"""

import datetime as dt
import logging
import sys
from typing import Literal

import msgspec

Format = Literal["text", "json"]
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def escaped(text: str) -> str:
    """The text with control characters written out, on one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _encodable(text: str) -> str:
    """The text with halves of surrogate pairs written out: engines may have them in names, and UTF-8 has none."""
    return text.encode("utf-8", "backslashreplace").decode()


class TextLines(logging.Formatter):
    """`2026-11-30T12:00:00+00:00 INFO message key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of text for one record."""
        stamp = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = f"{stamp} {record.levelname:7} {escaped(record.getMessage())}"
        fields = getattr(record, "fields", None)
        if fields:
            line += "".join(f" {name}={escaped(str(value))}" for name, value in fields.items() if value is not None)
        return line + self._trace(record)

    def _trace(self, record: logging.LogRecord) -> str:
        return "\n" + self.formatException(record.exc_info) if record.exc_info else ""


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, message and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON for one record."""
        stamp = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        row: dict[str, object] = {
            "time": stamp,
            "level": record.levelname.lower(),
            "message": _encodable(record.getMessage()),
        }
        fields: dict[str, object] = getattr(record, "fields", None) or {}
        row |= {name: _encodable(value) if isinstance(value, str) else value for name, value in fields.items()}
        if record.exc_info:
            row["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(row, enc_hook=str).decode()


def set_up(level: str, form: Format) -> None:
    """Send Pharos's log to standard error at `level`, in `form`; libraries only from warning on."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(logging.WARNING)
    logging.getLogger("pharos").setLevel(LEVELS[level])
