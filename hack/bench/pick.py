"""Times one routing decision: a pick over 64 mixed candidates, and the step from request to lease over 64 targets.

Prints microseconds; `--json` for machines. The budget for the pick is p99 < 100 µs. A pick gets the crowd that the
ledger keeps between requests, as nothing in it depends on one, and a request of which each target holds some; the
step to a lease pays for its upkeep too. CPU time stands beside wall time: on a machine with other work the p99 of the
latter shows that work. More rows show picks with other matches, picks for which nothing was kept, and all that the
ledger does for a request (lease, reason, release) on 1, 4, 64 targets.
"""

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan, Round
from pharos.core.fleet import BackendSpec, Feedback, Fleet
from pharos.core.policy import POLICIES, Candidate, Crowd, Params, Policy, RouteRequest
from pharos.core.sched import Lease, Ledger, Submit
from pharos.core.signals import BACKEND, Reading, Residency, Signal

TARGETS = 64
WARM_UP = 300
"""Calls before the first that counts: the interpreter adapts its code to what it sees."""
MODEL = "qwen2.5:3b"


def candidates(chance: random.Random, share: float, *, is_full: bool = False) -> list[Candidate]:
    """64 candidates of which each signal is known for such a share. `is_full`: each waits for requests of ours."""

    def known(value: Any) -> Any:  # noqa: ANN401 - whatever the signal holds
        return value if chance.random() < share else None

    return [
        Candidate(
            target_id=i,
            name=f"gpu-{i}",
            ours=4 if is_full else chance.randrange(4),
            running=known(chance.randrange(5)),
            waiting=known(chance.randrange(3)),
            capacity=known(4),
            router_ahead=3,
            warm=known(chance.random() < 0.5),
            reports_residency=chance.random() < 0.75,
            loading=chance.random() < 0.1,
            kv_usage=known(chance.random()),
            prefill_s_per_token=known(chance.uniform(0.0002, 0.01)),
            load_s=known(chance.uniform(1, 20)),
            service_s=known(chance.uniform(1, 9)),
            fits_if_cold=known(chance.random() < 0.8),
            base_s=known(0.02),
            frees_at=chance.uniform(1, 9) if is_full else None,
            context_tokens=known(8192),
        )
        for i in range(TARGETS)
    ]


def fleet(count: int, *, silent: bool) -> Fleet:
    """So many backends, all up at time 0. `silent`: some do not tell everything, and some are cold."""
    made = Fleet()
    made.set_backends([BackendSpec(f"gpu-{i}", f"http://gpu-{i}:8080") for i in range(count)], 0.0)
    kind = recipes.by_kind("llamacpp")
    plan = Plan("llamacpp", "config", "b9000", kind.probes, ())
    for i, backend in enumerate(made.backends.values()):
        values = {
            (Signal.MODELS, BACKEND): (MODEL,),
            (Signal.RESIDENCY, BACKEND): Residency.COLD if silent and i % 5 == 0 else Residency.LOADED,
            (Signal.CAPACITY, BACKEND): 4,
            (Signal.RUNNING, BACKEND): i % 4,
            (Signal.WAITING, BACKEND): 0,
        }
        kept = {key: value for n, (key, value) in enumerate(values.items()) if n == 0 or not silent or (i + n) % 4}
        readings = {key: Reading(value, 0.0, "bench", 5.0) for key, value in kept.items()}
        made.publish(backend, plan, Round(readings, (), frozenset(Signal)), 0.0, full=True, started_at=0.0)
    return made


