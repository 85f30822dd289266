"""Plays conversations on real llama.cpp engines and lays three views of them side by side. It reports, never asserts.

    python -m hack.scenario                          every preset, through Pharos
    python -m hack.scenario coding --repeat 3 --json after.json
    python -m hack.scenario coding --baseline round-robin --repeat 3 --json before.json
    python -m hack.scenario --compare before.json after.json

What clients saw, what Pharos's /metrics count and what the engines count themselves; disagreements come first.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from hack.bench.routing.routers import ROOT, get
from hack.scenario import report, stand, views
from hack.scenario.people import Asked, Play, Way
from hack.scenario.presets import PRESETS, Preset, shorter
from hack.scenario.summary import Summary, calibration, compare, figures
from pharos.demo.errors import DemoError

WORK: Final = ROOT / ".cache" / "scenario"
TINY_SHARE: Final = 0.3
"""Of the texts: the generated model has a token for each byte or two."""
SETTLE_S: Final = 1.5
"""After the last reply: engines count a request when its slot is free again."""


class FileOf(msgspec.Struct, frozen=True):
    """What --json writes."""

    schema: int
    runs: list[Summary]


def say(text: str) -> None:
    """Progress; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(
        prog="hack.scenario", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"{', '.join(PRESETS)} [default: all]")
    parser.add_argument("--policy", default="cost", choices=["cost", "least-load"], help="of Pharos")
    parser.add_argument("--baseline", choices=stand.BASELINES, help="the same people without Pharos")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="with seeds SEED, SEED+1, …")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", type=int, metavar="N", help="instead of the preset's number")
    parser.add_argument("--tiny", action="store_true", help="a generated model that speaks nonsense, quickly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs there, for --compare")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar="FILE", help="run nothing: two such files, side by side"
    )
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.presets if name not in PRESETS]:
        parser.error(f"no such preset: {', '.join(unknown)}; there are {', '.join(PRESETS)}")
    if chosen.repeat < 1 or (chosen.engines is not None and chosen.engines < 1):
        parser.error("--repeat and --engines must be above 0")
    return chosen


async def play(preset: Preset, seed: int, chosen: argparse.Namespace) -> Summary:
    """One run. Raises `StandError`, `DemoError`, `RuntimeError`, `OSError`."""
    way_name = f"{chosen.baseline} (no router)" if chosen.baseline else f"Pharos, {chosen.policy}"
    folder = WORK / preset.name
    folder.mkdir(parents=True, exist_ok=True)
    keys = sorted({role.key for role in preset.roles})
    async with stand.engines(preset, folder, tiny=chosen.tiny, say=lambda line: say(f"  {line}")) as engines:
        with contextlib.ExitStack() as held:
            url: str | None = None
            if chosen.baseline:
                way: Way = stand.baseline(engines, chosen.baseline)
            else:
                url, way = held.enter_context(stand.pharos(engines, keys, chosen.policy, folder))
            before = await page(url)
            people = sum(role.count for role in preset.roles)
            say(f"{preset.name}, seed {seed}: {people} people, {len(engines.urls)} engines, {way_name}")
            began = time.monotonic()
            asked = await Play(preset, engines.models, way, seed).run(engines.kill)
            say(f"  {len(asked)} requests in {time.monotonic() - began:.0f} s")
            await asyncio.sleep(SETTLE_S)
            after = await page(url)
            counted = await asyncio.to_thread(engines.counted)
    told = views.pharos(before, after) if before is not None and after is not None else None
    return summary(preset, way_name, seed, asked, told, counted, engines)


def summary(
    preset: Preset,
    way: str,
    seed: int,
    asked: list[Asked],
    told: views.Pharos | None,
    counted: dict[str, list[dict[str, float]]] | None,
    engines: stand.Stand,
) -> Summary:
    """A run in numbers."""
    seen = views.clients(asked)
    own = views.engines(counted) if counted is not None else None
    is_whole = not engines.killed and not seen.failed
    return Summary(
        preset=preset.name,
        way=way,
        seed=seed,
        figures=figures(asked, engines.loads()),
        clients=seen,
        pharos=told,
        engines=own if own is not None else {},
        disagreements=views.disagreements(seen, told, own, is_whole=is_whole),
        calibration=calibration(asked),
    )


async def page(url: str | None) -> str | None:
    """Pharos's /metrics, if there is a Pharos."""
    return None if url is None else (await asyncio.to_thread(get, f"{url}/metrics")).decode()


def side_by_side(one: Path, other: Path) -> str:
    """Two files of runs compared. Raises `OSError` or `msgspec.DecodeError`."""
    ours, theirs = (msgspec.json.decode(path.read_bytes(), type=FileOf).runs for path in (one, other))
    return report.compared(compare(ours, theirs), one.name, other.name)


def main() -> int:
    """Exit code 1 when something could not be run; what views disagree on is a finding, not a failure."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the programs started here end too
    chosen = parse(sys.argv[1:])
    try:
        if chosen.compare:
            print(side_by_side(*chosen.compare))
            return 0
        return run_all(chosen)
    except (OSError, msgspec.DecodeError, ValueError) as fault:
        say(f"hack.scenario: {fault}")
        return 1


def run_all(chosen: argparse.Namespace) -> int:
    """All runs that were asked for."""
    runs, code = [], 0
    for name in chosen.presets or PRESETS:
        preset = shorter(PRESETS[name], TINY_SHARE) if chosen.tiny else PRESETS[name]
        if chosen.engines is not None:
            preset = msgspec.structs.replace(preset, engines=chosen.engines)
        for seed in range(chosen.seed, chosen.seed + chosen.repeat):
            try:
                runs.append(asyncio.run(play(preset, seed, chosen)))
            except (stand.StandError, DemoError, RuntimeError, OSError) as fault:
                say(f"  {name}, seed {seed}, could not be run: {fault}")
                code = 1
                continue
            print(report.text(runs[-1]), end="\n\n", flush=True)
    if chosen.json is not None and runs:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(FileOf(1, runs)), indent=1) + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
