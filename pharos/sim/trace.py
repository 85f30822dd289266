"""Requests from a file: Mooncake's traces, Azure's, and the decision log of Pharos.

A line that cannot be read is named by its number, and the file refused; or, if wanted, left out and counted.
Forbidden here: text of prompts, which none of these files has.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pharos.core.prefix import Chain
from pharos.sim.asks import Ask, Turn

BLOCK_TOKENS: Final = 512
"""Tokens that one of Mooncake's hashes stands for."""
BYTES_PER_TOKEN: Final = 4
SHOWN: Final = 5
"""Broken lines that a message names."""
MOST_TOKENS: Final = 10_000_000
"""No prompt or reply is longer: a number above it is a fault of the file."""
_MASK: Final = 2**64 - 1
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Makes small numbers of blocks look like hashes."""


class TraceError(ValueError):
    """A file that cannot be used; the message says why, for people."""


class Row(Struct, frozen=True):
    """One request of a file."""

    at_s: float
    """Seconds since some moment that all rows share."""
    prompt_tokens: int
    output_tokens: int
    hashes: tuple[int, ...] = ()
    """Of the prompt's beginnings; none: nothing is known of what it shares with others."""
    ends: tuple[int, ...] = ()
    """Bytes up to each; none: blocks of `BLOCK_TOKENS`."""
    key: str = "trace"
    model: str | None = None
    max_tokens: int | None = None


class Trace(Struct, frozen=True):
    """A file's requests, in the order of their times, the first at 0."""

    rows: tuple[Row, ...]
    skipped: int
    """Broken lines that were left out."""
    form: str


