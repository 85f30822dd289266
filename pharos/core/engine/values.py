"""Turns what a feed said into a value of its signal, or refuses. Every probe constructor goes through here.

Forbidden here: guessing.
"""

import math
import re

from pharos.core.engine.probe import DropReason, ProbeError
from pharos.core.signals import Residency, Signal, Value

LIMITS: dict[Signal, tuple[int, int]] = {
    Signal.RUNNING: (0, 1_000_000),
    Signal.WAITING: (0, 1_000_000),
    Signal.CAPACITY: (1, 1_000_000),
    Signal.CONTEXT_LENGTH: (1, 1_000_000_000),
    Signal.SIZE_BYTES: (1, 1 << 50),
    Signal.VRAM_BYTES: (0, 1 << 50),
    Signal.GPU_TOTAL_BYTES: (1, 1 << 50),
    Signal.GPU_USED_BYTES: (0, 1 << 50),
    Signal.MODELS_AT_ONCE: (1, 1_000_000),
    Signal.CACHED_TOKENS: (0, 1_000_000_000_000),
}
"""Whole-number signals: the least and the largest value that can be true. Engines write 0 where they mean "not
told"."""

NUMBERS = frozenset({*LIMITS, Signal.KV_USAGE, Signal.WORK_DONE})
"""Signals whose value is a number per model or backend."""

MOST_WORK = 1 << 53
"""Beyond it a counter kept as a float no longer moves by one."""
MAX_BODY = 1 << 20
"""Bytes of a body that is parsed: more would stall the loop, and no status page is that large."""

_DIGITS = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
SHOWN = 40
"""Characters of an engine's own text that an explanation may quote."""


def quoted(text: object) -> str:
    """Show an engine's text inside an explanation: short, in quotes, without control characters."""
    shown = repr(text)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


def number(signal: Signal, raw: object) -> int | float:
    """Check that a number can be a value of `signal`.

    Raises `ProbeError`: no number, not finite, fractional, out of bounds.
    """
    if type(raw) is not int and type(raw) is not float:  # a bool is no count, and text is no number
        raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(raw)} is no number")
    if isinstance(raw, float) and math.isnan(raw):  # an engine's own way to say that it does not know
        raise ProbeError(DropReason.NO_VALUE, "the engine says NaN")
    if signal is Signal.KV_USAGE:
        if not 0 <= raw <= 1:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(raw)} is no share between 0 and 1")
        return float(raw)
    if signal is Signal.WORK_DONE:
        if not 0 <= raw <= MOST_WORK:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(raw)} is no amount of work")
        return float(raw)
    least, most = LIMITS[signal]
    checked = whole(raw, most, signal.value)
    if checked < least:
        raise ProbeError(DropReason.NO_VALUE, f"{signal.value} 0 means that the engine does not tell")
    return checked


def whole(raw: object, most: int, what: str) -> int:
    """Check that a number is whole and from 0 to `most`. Raises `ProbeError`."""
    if (type(raw) is not int and type(raw) is not float) or not 0 <= raw <= most or raw != int(raw):
        raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(raw)} cannot be {what}")
    return int(raw)


def from_text(signal: Signal, text: str) -> Value:
    """Read a value of `signal` written as text. Raises `ProbeError`."""
    if signal is Signal.VERSION:
        if not text.strip():
            raise ProbeError(DropReason.NO_VALUE, "empty")
        return text.strip()
    if signal is Signal.RESIDENCY:
        try:
            return Residency(text)
        except ValueError:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(text)} is no residency") from None
    if signal is Signal.KV_USAGE and _DECIMAL.fullmatch(text):
        return number(signal, float(text))
    if signal in LIMITS and _DIGITS.fullmatch(text):
        return number(signal, int(text))
    raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(text)} cannot be {signal.value}")


def decoded(body: bytes) -> str:
    """Return a body as text. Raises `ProbeError` for what is too long or no UTF-8."""
    if len(body) > MAX_BODY:
        raise ProbeError(DropReason.PARSE_ERROR, f"body longer than {MAX_BODY} bytes")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise ProbeError(DropReason.PARSE_ERROR, "not UTF-8") from None
