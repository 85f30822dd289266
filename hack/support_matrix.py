"""Writes docs/support.md: which probe reads which signal on which engine version, and how that was verified."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
import yaml
from support_replay import SIGNALS, Version, in_parts, unrecorded, versions

from pharos.core.signals import Signal
from tests.fakes.captures import TESTDATA

VERIFIED = TESTDATA / "verified.yaml"

Verified = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Engine (its folder) -> version -> signal -> probes, with commas between: what the live suite saw right. A signal may
have a word behind it (`residency_followed`); what is none (counts in replies) stands below the table."""

INTRO = """\
# What Pharos reads from which engine

One row for each version of an engine that was recorded, checked live or made by hand (under its settings, if they
matter), one column for each signal. Made by `make docs` from `testdata/`; do not edit.

A cell names the probes that read the signal there, without the engine's name in front (`pharos doctor` shows it in
full); several where states or models of the engine differ. Beside them stands how that was verified:

- **live**: `make live` started this engine, put it under a known load, and the value was right. From then on the signal
  may not become unknown on this version.
- fixture: what this version sent was recorded, and the value read from it is the one expected.
- synthetic: bodies made by hand, from what is known of that version.

Where no probe reads a signal it is unknown, never 0, and the number leads to the reason below the table. An engine
under other settings may tell less: `pharos doctor URL` shows what yours tells, what an unknown signal costs and what
would help. A version that is not here is read by the same probes: each is tried, and kept if it gives a value.

Is your engine or version missing, or read wrongly? `pharos doctor --record DIR URL` saves what it answers under the
paths that are safe to ask, in the form of `testdata/`, with secrets masked; log lines only with `--logs`, since
engines' logs hold prompts. Look through the folder before you send it.
"""


def page() -> str:
    """Return the whole page."""
    return rendered(versions(), verified())


def verified() -> Verified:
    """Return what the live suite verified; nothing before it ever ran."""
    if not VERIFIED.is_file():
        return {}
    return msgspec.convert(
        yaml.safe_load(VERIFIED.read_text(encoding="utf-8")) or {}, dict[str, dict[str, dict[str, str]]]
    )


def rendered(rows: Sequence[Version], live: Verified) -> str:
    """Lay the rows out, one table for each engine; a version that was only seen live has a row, too."""
    seen = {(row.engine, row.name) for row in rows}
    unseen = [(engine, name) for engine, names in live.items() for name in names if (engine, name) not in seen]
    rows = [*rows, *(unrecorded(engine, name) for engine, name in unseen)]
    rows = sorted(rows, key=lambda row: (row.engine, row.is_synthetic, in_parts(row.name)))
    parts = [INTRO]
    for engine, group in groupby(rows, key=lambda row: row.engine):
        parts += ["", *_table(engine, list(group), live.get(engine, {}))]
    return "\n".join([*parts, ""])


def _table(engine: str, rows: Sequence[Version], live: Mapping[str, Mapping[str, str]]) -> list[str]:
    notes: dict[str, int] = {}
    lines = [
        f"## {engine}",
        "",
        f"| build | {' | '.join(signal.value for signal in SIGNALS)} |",
        "|---" * (len(SIGNALS) + 1) + "|",
    ]
    for row in rows:
        told = live.get(row.name, {})
        cells = [_cell(row, signal, _live_of(signal, told), notes) for signal in SIGNALS]
        lines.append(f"| {_linked(row)} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {text}" for text, number in notes.items())]
    beside = {name: sorted(word for word in told if _signal_of(word) is None) for name, told in live.items()}
    also = "; ".join(f"{name}: {', '.join(words)}" for name, words in sorted(beside.items()) if words)
    return [*lines, "", f"Also seen live: {also}"] if also else lines


def _signal_of(word: str) -> Signal | None:
    return next((signal for signal in Signal if word == signal or word.startswith(f"{signal.value}_")), None)


def _live_of(signal: Signal, told: Mapping[str, str]) -> list[str]:
    """The probes that read a signal live, each once."""
    found = [probe for word, probes in told.items() if _signal_of(word) is signal for probe in probes.split(", ")]
    return list(dict.fromkeys(found))


def _linked(row: Version) -> str:
    """Return the version, leading to what its folder says of how it was made."""
    meta = f"testdata/{row.engine}/{row.name}/meta.yaml"
    return f"[{row.name}](../{meta})" if (TESTDATA.parent / meta).is_file() else row.name


def _cell(row: Version, signal: Signal, seen: list[str], notes: dict[str, int]) -> str:
    """Return one cell; a reason that is new gets the next number."""
    others = [probe for probe in row.readers.get(signal, ()) if probe not in seen]
    how = "synthetic" if row.is_synthetic else "fixture"
    told = [
        f"{' '.join(f'`{_short(row, probe)}`' for probe in probes)} {verified}"
        for probes, verified in ((seen, "**live**"), (others, how))
        if probes
    ]
    if told:
        return "<br>".join(told)
    why = _escaped(row.why[signal])
    return f"unknown ({notes.setdefault(why, len(notes) + 1)})"


def _short(row: Version, probe: str) -> str:
    return probe.removeprefix(f"{row.engine}-")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
