"""Times one rendering of `/metrics` with 50 models and 50 keys, 10 targets of each model: `--json` for machines.

Milliseconds of CPU for the whole page, and the longest step of it: between two steps streams go on. The budgets are
20 ms each. `others` are twice as many models and keys.
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet import BackendSpec, Fleet
from pharos.core.signals import BACKEND, Reading, Residency, Signal
from pharos.obs.metrics import Metrics
from pharos.proxy.done import Done

BACKENDS = 10


def fleet(models: int) -> Fleet:
    """So many models on each of ten backends, with estimates that were held against the truth."""
    made = Fleet()
    made.set_backends([BackendSpec(f"gpu-{i}", f"http://gpu-{i}:8080") for i in range(BACKENDS)], 0.0)
    plan = Plan("llamacpp", "config", "b9000", recipes.by_kind("llamacpp").probes, ())
    names = tuple(f"model-{i}" for i in range(models))
    values = {
        (Signal.MODELS, BACKEND): names, (Signal.RESIDENCY, BACKEND): Residency.LOADED, (Signal.CAPACITY, BACKEND): 4,
        (Signal.RUNNING, BACKEND): 1, (Signal.WAITING, BACKEND): 0,
    }  # fmt: skip
    for backend in made.backends.values():
        readings = {key: Reading(value, 0.0, "bench", 5.0) for key, value in values.items()}
        made.publish(backend, plan, Round(readings, (), frozenset(Signal)), 0.0, full=True, started_at=0.0)
        for name in names:
            for number in range(50):
                made.calibration.note(name, backend.name, 1.0 + number, 1.0)
    return made


def counted(models: int, keys: int) -> Metrics:
    """Every key has asked every model, with three statuses."""
    metrics = Metrics(version="bench", max_models=200, max_keys=200)
    usage = Usage(prompt_tokens=1000, cached_tokens=600, completion_tokens=70)
    for number in range(models * keys * 3):
        pair, status = divmod(number, 3)
        model, key = divmod(pair, keys)
        metrics.finished(
            Done(
                f"r{number}",
                "/v1/chat/completions",
                0.0,
                key=f"key-{key}",
                model=f"model-{model}",
                target="t",
                status=(200, 400, 499)[status],
                ttft_s=0.2,
                first_byte_s=0.1,
                overhead_s=0.001,
                usage=usage if status == 0 else None,
            )
        )
    return metrics


def rendered(models: int, keys: int, rounds: int) -> dict[str, float]:
    """Median CPU time of a page, its longest step (the median of the rounds), its size."""
    metrics, backends = counted(models, keys), fleet(models)
    gc.collect()
    gc.freeze()  # as the program does after its start
    whole, longest, size, lines = [], [], 0, 0
    for _ in range(rounds):
        steps = metrics.render(metrics.moment(backends, 1.0, 0))
        times = []
        while True:
            began = time.thread_time()
            try:
                next(steps)
            except StopIteration as end:
                size, lines = len(end.value), end.value.count(b"\n")
                break
            finally:
                times.append(time.thread_time() - began)
        whole.append(sum(times) * 1000)
        longest.append(max(times) * 1000)
    middle = rounds // 2
    return {
        "cpu_ms": sorted(whole)[middle], "longest_step_ms": sorted(longest)[middle], "bytes": size, "lines": lines,
    }  # fmt: skip


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="print JSON")
    arguments.add_argument("--rounds", type=int, default=21)
    options = arguments.parse_args()
    rows = {"50 models, 50 keys": rendered(50, 50, options.rounds), "others": rendered(100, 100, options.rounds)}
    if options.json:
        print(json.dumps(rows))
        return 0
    for name, row in rows.items():
        print(f"{name:20}" + "  ".join(f"{figure} {value:,.1f}" for figure, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
