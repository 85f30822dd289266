"""Instances side by side find prompts in engines' caches as often as one alone does, on a recorded trace.

Each request of it comes through another instance, so that no two turns in a row meet the same one.
"""

from pathlib import Path
from typing import Any

import pytest

from pharos.sim.result import measure
from pharos.sim.run import Plan, run
from pharos.sim.spec import EngineSpec, FleetSpec, ModelSpec
from pharos.sim.study import Cell, Study, sessions_of
from pharos.sim.trace import read

TRACE = Path(__file__).parents[2] / "testdata" / "traces" / "mooncake_conversation.jsonl"
ENGINES = FleetSpec(
    "caches",
    tuple(
        EngineSpec(name=f"gpu-{number}", kind="vllm", models=(ModelSpec("m"),), slots=16, shared_cache_tokens=2_000_000)
        for number in range(3)
    ),
)


def hits(instances: int, sync_s: float = 0.2) -> float:
    """Share of prompt tokens that came from caches."""
    trace: Any = read(TRACE)
    study = Study((ENGINES,), ("cost",), (1,), (0.3,), 36_000.0, instances, sync_s, trace, 0.2)
    plan = Plan(ENGINES, "cost", study.duration_s, 1, instances, sync_s)
    return measure(run(plan, sessions_of(study, Cell(ENGINES, 0.3, 1)))).hits


@pytest.mark.timeout(300)
def test_three_instances_find_as_much_in_caches_as_one_within_two_points() -> None:
    alone = hits(1)
    assert alone > 0.05, "there is something to find"
    assert abs(hits(3) - alone) < 0.02
    assert hits(3, sync_s=1e6) < alone - 0.02, "without telling each other they find less"
