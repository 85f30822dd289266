"""The comparison: the same loads on every proxy in turns, and the ratios of their CPU times.

Everything runs at the same time and only the load moves: within a repetition each load visits all proxies one
right after another, in the opposite order the next time. A ratio is taken inside a repetition; the median of the
repetitions counts, so a machine that is slow for a minute favours nobody.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import proxies

LOAD: Final = str(Path(__file__).with_name("load.py"))


@dataclass(frozen=True)
class Load:
    """One load, by name."""

    name: str
    mode: str
    kib: int = 0
    events: int = 64
    concurrency: int = 16


PLAIN: Final = Load("plain 0.2 KiB", "plain")
PLAIN_32: Final = Load("plain 32 KiB", "plain", kib=32)
CHAT_32: Final = Load("stream 32 KiB ×64", "stream", kib=32)
SHORT: Final = Load("stream ×64", "stream")
LONG: Final = Load("stream ×512", "stream", events=512)
PACED: Final = Load("paced ×64", "paced", concurrency=100)
GROUPS: Final = {
    "plain": (PLAIN, PLAIN_32),
    "chat": (CHAT_32,),
    "slope": (SHORT, LONG),
    "paced": (PACED,),
}
SLOPE: Final = "per event, slope ×64 to ×512"
PACED_S: Final = 7.8
"""Seconds of a paced window: six whole replies of 64 events, 20 ms apart. All clients begin together, so that another
window would hold more requests, or fewer, than belong to its events; two replies alone gave figures 20 % apart."""
PER_PACED: Final = "per event, paced"


@dataclass(frozen=True)
class Budget:
    """`who` may cost at most `limit` times what each of `against` costs, on `column`."""

    column: str
    against: tuple[str, ...]
    limit: float
    what: str
    who: str = proxies.OURS


BUDGETS: Final = (
    Budget(SLOPE, (proxies.BASELINE,), 1.3, "CPU per streamed event, slope between 64 and 512 events"),
    Budget(PER_PACED, (proxies.BASELINE,), 2.0, "CPU per streamed event, one event per read (paced)"),
    Budget(CHAT_32.name, proxies.RUST, 0.6, "CPU of a 32 KiB chat, 64 events streamed, with a key"),
    Budget(
        CHAT_32.name,
        proxies.RUST,
        0.6,
        "the same, prompts matched to the caches of 2 backends",
        proxies.CHOICE,
    ),
)


@dataclass
class Costs:
    """CPU µs by repetition, column and proxy; `errors`, by proxy and load, are sentences."""

    repetitions: list[dict[str, dict[str, float]]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Columns that were measured, in order."""
        return list(dict.fromkeys(column for each in self.repetitions for column in each))

    def median(self, column: str, proxy: str) -> float | None:
        """Median CPU µs; None when it was not measured."""
        values = [each[column][proxy] for each in self.repetitions if proxy in each.get(column, {})]
        return statistics.median(values) if values else None

    def ratios(self, column: str, proxy: str, against: str) -> list[float]:
        """One ratio for each repetition in which both were measured, smallest first."""
        pairs = [(each.get(column, {}).get(proxy), each.get(column, {}).get(against)) for each in self.repetitions]
        return sorted(one / other for one, other in pairs if one is not None and other is not None and other > 0)


def run_load(url: str, load: Load, *, pid: int, seconds: float, warmup_s: float) -> dict[str, float | str | None]:
    """Run the load generator in a process of its own and read its line."""
    command = [sys.executable, LOAD, url, "--mode", load.mode, "--kib", str(load.kib), "--events", str(load.events)]
    command += ["--concurrency", str(load.concurrency), "--seconds", str(seconds), "--warmup", str(warmup_s)]
    command += ["--pid", str(pid), "--key", proxies.KEY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + warmup_s + 60)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr.strip()[-500:]}")
    line: dict[str, float | str | None] = json.loads(done.stdout)
    return line


def measure(
    entrants: list[proxies.Running],
    groups: Iterable[str],
    *,
    repetitions: int,
    seconds: float,
    say: Callable[[str], None],
) -> Costs:
    """Run the groups' loads on every proxy, as many times as asked for."""
    costs = Costs()
    loads = [load for group in groups for load in GROUPS[group]]
    for number in range(repetitions):
        order = entrants if number % 2 == 0 else entrants[::-1]
        found: dict[str, dict[str, float]] = {}
        for load in loads:
            for entrant in order:
                if entrant.name == proxies.CHOICE and load is not CHAT_32:
                    continue
                window = PACED_S if load.mode == "paced" else seconds
                result = run_load(entrant.url, load, pid=entrant.child.pid, seconds=window, warmup_s=1.0)
                entrant.child.check()
                if result["errors"]:
                    where = f"{entrant.name}, {load.name}"
                    costs.errors.setdefault(where, f"{where}: {result['errors']} errors, first: {result['error']}")
                value = result["cpu_us_per_event" if load.mode == "paced" else "cpu_us_per_request"]
                if isinstance(value, float):
                    found.setdefault(PER_PACED if load is PACED else load.name, {})[entrant.name] = value
            row = found.get(PER_PACED if load is PACED else load.name, {})
            shown = "  ".join(f"{entrant.name} {row[entrant.name]:.1f}" for entrant in entrants if entrant.name in row)
            say(f"  {number + 1}/{repetitions} {load.name:18} CPU µs: {shown}")
        _add_slope(found)
        costs.repetitions.append(found)
    return costs


def _add_slope(found: dict[str, dict[str, float]]) -> None:
    """What one more event costs, from the two lengths of a stream."""
    short, long = found.get(SHORT.name, {}), found.get(LONG.name, {})
    slopes = {name: (long[name] - short[name]) / (LONG.events - SHORT.events) for name in short if name in long}
    if slopes:
        found[SLOPE] = slopes
