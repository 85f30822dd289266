"""Engines that hold one model at a time, two contexts of one model, and second copies: in virtual time."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pharos.core.decisions import DECISIONS
from pharos.core.engine.plan import Plan
from pharos.core.sched.arbiter import LINGER_LOADS, TURN_LOADS
from pharos.core.signals import Signal
from tests.core.sched.given import ask
from tests.core.sched.virtual import OLLAMA, ROUTER, SWAP, Engine, Job, World

TWO = ("chat", "code")


def swapping(plan: Plan = SWAP, **more: object) -> Engine:
    tells = {Signal.MODELS_AT_ONCE: 1} if plan is ROUTER else {}
    return Engine(**({"name": "one", "models": TWO, "plan": plan, "slots": 2, "tells": tells} | more))  # type: ignore[arg-type]


def closed_loop(world: World, key: str, model: str, requests: int, tokens: int, think_s: float = 0.0) -> None:
    """A client that sends its next request when it has its reply."""
    left = requests

    def send() -> None:
        nonlocal left
        left -= 1
        then = (lambda: world.at(world.now + think_s, send)) if left else None
        world.send(ask(key, model, prompt_tokens=100, expected_tokens=float(tokens)), tokens, then)

    send()


@pytest.mark.parametrize("plan", [SWAP, ROUTER])
def test_200_requests_that_alternate_between_two_models_take_few_loads_and_none_is_aborted(plan: Plan) -> None:
    world = World(swapping(plan))
    for number in range(200):
        sub = ask("alice", TWO[number % 2], prompt_tokens=100, expected_tokens=90.0)
        world.at(0.4 * number, lambda sub=sub: world.send(sub, 90) and None)  # type: ignore[misc]
    world.run()
    assert len([job for job in world.jobs if job.ended_at is not None]) == 200
    assert world.aborted == 0
    assert world.loads <= 10


@pytest.mark.parametrize("clients", [1, 3])
def test_clients_that_come_back_at_once_keep_their_model_for_a_turn(clients: int) -> None:
    world = World(swapping(slots=1))
    for number in range(clients):
        for model in TWO:
            closed_loop(world, f"{model}-{number}", model, 100 // clients, 90, think_s=0.2)
    world.run()
    assert world.aborted == 0
    assert world.loads <= 10


def test_with_nobody_who_comes_back_the_other_model_is_loaded_at_once() -> None:
    world = World(swapping(slots=1))
    world.send(ask("a", "chat", expected_tokens=100.0), 100)
    other = world.send(ask("b", "code", expected_tokens=100.0), 100)
    world.run()
    first = world.jobs[0]
    assert first.ended_at is not None
    assert other.began_at == pytest.approx(first.ended_at + LINGER_LOADS * 10.0)
    assert world.loads == 2


def test_one_who_waits_for_another_model_waits_for_one_turn_at_most() -> None:
    world = World(swapping(slots=2))
    for number in range(600):  # a flood that alone would keep the engine busy for good
        world.at(
            0.25 * number,
            lambda: world.send(ask("flood", "chat", prompt_tokens=100, expected_tokens=90.0), 90) and None,
        )
    jobs: list[Job] = []
    bob = ask("bob", "code", prompt_tokens=100, expected_tokens=90.0)
    world.at(20.0, lambda: jobs.append(world.send(bob, 90)))
    world.run()
    [job] = jobs
    assert job.began_at is not None
    assert job.began_at - job.came_at <= TURN_LOADS * 10.0 + 1.0, "and for what runs when the turn ends"
    assert world.aborted == 0


@pytest.mark.parametrize("slots", [1, 2])
def test_while_one_engine_is_kept_for_another_model_requests_go_to_the_others(slots: int) -> None:
    world = World(swapping(slots=slots), swapping(name="two", slots=slots))
    for key in ("a", "b", "c"):
        closed_loop(world, key, "chat", 60, 400)
    jobs: list[Job] = []
    world.at(1.0, lambda: jobs.append(world.send(ask("c", "code", expected_tokens=900.0), 900)))
    world.run()
    [job] = jobs
    assert job.began_at is not None
    assert job.ended_at is not None
    meanwhile = [it for it in world.jobs if it.began_at is not None and job.began_at < it.began_at < job.ended_at]
    assert meanwhile, "the other engine goes on with the other model"
    assert {it.engine for it in meanwhile} == {"one", "two"} - {job.engine}
    assert world.aborted == 0


def test_a_claim_ends_with_those_who_wait_for_it() -> None:
    world = World(swapping(slots=1))
    closed_loop(world, "a", "chat", 200, 400)
    waits: list[int] = []
    world.at(1.0, lambda: waits.append(world.ledger.submit(ask("b", "code"), world.now, 0).id))  # type: ignore[union-attr]
    world.run(until=10.0 + TURN_LOADS * 10.0 + 0.1)
    assert len(world.ledger._arbiter.claims) == 1
    assert repr(world.ledger._arbiter) == "<Arbiter 1 claims>"
    world._take(world.ledger.cancel(waits[0], world.now, 0))
    world.run(until=world.now + 20.0)
    assert not world.ledger._arbiter.claims
    assert world.loads == 1
    assert world.ledger.leased == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2]), st.sampled_from([2, 3]))
@example(154194, 2, 3)
def test_whatever_comes_no_model_is_pushed_out_while_it_is_used_and_everybody_is_served(
    seed: int, at_once: int, models: int
) -> None:
    chance = Random(seed)
    names = tuple(f"m{number}" for number in range(models))
    tells = {Signal.MODELS_AT_ONCE: at_once}
    engines = [
        Engine(name, names, ROUTER, slots=chance.choice([1, 2]), at_once=at_once, load_s=5.0, tells=tells)
        for name in ("one", "two")[: chance.choice([1, 2])]
    ]
    world = World(*engines)
    for _ in range(60):
        tokens = chance.choice([5, 50, 500])
        sub = ask(chance.choice("abc"), chance.choice(names), prompt_tokens=100, expected_tokens=float(tokens))
        world.at(chance.uniform(0.0, 60.0), lambda sub=sub, tokens=tokens: world.send(sub, tokens) and None)  # type: ignore[misc]
    world.run()
    assert world.aborted == 0
    assert all(job.ended_at is not None for job in world.jobs)
    assert not world.ledger._arbiter.claims


# -- contexts


def ollama(name: str, slots: int = 1) -> Engine:
    return Engine(name, ("chat",), OLLAMA, slots=slots)


def test_two_contexts_on_two_engines_take_two_loads() -> None:
    world = World(ollama("one"), ollama("two"))
    for number in range(100):
        sub = ask("a", "chat", context_tokens=4096 if number % 2 else 32768, expected_tokens=50.0)
        world.at(0.5 * number, lambda sub=sub: world.send(sub, 50) and None)  # type: ignore[misc]
    world.run()
    assert world.loads == 2
    assert world.aborted == 0
    assert world.reasons == ["cold_start", "cold_start"]


def test_one_that_asks_for_another_context_than_a_busy_model_has_waits_for_one_turn_at_most() -> None:
    world = World(ollama("one", slots=2))
    for number in range(800):
        sub = ask("flood", "chat", context_tokens=4096, expected_tokens=90.0)
        world.at(0.2 * number, lambda sub=sub: world.send(sub, 90) and None)  # type: ignore[misc]
    jobs: list[Job] = []
    world.at(15.0, lambda: jobs.append(world.send(ask("bob", "chat", context_tokens=32768, expected_tokens=9.0), 9)))
    world.run()
    [job] = jobs
    assert job.began_at is not None
    assert job.began_at - job.came_at <= TURN_LOADS * 10.0 + 1.1
    assert world.aborted == 0
    assert world.loads <= 3


def test_contexts_that_alternate_on_one_engine_are_batched() -> None:
    world = World(ollama("one", slots=1))
    for number in range(100):
        sub = ask("a", "chat", context_tokens=4096 if number % 2 else 32768, expected_tokens=90.0)
        world.at(0.5 * number, lambda sub=sub: world.send(sub, 90) and None)  # type: ignore[misc]
    world.run()
    assert world.loads <= 6
    assert world.aborted == 0
    assert world.reasons == ["cold_start", *["new_context"] * (world.loads - 1)]
    assert set(world.reasons) < set(DECISIONS["load"])


# -- second copies


def cold(count: int, slots: int = 4) -> World:
    return World(*[Engine(f"gpu-{number}", ("chat",), SWAP, slots=slots) for number in range(count)])


@pytest.mark.parametrize(
    ("requests", "tokens", "loads"), [(4, 490, 1), (6, 490, 1), (10, 490, 2), (12, 490, 3), (12, 90, 1), (40, 90, 3)]
)
def test_a_burst_on_cold_engines_loads_as_many_as_it_pays_for(requests: int, tokens: int, loads: int) -> None:
    world = cold(3)
    for _ in range(requests):
        world.send(ask("a", "chat", prompt_tokens=100, expected_tokens=float(tokens)), tokens)
    world.run()
    assert world.loads == loads


def test_a_queue_pays_for_a_second_copy_once_the_wait_that_it_removes_exceeds_the_load() -> None:
    world = cold(2, slots=1)
    for engine in world.engines.values():
        engine.load_s = 10.0
    first = world.send(ask("a", "chat", expected_tokens=500.0), 500)
    world.run(until=20.0)
    assert first.ended_at is not None
    for _ in range(12):
        world.send(ask("a", "chat", expected_tokens=490.0), 490)
    world.run()
    assert world.loads == 2
    assert {job.engine for job in world.jobs} == {"gpu-0", "gpu-1"}
    assert world.reasons == ["cold_start", "second_copy"]
