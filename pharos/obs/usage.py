"""Which finished requests are usage, put into the book; and the book as one page tells it: `/usage`, JSON or CSV.

Forbidden here: deciding what a quota allows, and zones (days come as numbers, and are named by whoever knows the zone).
"""

import csv
import io
from collections.abc import Callable, Generator, Mapping
from datetime import date
from typing import Final

import msgspec

from pharos.clock import Clock
from pharos.core.usage import Count, UsageBook
from pharos.core.usage.book import MONTH_DAYS
from pharos.core.usage.cells import By
from pharos.obs.replies import JSON, fault_page
from pharos.proxy.done import CLIENT_LEFT_STATUS, Done
from pharos.proxy.errors import ClientFault, admin_only, shown
from pharos.proxy.incoming import Steps
from pharos.proxy.table import ALL

GENERATING: Final = frozenset(route.path for route in ALL if route.takes_slot)
"""Routes whose requests are usage: on the others engines answer at once, beside their generations."""
FIRST_ERROR: Final = 400
COLUMNS: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "unmetered")
PARAMETERS: Final = ("by", "from", "to", "format")
NAMED_DAYS: Final = range(date(2, 1, 1).toordinal(), date(9999, 1, 1).toordinal())
"""Days that every zone can name; what a peer tells of others is nobody's."""
ROWS_AT_ONCE: Final = 500
"""Rows after which others get their turn: about a millisecond's work."""
CSV: Final = "text/csv; charset=utf-8"
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Spreadsheets take what begins so for a formula, and some run it: names come from engines, too."""


def is_usage(done: Done) -> bool:
    """Whether an engine served this request: one that all engines refused, or none was asked for, used nothing."""
    if done.target is None or done.path not in GENERATING:
        return False
    return done.status < FIRST_ERROR or done.status == CLIENT_LEFT_STATUS or done.usage is not None


def count(book: UsageBook, done: Done) -> None:
    """Put a finished request into the book, on the day on which it ended."""
    if not is_usage(done) or done.key is None or done.model is None:
        return
    usage = done.usage
    book.count(
        done.key,
        done.model,
        done.at_wall + done.duration_s,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
    )


class Question(msgspec.Struct, frozen=True):
    """What a request for the page asks for."""

    by: By
    first_day: int
    last_day: int
    """Included."""
    as_csv: bool


class UsagePage:
    """Answers `/usage`."""

    def __init__(
        self, book: UsageBook, *, wall: Clock, day_start: Callable[[int], str], settle: Callable[[], None]
    ) -> None:
        """`day_start`: the start of a day by its number, in RFC 3339 with the zone's offset.

        `settle` counts requests that have ended and are not yet in the book.
        """
        self._book = book
        self._wall = wall
        self._day_start = day_start
        self._settle = settle

    def __repr__(self) -> str:
        return f"<UsagePage {self._book!r}>"

    def page(self, query: Mapping[str, str], _accept: str, is_admin: bool) -> Steps:  # noqa: FBT001 (as the proxy calls)
        """The rows of some days; 403 for a key that may not read of everybody's requests, 400 for a wrong question."""
        if not is_admin:
            return fault_page(admin_only("/usage"))
        self._settle()
        try:
            asked = question(query, self._book.day(self._wall()).number)
        except ValueError as fault:
            return fault_page(ClientFault(400, "invalid_value", str(fault)))
        rows: list[tuple[str, str, Count]] = []
        for day in self._days(asked):
            start = self._day_start(day)
            rows += [(start, name, one) for name, one in sorted(self._book.cells.of_day(day, asked.by).items())]
            yield
        return 200, *(yield from (_as_csv if asked.as_csv else _as_json)(asked.by, rows))

    def _days(self, asked: Question) -> list[int]:
        """The days of the question on which there was any usage, in order."""
        found = self._book.cells.days()
        return [day for day in found if asked.first_day <= day <= asked.last_day and day in NAMED_DAYS]


def question(query: Mapping[str, str], today: int) -> Question:
    """Read what is asked for. Raises `ValueError` with a sentence for people. `today`: number of the day."""
    unknown = [name for name in query if name not in PARAMETERS]
    if unknown:
        raise ValueError(f"there is no parameter {shown(unknown[0])!r}: /usage takes {', '.join(PARAMETERS)}")
    by = query.get("by", "key")
    if by not in ("key", "model"):
        raise ValueError(f"by={shown(by)!r} is neither key nor model")
    wanted = query.get("format", "json")
    if wanted not in ("json", "csv"):
        raise ValueError(f"format={shown(wanted)!r} is neither json nor csv")
    last = _day("to", query["to"]) if "to" in query else today
    first = _day("from", query["from"]) if "from" in query else last - MONTH_DAYS + 1
    if first > last:
        raise ValueError(f"from is after the last day, {date.fromordinal(last)}: swap them, or give `to` as well")
    return Question("model" if by == "model" else "key", first, last, wanted == "csv")


def _day(name: str, text: str) -> int:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or text != found.isoformat():  # Python reads other forms of ISO 8601 too
        raise ValueError(f"{name}={shown(text)!r} is no date: write it like 2026-09-01")
    return found.toordinal()


def _as_json(by: By, rows: list[tuple[str, str, Count]]) -> Generator[None, None, tuple[str, bytes]]:
    parts = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = [
            {"day": day, by: name, **{column: getattr(one, column) for column in COLUMNS}}
            for day, name, one in rows[start : start + ROWS_AT_ONCE]
        ]
        parts.append(msgspec.json.encode(some)[1:-1])
        yield
    return JSON, b"[" + b",".join(parts) + b"]"


def _as_csv(by: By, rows: list[tuple[str, str, Count]]) -> Generator[None, None, tuple[str, bytes]]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(("day", by, *COLUMNS))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        for day, name, one in rows[start : start + ROWS_AT_ONCE]:
            writer.writerow((day, _as_text(name), *(getattr(one, column) for column in COLUMNS)))
        yield
    return CSV, text.getvalue().encode("utf-8", "replace")


def _as_text(name: str) -> str:
    """A name as a cell that every spreadsheet takes for text; JSON has it as it is."""
    return f"'{name}" if name.startswith(FORMULA) else name
