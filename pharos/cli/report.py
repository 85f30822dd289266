"""What the doctor found, as text for people.

Forbidden here: judging, and letting an engine's text control the terminal.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pharos.cli.checkup import EXIT_COMPLETE, Finding
from pharos.obs.logs import escaped

_LISTED: Final = 6
"""Items of a list that are shown; a catalogue of hundreds of models would hide the rest of the report."""
_WIDEST: Final = 60
_UNITS: Final = {"size_bytes": "bytes", "vram_bytes": "bytes", "context_length": "tokens"}


def text(findings: Sequence[Finding]) -> str:
    """The report on all backends."""
    return "\n".join(
        "\n".join(_backend(one.row, is_complete=one.exit_code == EXIT_COMPLETE)) + "\n" for one in findings
    )


def _backend(row: dict[str, Any], *, is_complete: bool) -> Iterable[str]:
    yield f"== {row['name']}" + (f"  {row['url']}" if row["url"] != f"http://{row['name']}" else "")
    if row["kind"] is not None:
        yield f"   kind     {row['kind']} ({_source(row)})"
        yield f"   version  {_clean(row['version']) if row['version'] is not None else 'unknown'}"
    if row["error"] is not None:
        yield f"   {_clean(row['error'])}"
        return
    yield "   known"
    yield from _table([_known(item) for item in row["plan"]])
    if row["dropped"]:
        yield "   dropped (probes that gave nothing here)"
        yield from _table([(item["probe"], _clean(item["reason"])) for item in row["dropped"]])
    if row["unknown"]:
        yield "   unknown"
        for item in row["unknown"]:
            yield from _unknown(item)
    if not is_complete:
        yield "   Something is unknown that this kind of engine can tell: see the remedies above."
    elif row["unknown"]:
        yield "   Nothing is wrong: the rest, this engine does not tell now."
    else:
        yield "   Nothing is wrong: everything is known."


def _source(row: dict[str, Any]) -> str:
    if row["kind_source"] == "config":
        return "as configured"
    return f"detected: {_clean(row['evidence'])}" if row["evidence"] else "detected"


def _known(item: dict[str, Any]) -> tuple[str, ...]:
    probe = f"{item['probe']} (own)" if item["own"] else item["probe"]
    model = _clean(item["model"]) if item["model"] is not None else ""
    return item["signal"], model, _value(item["signal"], item["value"]), item["feed"] or "", probe


def _value(signal: str, value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(_clean(str(item)) for item in value[:_LISTED])
        return shown + (f" and {len(value) - _LISTED} more" if len(value) > _LISTED else "") if value else "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{_clean(str(value))} {_UNITS.get(signal, '')}".rstrip()


def _unknown(item: dict[str, Any]) -> Iterable[str]:
    model = f" of {_clean(item['model'])}" if item["model"] is not None else ""
    yield f"     {item['signal']}{model}: {_clean(item['reason'])}"
    yield f"       without it: {item['cost']}"
    if item["fix"] is not None:
        yield f"       remedy: {item['fix']}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Rows with their columns aligned; one long cell does not push the others out of sight."""
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "     " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _clean(value: str) -> str:
    return escaped(value)