def read(path: Path, *, skip_bad: bool = False, limit: int | None = None) -> Trace:
    """Read a trace, packed or not, in whichever of the three forms. `limit`: no more requests than that.

    Raises `TraceError`, which names the broken lines, unless they may be skipped.
    """
    rows: list[Row] = []
    bad: list[tuple[int, str]] = []
    form = ""
    parse: Callable[[str], Row | None] = _unknown
    for number, line in lines_of(path):
        if not form:
            form, parse = _form_of(line, number, path)
            if form == "azure":
                continue
        try:
            row = parse(line)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as fault:
            bad.append((number, _said(fault)))
            continue
        if row is not None:
            rows.append(row)
        if limit is not None and len(rows) >= limit:
            break
    if bad and not skip_bad:
        raise refuse(path, bad)
    if not rows:
        raise TraceError(f"{path}: there is no request in it")
    rows.sort(key=lambda row: row.at_s)
    began = rows[0].at_s
    return Trace(tuple(_moved(row, row.at_s - began) for row in rows), len(bad), form)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank; unpacked if its name ends in `.gz`. Raises `TraceError`."""
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as fault:
        raise TraceError(f"{path}: cannot be read: {_why(fault)}") from None


def _why(fault: Exception) -> str:
    if isinstance(fault, FileNotFoundError):
        return "there is no such file; is the path right?"
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)


def refuse(path: Path, bad: Sequence[tuple[int, str]]) -> TraceError:
    """The error that names broken lines: their numbers, and what is wrong with each."""
    named = "; ".join(f"line {number}: {why}" for number, why in bad[:SHOWN])
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return TraceError(f"{path}: {named}{more} (--skip-bad leaves such lines out)")


def turns(trace: Trace, models: tuple[str, ...], *, faster: float = 1.0, scale: float = 1.0) -> Iterator[Turn]:
    """The requests as a simulator asks them. `faster`: times as many in a second; `scale`: of all lengths.

    Models of the file that the fleet lacks take its models' places, in the order in which they come.
    """
    names: dict[str | None, str] = {}
    for number, row in enumerate(trace.rows):
        model = row.model if row.model in models else names.setdefault(row.model, models[len(names) % len(models)])
        yield Turn(row.at_s / faster, _ask(row, number, model or models[0], scale))


def _ask(row: Row, number: int, model: str, scale: float) -> Ask:
    prompt = max(round(row.prompt_tokens * scale), 1)
    whole = prompt * BYTES_PER_TOKEN
    if row.ends:
        ends = [max(round(end * scale), 1) for end in row.ends]
        whole = max(whole, ends[-1])
    else:
        ends = [min(round((i + 1) * BLOCK_TOKENS * scale), prompt) * BYTES_PER_TOKEN for i in range(len(row.hashes))]
    hashes = [link * _SPREAD & _MASK for link in row.hashes]
    # What is in no whole block is this request's own, and so is its reply.
    if not ends or ends[-1] < whole:
        hashes.append(-number * 2 - 1 & _MASK)
        ends.append(whole)
    output = max(round(row.output_tokens * scale), 1)
    after = Chain((*hashes, -number * 2 - 2 & _MASK), (*ends, ends[-1] + output * BYTES_PER_TOKEN))
    return Ask(
        "trace", row.key, model, Chain(tuple(hashes), tuple(ends)), after, prompt, output, row.max_tokens,
        ends[-1] / prompt,
    )  # fmt: skip


# --- forms


def _form_of(line: str, number: int, path: Path) -> tuple[str, Callable[[str], Row | None]]:
    """Tell the form by the first line that is not blank."""
    if line.lstrip("\ufeff").startswith("TIMESTAMP,"):
        return "azure", _azure
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict):
        if "hash_ids" in first:
            return "mooncake", _mooncake
        if "pharos_decisions" in first or "request_id" in first:
            return "decisions", _decision
    raise TraceError(
        f"{path}: line {number} is neither Mooncake's JSON (hash_ids), nor Azure's header (TIMESTAMP,…), "
        "nor a decision log of Pharos"
    )


def _mooncake(line: str) -> Row:
    found = json.loads(line)
    links = tuple(_count(link, "hash_ids") for link in found["hash_ids"])
    return Row(
        _time(found["timestamp"]) / 1000,
        _count(found["input_length"], "input_length"),
        _count(found["output_length"], "output_length"),
        links,
    )


def _azure(line: str) -> Row:
    cells = next(csv.reader([line.strip()]))
    if len(cells) != 3:  # noqa: PLR2004 - its columns
        raise ValueError(f"{len(cells)} cells where 3 are expected")
    moment = datetime.fromisoformat(cells[0][:26])  # it has one digit more than a microsecond
    return Row(
        (moment - datetime(2000, 1, 1)).total_seconds(),  # noqa: DTZ001 - the file names no zone, only distances count
        _count(int(cells[1]), "ContextTokens"),
        _count(int(cells[2]), "GeneratedTokens"),
    )


def _decision(line: str) -> Row | None:
    found = json.loads(line)
    if "pharos_decisions" in found:
        return None  # where a file, or a process that writes to it, begins
    request, prefix, usage = found["request"], found.get("prefix") or {}, found.get("usage") or {}
    if request is None:
        return None  # it was refused before there was a choice
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if reply is None:
        reply = request.get("expected_tokens")
    if reply is None:
        return None  # it failed, and nobody knows how long it would have become
    limit = request.get("max_tokens")
    return Row(
        _time(found["at"]),
        _count(request["prompt_tokens"] if prompt is None else prompt, "prompt_tokens"),
        _count(round(reply), "completion_tokens"),
        tuple(int(link, 16) for link in prefix.get("hashes", ())),
        tuple(_count(end, "ends") for end in prefix.get("ends", ())),
        _name(found.get("key"), "anonymous"),
        _name(found.get("model"), "unknown"),
        None if limit is None else _count(limit, "max_tokens"),
    )


def _unknown(line: str) -> Row | None:
    raise ValueError(line)


# --- values


def _count(value: Any, name: str) -> int:  # noqa: ANN401 - a JSON value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        raise ValueError(f"{name} is {value!r:.40}, no count")
    return value


def _time(value: Any) -> float:  # noqa: ANN401 - a JSON value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e13:  # noqa: PLR2004
        raise ValueError(f"the time is {value!r:.40}, no number")
    return float(value)


def _name(value: Any, otherwise: str) -> str:  # noqa: ANN401 - a JSON value
    return value if isinstance(value, str) else otherwise


def _said(fault: Exception) -> str:
    if isinstance(fault, KeyError):
        return f"{fault.args[0]} is missing"
    return str(fault) or type(fault).__name__


def _moved(row: Row, at_s: float) -> Row:
    return Row(
        at_s,
        row.prompt_tokens,
        row.output_tokens,
        row.hashes,
        row.ends,
        row.key,
        row.model,
        row.max_tokens,
    )


def _opened(path: Path) -> io.TextIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")
