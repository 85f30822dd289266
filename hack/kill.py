"""Kills engines in the middle of their replies, and clients too, and counts who was left with a short success: nobody.

The cases are those of tests/kill: see cases.py for the ways to die and leaving.py for the places where clients leave.
The seed is printed; the same one gives the same cases. Ends with 1 if anything went wrong.
"""

import argparse
import collections
import contextlib
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.kill import cases, leaving, matrix, readers
from tests.kill.matrix import FAULTS, Verdict
from tests.kill.replies import KINDS

PLACES = 200
OUTCOMES = ("cut", "error event", "complete", *FAULTS)
SHOWN = 20
"""Faults that are printed one by one."""
PROGRESS_S = 5.0


def parse() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seed = os.environ.get("SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else secrets.randbelow(1_000_000))
    parser.add_argument("--places", type=int, default=PLACES, help="places in each protocol, streamed and not, and way")
    parser.add_argument("--only", default="", metavar="WAY,…", help=f"some of {', '.join((*cases.WAYS, 'leave'))}")
    parser.add_argument("--case", type=int, metavar="NUMBER", help="one engine's death alone, with its verdicts")
    parser.add_argument("--no-node", action="store_true", help="without OpenAI's package for Node")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole result there")
    chosen = parser.parse_args()
    chosen.only = [way.strip() for way in chosen.only.split(",") if way.strip()] or [*cases.WAYS, "leave"]
    if unknown := set(chosen.only) - {*cases.WAYS, "leave"}:
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    return chosen


class Progress:
    """Says now and then how far it is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._next = time.monotonic()
        self._count = 0

    def step(self) -> None:
        """One more is done."""
        self._count += 1
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_S
            print(f"  {self._what}: {self._count} after {time.monotonic() - self._began:.0f} s", flush=True)


def kill(chosen: argparse.Namespace) -> list[Verdict]:
    """Let engines die."""
    wanted = [case for case in cases.cases(chosen.seed, chosen.places) if case.way in chosen.only]
    if chosen.case is not None:
        wanted = [case for case in wanted if case.number == chosen.case]
    verdicts: list[Verdict] = []
    progress = Progress("read")

    def told(verdict: Verdict) -> None:
        verdicts.append(verdict)
        progress.step()

    print(f"engines that die: {len(wanted)} cases", flush=True)
    uvloop.run(matrix.run(wanted, told, node=not chosen.no_node))
    return verdicts


def leave(chosen: argparse.Namespace) -> list[leaving.Left]:
    """Let clients leave."""
    if "leave" not in chosen.only or chosen.case is not None:
        return []
    wanted = list(leaving.leavers(chosen.seed, chosen.places))
    left: list[leaving.Left] = []
    progress = Progress("left")

    def told(one: leaving.Left) -> None:
        left.append(one)
        progress.step()

    print(f"clients that leave: {len(wanted)}", flush=True)
    uvloop.run(leaving.run(wanted, told))
    return left


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def grouped(verdicts: Sequence[Verdict], by: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a function of a verdict
    """Counts of each group, in the order in which the groups came."""
    groups: dict[Any, list[Verdict]] = collections.defaultdict(list)
    for verdict in verdicts:
        groups[by(verdict)].append(verdict)
    return [
        {
            "group": key,
            "cases": len({verdict.case.number for verdict in some}),
            "reads": len(some),
            **{name: sum(verdict.outcome == name for verdict in some) for name in OUTCOMES},
            "waited s": round(sum(verdict.seconds for verdict in some), 1),
        }
        for key, some in groups.items()
    ]


def show(verdicts: Sequence[Verdict], left: Sequence[leaving.Left]) -> None:
    """Print the tables."""
    names = ("cases", "reads", *OUTCOMES, "waited s")
    rows = sorted(
        grouped(verdicts, _row), key=lambda row: (list(KINDS).index(row["group"][0]), row["group"][1] != "yes")
    )
    if rows:
        print()
        table(
            ("protocol", "streamed", "way", *names), [(*row["group"], *(row[name] for name in names)) for row in rows]
        )
        print()
        readers_rows = grouped(verdicts, lambda verdict: verdict.reader)
        table(("reader", *names), [(row["group"], *(row[name] for name in names)) for row in readers_rows])
    if left:
        print()
        by_phase = collections.defaultdict(list)
        for one in left:
            by_phase[one.leaver.phase].append(one)
        table(
            ("client leaves", "cases", "faults", "most turns of the loop", "seconds"),
            [
                (phase, len(some), sum(bool(one.fault) for one in some), max(one.turns for one in some),
                 f"{sum(one.seconds for one in some):.1f}")
                for phase, some in by_phase.items()
            ],
        )  # fmt: skip


def _row(verdict: Verdict) -> tuple[str, str, str]:
    case = verdict.case
    return case.protocol, "yes" if case.streamed else "no", case.way


def faults(verdicts: Sequence[Verdict], left: Sequence[leaving.Left]) -> list[str]:
    """What went wrong, a line each."""
    found = [
        f"case {verdict.case.number}: {verdict.outcome} for {verdict.reader} {verdict.detail}".rstrip()
        + f" - {verdict.case.protocol}, {'streamed' if verdict.case.streamed else 'whole'}, {verdict.case.way},"
        + f" {verdict.case.framing}, {verdict.case.engine} as {verdict.case.kind}, byte {verdict.case.at}"
        for verdict in verdicts
        if verdict.outcome in FAULTS
    ]
    return found + [f"client {one.leaver.number}: {one.fault} - {one.leaver[1:5]}" for one in left if one.fault]


def write(file: Path, chosen: argparse.Namespace, verdicts: Sequence[Verdict], left: Sequence[leaving.Left]) -> None:
    """Keep the whole result as JSON."""
    result = {
        "seed": chosen.seed,
        "places": chosen.places,
        "rows": [
            {**dict(zip(("protocol", "streamed", "way"), row.pop("group"), strict=True)), **row}
            for row in grouped(verdicts, _row)
        ],
        "readers": [{"reader": row.pop("group"), **row} for row in grouped(verdicts, lambda verdict: verdict.reader)],
        "clients": collections.Counter(one.leaver.phase for one in left),
        "faults": faults(verdicts, left),
    }
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run what was chosen."""
    chosen = parse()
    print(f"seed {chosen.seed} (SEED={chosen.seed} make kill does the same again), {chosen.places} places")
    node = "left out" if chosen.no_node else readers.find_node()
    if isinstance(node, str):
        print(f"without Node: {node}")
    for name in ("openai", "anthropic"):  # they print what they could not parse
        logging.getLogger(name).disabled = True
    began = time.monotonic()
    with contextlib.redirect_stderr(sys.stdout):
        verdicts, left = kill(chosen), leave(chosen)
    show(verdicts, left)
    if chosen.json is not None:
        write(chosen.json, chosen, verdicts, left)
    wrong = faults(verdicts, left)
    for line in wrong[:SHOWN]:
        print(line)
    if wrong:
        print(f'one of them again: SEED={chosen.seed} make kill FLAGS="--places {chosen.places} --case NUMBER"')
    short = sum(verdict.outcome == "short success" for verdict in verdicts)
    print(
        f"\n{len({verdict.case.number for verdict in verdicts})} engines died, {len(verdicts)} readers,"
        f" {len(left)} clients left: {short} short successes, {len(wrong) - short} other faults,"
        f" {time.monotonic() - began:.0f} s (seed {chosen.seed})"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