def timed(work: Callable[[int], object], rounds: int, undo: Callable[[object], None] | None = None) -> dict[str, float]:
    """p50 and p99 of one call, in microseconds of wall and of CPU time; `undo` is not timed."""
    for seed in range(WARM_UP):
        result = work(seed)
        if undo is not None:
            undo(result)
    gc.collect()
    gc.freeze()  # as the program does after its start
    wall, cpu = [], []
    for seed in range(rounds):
        # The clock of CPU time is a system call: it stands outside of the wall time.
        began_cpu, began = time.thread_time(), time.perf_counter()
        result = work(seed)
        ended, ended_cpu = time.perf_counter(), time.thread_time()
        wall.append((ended - began) * 1e6)
        cpu.append((ended_cpu - began_cpu) * 1e6)
        if undo is not None:
            undo(result)
    wall.sort()
    cpu.sort()
    half, most = rounds // 2, rounds * 99 // 100
    return {"p50_us": wall[half], "p99_us": wall[most], "cpu_p50_us": cpu[half], "cpu_p99_us": cpu[most]}


LEARNED = Feedback(ok=True, cold=False, ttft_s=0.4, duration_s=2.0, prompt_tokens=2000, cached_tokens=0)


def time_submit(policy: str, rounds: int) -> dict[str, float]:
    """Time `Ledger.submit` on a fleet with room; the lease goes back, with feedback, between two calls."""
    ledger = Ledger(fleet(TARGETS, silent=True), policy=policy)
    submit = Submit("alice", 1, MODEL, 2000)

    def release(lease: object) -> None:
        assert isinstance(lease, Lease)
        ledger.release(lease, 0.5, 0, LEARNED)

    return timed(lambda seed: ledger.submit(submit, 0.5, seed), rounds, release)


def time_request(targets: int, rounds: int) -> dict[str, float]:
    """Time all that the ledger does for a request: the lease, what its record says of the decision, the release."""
    ledger = Ledger(fleet(targets, silent=False))
    submit = Submit("alice", 1, MODEL, 2000)

    def request(seed: int) -> object:
        lease = ledger.submit(submit, 0.5, seed)
        assert isinstance(lease, Lease)
        record = (lease.decision.why, lease.decision.reason, lease.decision.scores)
        ledger.release(lease, 0.5, seed, LEARNED)
        return record

    return timed(request, rounds)


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="print JSON")
    arguments.add_argument("--rounds", type=int, default=5000, help="calls per row")
    options = arguments.parse_args()
    mixed, known = (candidates(random.Random(7), share) for share in (0.75, 1.0))  # noqa: S311 - repeatable, not secret
    full = candidates(random.Random(7), 0.75, is_full=True)  # noqa: S311 - same
    params = Params()
    everywhere = tuple((i, 100 + 30 * i) for i in range(TARGETS))

    def time_pick(
        pick: Policy, crowd: list[Candidate] | Crowd, matched: tuple[tuple[int, int], ...] = (), prompt: int = 2000
    ) -> dict[str, float]:
        return timed(lambda seed: pick(RouteRequest(prompt, seed, matched), crowd, params), options.rounds)

    rows = {f"pick {name}": time_pick(pick, Crowd(mixed, params), everywhere) for name, pick in POLICIES.items()}
    rows |= {f"submit {name}": time_submit(name, options.rounds) for name in POLICIES}
    more = {f"{name}, no match": time_pick(pick, Crowd(mixed, params)) for name, pick in POLICIES.items()}
    more["cost, all full"] = time_pick(POLICIES["cost"], Crowd(full, params), everywhere)
    more["cost, too long for some"] = time_pick(POLICIES["cost"], Crowd(mixed, params), everywhere, 20_000)
    more |= {f"{name}, nothing kept": time_pick(pick, mixed) for name, pick in POLICIES.items()}
    more["cost, all known, none kept"] = time_pick(POLICIES["cost"], known)
    more |= {f"request, {count} targets": time_request(count, options.rounds) for count in (1, 4, TARGETS)}
    if options.json:
        print(json.dumps({"targets": TARGETS, "rows": rows, "more": more}))
        return 0
    for name, row in (rows | more).items():
        figures = "   ".join(f"{figure[:-3].replace('_', ' ')} {value:7.1f} µs" for figure, value in row.items())
        print(f"{name:26} {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
