"""Many runs: fleets, loads, policies and seeds, side by side in processes.

Forbidden here: text for people.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from msgspec import Struct

from pharos.sim import workload
from pharos.sim.asks import Session
from pharos.sim.result import Measures, measure
from pharos.sim.run import SYNC_S, Plan, run
from pharos.sim.spec import FleetSpec
from pharos.sim.trace import Trace, turns


class Study(Struct, frozen=True):
    """What to compare."""

    fleets: tuple[FleetSpec, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    loads: tuple[float, ...] = ()
    """Users, or with a trace times its own speed; none: the fleet's own, or 1."""
    duration_s: float = 900.0
    instances: int = 1
    sync_s: float = SYNC_S
    trace: Trace | None = None
    scale: float = 1.0
    """Of all lengths in the trace."""
    without: frozenset[str] = frozenset()
    """Parts of Pharos that are left out: of `routers.PARTS`."""


class Cell(Struct, frozen=True):
    """One fleet under one load, with one seed: all policies meet the same sessions there."""

    fleet: FleetSpec
    load: float
    seed: int


class Found(Struct, frozen=True):
    """One run of a study."""

    fleet: str
    load: float
    policy: str
    seed: int
    measures: Measures


def cells(study: Study) -> list[Cell]:
    """All parts of a study, the heaviest first: the last ones to end are short then."""
    made = [
        Cell(fleet, load, seed) for fleet in study.fleets for load in loads_of(study, fleet) for seed in study.seeds
    ]
    return sorted(made, key=lambda cell: -cell.load)


def loads_of(study: Study, fleet: FleetSpec) -> tuple[float, ...]:
    """The loads that a fleet is put under."""
    if study.loads:
        return study.loads
    return (1.0,) if study.trace is not None else tuple(float(users) for users in fleet.loads)


def carry_out(study: Study, on_done: Callable[[int, int], None], workers: int | None = None) -> list[Found]:
    """Run all of it. `on_done`: so many cells of so many are done. Order and number of processes change no result."""
    todo = cells(study)
    processors = os.cpu_count()
    most = processors if processors is not None else 1
    workers = min(len(todo), workers if workers is not None else most)
    found: list[Found] = []
    on_done(0, len(todo))
    if workers <= 1:
        for number, cell in enumerate(todo, 1):
            found += run_cell(study, cell)
            on_done(number, len(todo))
    else:
        with ProcessPoolExecutor(workers) as pool:
            runs = [pool.submit(run_cell, study, cell) for cell in todo]
            for number, done in enumerate(as_completed(runs), 1):
                found += done.result()
                on_done(number, len(todo))
    return in_order(study, found)


def run_cell(study: Study, cell: Cell) -> list[Found]:
    """Run each policy of one cell."""
    found = []
    for policy in study.policies:
        plan = Plan(cell.fleet, policy, study.duration_s, cell.seed, study.instances, study.sync_s, study.without)
        outcome = run(plan, sessions_of(study, cell))
        found.append(Found(cell.fleet.name, cell.load, policy, cell.seed, measure(outcome)))
    return found


def sessions_of(study: Study, cell: Cell) -> Sequence[Session]:
    """The clients of a cell, anew each time: they remember what they said."""
    if study.trace is not None:
        asked = turns(study.trace, cell.fleet.models, faster=cell.load, scale=study.scale)
        return [workload.Recorded(turn) for turn in asked]
    return workload.sessions(workload.Mix(round(cell.load), cell.fleet.models), cell.seed)


def in_order(study: Study, found: Iterable[Found]) -> list[Found]:
    """The runs by fleet, load, policy and seed, in the study's order."""
    fleets = [fleet.name for fleet in study.fleets]

    def place(one: Found) -> tuple[int, float, int, int]:
        return fleets.index(one.fleet), one.load, study.policies.index(one.policy), one.seed

    return sorted(found, key=place)


def group(found: Iterable[Found]) -> dict[tuple[str, float], dict[str, list[Measures]]]:
    """By fleet and load, by policy: the runs of all seeds, in the order of the seeds."""
    grouped: dict[tuple[str, float], dict[str, list[Measures]]] = {}
    for one in found:
        grouped.setdefault((one.fleet, one.load), {}).setdefault(one.policy, []).append(one.measures)
    return grouped
