"""Waits that a further copy of a model would have saved: they add up over minutes, and pay for it once."""

import msgspec
import pytest

from pharos.core.sched.copies import MARGIN
from pharos.core.sched.regrets import HALF_LIFE_S, MANY, Regrets
from pharos.core.signals import Signal, Value
from tests.core.sched.given import ask
from tests.core.sched.virtual import OLLAMA, Engine, World

GB = 10**9


def test_waits_of_a_model_add_up_and_count_half_after_minutes() -> None:
    regrets = Regrets()
    assert regrets.of("m", 1.0) == 0.0
    regrets.add("m", 4.0, 0.0)
    regrets.add("m", 2.0, HALF_LIFE_S)
    assert regrets.of("m", HALF_LIFE_S) == pytest.approx(4.0)
    assert regrets.of("other", HALF_LIFE_S) == 0.0
    regrets.add("m", 0.0, 2 * HALF_LIFE_S)
    assert regrets.of("m", 2 * HALF_LIFE_S) == pytest.approx(2.0)
    regrets.spend("m")
    regrets.spend("m")
    assert (regrets.of("m", 2 * HALF_LIFE_S), repr(regrets)) == (0.0, "<Regrets of 0 models>")


def test_sums_that_have_become_nothing_are_forgotten() -> None:
    regrets = Regrets()
    for number in range(MANY):
        regrets.add(f"m{number}", 1.0, 0.0)
    regrets.add("last", 1.0, 20 * HALF_LIFE_S)
    assert len(regrets) == 1


def hosts(memory: int | None, models: tuple[str, ...] = ("chat",)) -> World:
    """Two Ollama hosts of one slot, which have models of 4 GB on disk."""
    sizes: dict[Signal | tuple[Signal, str], Value] = {(Signal.SIZE_BYTES, model): 4 * GB for model in models}
    if memory is not None:
        sizes[Signal.GPU_TOTAL_BYTES] = memory * GB
    return World(*[Engine(name, models, OLLAMA, at_once=2, tells=sizes) for name in ("one", "two")])


def pairs(world: World, count: int, start: float = 20.0) -> None:
    """Two requests of a second at once, every ten: each time one waits for the other."""
    for number in range(count):
        for _ in range(2):
            world.at(
                start + 10.0 * number,
                lambda: world.send(ask("a", "chat", prompt_tokens=0, expected_tokens=100.0), 100) and None,
            )


def test_a_short_queue_that_forms_again_and_again_pays_for_a_second_copy() -> None:
    world = hosts(10)
    world.send(ask("a", "chat", expected_tokens=10.0), 10)
    pairs(world, 60)
    world.run()
    assert world.reasons == ["cold_start", "second_copy"]
    second = next(job for job in world.jobs if job.engine != world.jobs[0].engine)
    waits = [job.began_at - job.came_at for job in world.jobs if job.began_at is not None and job.came_at >= 20.0]
    before = [wait for job, wait in zip(world.jobs[1:], waits, strict=True) if job.came_at < second.came_at]
    assert sum(before) >= MARGIN * 10.0
    assert sum(waits) < 2 * MARGIN * 10.0 + 10.0, "once it is there, nobody waits"


def test_it_does_not_while_it_is_not_known_what_else_would_go() -> None:
    world = hosts(None, ("chat", "code"))
    world.send(ask("a", "chat", expected_tokens=10.0), 10)
    world.at(11.0, lambda: world.send(ask("b", "code", expected_tokens=10.0), 10) and None)
    pairs(world, 60, start=40.0)
    world.run()
    assert world.loads == 2


def test_a_model_that_is_there_and_idle_is_not_pushed_out_for_it() -> None:
    world = hosts(6, ("chat", "code"))
    world.send(ask("a", "chat", expected_tokens=10.0), 10)
    world.send(ask("b", "code", expected_tokens=10.0), 10)
    pairs(world, 60, start=40.0)
    world.run()
    assert world.loads == 2
    assert sorted(model for engine in world.engines.values() for model in engine.loaded) == ["chat", "code"]


def test_where_least_load_is_configured_waits_pay_for_nothing() -> None:
    world = World(*[Engine(name, ("chat",), OLLAMA) for name in ("one", "two")], policy="least-load")
    chooser, sub = world.ledger._chooser, ask("a", "chat")
    targets = world.fleet.targets_for("chat", 0.0)
    world.send(ask("a", "chat", expected_tokens=10.0), 10)
    chooser._regrets.add("chat", 1000.0, 0.0)
    waits = msgspec.structs.replace(chooser.decide(sub, targets, 0, 11.0, 0), chosen=None, awaited=0)
    assert chooser.invest(sub, targets, waits, 11.0) is waits


def test_a_model_whose_estimates_mislead_is_loaded_no_more_than_it_is_paid_for() -> None:
    world = hosts(10)
    world.fleet.calibration.fallen.add("chat")
    world.send(ask("a", "chat", expected_tokens=10.0), 10)
    pairs(world, 5)
    world.run()
    assert world.loads == 1, "least-load would have the other host load it, too, as soon as one request runs"
