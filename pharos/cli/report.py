"""What the doctor found, as text for people.

Forbidden here: judging, and letting an engine's text control the terminal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pharos.cli.finding import EXIT_COMPLETE, ROUTES, Finding
from pharos.obs.logs import escaped
from pharos.obs.words import listed, size

_LISTED: Final = 6
"""Items of a list that are shown; a catalogue of hundreds of models would hide the rest of the report."""
_WIDEST: Final = 60
_UNITS: Final = {"context_length": "token", "capacity": "slot", "running": "request", "waiting": "request"}
_BYTES: Final = frozenset({"size_bytes", "vram_bytes"})

_Row = tuple[str, ...]


def text(findings: Sequence[Finding]) -> str:
    """The report on all backends."""
    return "\n".join(
        "\n".join(_backend(one.row, is_complete=one.exit_code == EXIT_COMPLETE)) + "\n" for one in findings
    )


def _backend(row: dict[str, Any], *, is_complete: bool) -> Iterable[str]:
    yield f"== {_clean(row['name'])}" + (f"  {_clean(row['url'])}" if row["url"] != f"http://{row['name']}" else "")
    if row["kind"] is not None:
        yield f"   kind     {row['kind']} ({_source(row)})"
        yield f"   version  {_clean(row['version']) if row['version'] is not None else 'unknown'}"
    if row["error"] is not None:
        yield f"   {_clean(row['error'])}"
        return
    yield from ("", "   Known")
    yield from _table(("signal", "model", "value", "read from", "probe"), list(_known_rows(row["plan"])))
    if row["dropped"]:
        yield from ("", "   Probes that gave nothing here")
        yield from _table(("probe", "reason"), [(item["probe"], _clean(item["reason"])) for item in row["dropped"]])
    yield from _feeds(row["feeds"])
    yield from _routes(row["routes"])
    if row["remarks"]:
        yield from ("", "   To note")
        yield from (f"     {_clean(remark)}" for remark in row["remarks"])
    if row["unknown"]:
        yield from ("", "   Unknown")
        for item in row["unknown"]:
            yield from _unknown(item)
    yield from ("", f"   {_conclusion(row, is_complete=is_complete)}")


def _feeds(faults: dict[str, str]) -> Iterable[str]:
    """The followed feeds that cannot be read."""
    if faults:
        yield from ("", "   Feeds that cannot be followed")
        yield from _table(("feed", "reason"), [(feed, _clean(why)) for feed, why in faults.items()])


def _routes(served: dict[str, bool | None]) -> Iterable[str]:
    """The routes of coding agents, where they can be told."""
    if all(one is None for one in served.values()):
        return
    words = {True: "served", False: "not served", None: "cannot be told without a model"}
    yield from ("", "   Routes of coding agents")
    yield from _table(
        ("route", "served", "needed by"),
        [(route, words[is_served], ROUTES[route]) for route, is_served in served.items()],
    )


def _conclusion(row: dict[str, Any], *, is_complete: bool) -> str:
    if not is_complete:
        return "Something is unknown that this kind of engine can tell: see the remedies above."
    if row["unknown"]:
        return "All is known that this engine tells. Unknown signals are explained above."
    return "All is known that this engine tells."


def _source(row: dict[str, Any]) -> str:
    if row["kind_source"] == "config":
        return "as configured"
    return f"detected: {_clean(row['evidence'])}" if row["evidence"] else "detected"


def _known_rows(plan: Sequence[dict[str, Any]]) -> Iterable[_Row]:
    """One row per value, of one signal only the first few."""
    counts = Counter(item["signal"] for item in plan)
    seen: Counter[str] = Counter()
    for item in plan:
        signal = item["signal"]
        seen[signal] += 1
        if seen[signal] <= _LISTED:
            yield _known(item)
        elif seen[signal] == counts[signal]:
            yield signal, f"and {counts[signal] - _LISTED} more", "", "", ""


def _known(item: dict[str, Any]) -> _Row:
    probe = f"{item['probe']} (own)" if item["own"] else item["probe"]
    model = _clean(item["model"]) if item["model"] is not None else ""
    return item["signal"], model, _value(item["signal"], item["value"]), _clean(item["feed"] or ""), probe


def _value(signal: str, value: object) -> str:
    if isinstance(value, list):
        return listed([_clean(str(item)) for item in value], _LISTED) if value else "none"
    if isinstance(value, int) and signal in _BYTES:
        return size(value)
    if isinstance(value, int) and signal in _UNITS:
        return f"{value} {_UNITS[signal]}{'' if value == 1 else 's'}"
    if isinstance(value, float):
        return f"{value:.0%}" if signal == "kv_usage" else f"{value:g}"
    return _clean(str(value))


def _unknown(item: dict[str, Any]) -> Iterable[str]:
    model = f" of {_clean(item['model'])}" if item["model"] is not None else ""
    yield f"     {item['signal']}{model}"
    yield f"       why      {_clean(item['reason'])}"
    yield f"       cost     {item['cost']}"
    if item["fix"] is not None:
        yield f"       remedy   {item['fix']}"


def _table(head: _Row, rows: Sequence[_Row]) -> Iterable[str]:
    """Rows under their headings, columns that are empty left out; a long cell does not push the others out of sight."""
    if not rows:
        return
    used = [index for index, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
    shown = [tuple(row[index] for index in used) for row in (head, *rows)]
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "     " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _clean(value: str) -> str:
    return escaped(value)
