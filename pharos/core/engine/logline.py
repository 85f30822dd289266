"""Log lines: the probe constructor that matches one line. Following a log is not done here.

Forbidden here: keeping or quoting a line. Engine logs hold prompts; only the captured model name and value leave.
"""

import re

from pharos.core.engine.patterns import TooMuchError, check
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe, ProbeError
from pharos.core.engine.values import NUMBERS, from_text
from pharos.core.signals import BACKEND, Found, Signal

LOG = Feed(kind=FeedKind.LOG)
"""The one log feed of a backend."""
MAX_LINE = 8192
"""Bytes of a line that is looked at: engines' state lines are short, prompts are not."""
MAX_OWN_LINE = 1024
"""The same for the operator's patterns, which are not as quick as those written here."""
READABLE = NUMBERS | {Signal.VERSION, Signal.RESIDENCY}
"""Signals that a line can tell. A model list is no line."""


def log_line(
    name: str,
    signal: Signal,
    pattern: str,
    value: str | None = None,
    *,
    own: bool = False,
    beside: bool = False,
    rank: int = 0,
) -> Probe:
    """Declare a probe that searches each line for a regular expression.

    Its group `value` holds the value, or `value` is what a matching line says ("cold"); its group `model` names the
    model. The probe's `parse` gets one line as the page's body and returns nothing for a line that does not match;
    for one that matches with an unusable value it raises `ProbeError`. Raises `ValueError` for a declaration that
    cannot be right, or has a pattern that some line could make slow.
    """
    if signal not in READABLE:
        raise ValueError(f"{name}: {signal.value} cannot be read from a line")
    longest = MAX_OWN_LINE if own else MAX_LINE
    try:
        check(pattern, longest)
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{name}: not a regular expression: {error}") from None
    except TooMuchError as error:
        raise ValueError(f"{name}: the pattern {error}") from None
    if ("value" in compiled.groupindex) == (value is not None):
        raise ValueError(f"{name}: either a group named `value` or a fixed value")
    if value is not None:
        try:
            from_text(signal, value)
        except ProbeError as error:
            raise ValueError(f"{name}: {error.detail}") from None

    def parse(page: Page) -> Found:
        return _read(compiled, signal, value, page.body) if len(page.body) <= longest else {}

    return Probe(name=name, signal=signal, feed=LOG, parse=parse, own=own, beside=beside, rank=rank)


def _read(compiled: re.Pattern[str], signal: Signal, value: str | None, line: bytes) -> Found:
    """Return what one line says; nothing when it does not match."""
    matched = compiled.search(line.decode("utf-8", "replace"))
    if matched is None:
        return {}
    model = matched["model"] if "model" in compiled.groupindex else BACKEND
    text = value if value is not None else matched["value"]
    if model is None or text is None or (not model and "model" in compiled.groupindex):
        raise ProbeError(DropReason.PARSE_ERROR, "the line names no model or value")
    try:
        return {model: from_text(signal, text)}
    except ProbeError as error:  # without its detail: that quotes the line
        raise ProbeError(error.reason, "the line's value is unusable") from None
