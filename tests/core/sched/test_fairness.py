"""What one key waits for while another one floods, and that no slot stays empty while somebody could use it."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.sched.lease import Submit
from pharos.core.sched.line import PASSED_FOR_S
from pharos.core.signals import Signal
from tests.core.sched.given import ask
from tests.core.sched.virtual import ROUTER, Engine, Job, World, percentile

M = "chat"
SLOTS = 4
UNTIL_S = 150.0
CHAT = (1000, 100)
"""Tokens of a prompt and of its reply: 1 s to the first token, 2 s in all."""
SHORT = (20, 8)
LONG = (4000, 800)
LONG_S = 4.0 + 8.0


def engine(slots: int = SLOTS, **more: object) -> Engine:
    made = Engine("one", (M,), ROUTER, slots=slots, tells={Signal.MODELS_AT_ONCE: 1}, load_s=0.0, **more)  # type: ignore[arg-type]
    made.loaded[M] = None
    return made


def request(key: str, kind: tuple[int, int], weight: int = 1) -> Submit:
    return ask(key, M, prompt_tokens=kind[0], expected_tokens=float(kind[1]), weight=weight)


def flood(world: World, key: str, kind: tuple[int, int], clients: int) -> None:
    """So many clients of one key that each send their next request as soon as they have their reply."""

    def send() -> None:
        if world.now < UNTIL_S:
            world.send(request(key, kind), kind[1], send)

    for _ in range(clients):
        send()


def quiet(world: World, key: str, seed: int, think_s: float) -> list[Job]:
    """A key with one conversation: a request, a reply, some thinking."""
    chance, jobs = Random(seed), list[Job]()

    def send() -> None:
        if world.now < UNTIL_S:
            then = lambda: world.at(world.now + chance.uniform(think_s, think_s + 5.0), send)  # noqa: E731 - one line
            jobs.append(world.send(request(key, CHAT), CHAT[1], then))

    world.at(3.3, send)
    return jobs


def p95_beside(kind: tuple[int, int] | None, seed: int, slots: int, think_s: float = 1.0) -> float:
    world = World(engine(slots))
    jobs = quiet(world, "quiet", seed, think_s)
    if kind is not None:
        flood(world, "flood", kind, 40)
    world.run()
    assert len(jobs) > 5
    return percentile([job.ttft_s for job in jobs], 0.95)


@pytest.mark.parametrize(("slots", "think_s"), [(1, 2.0), (SLOTS, 0.5)], ids=["one slot", "four slots"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_flood_of_short_requests_costs_a_key_within_its_share_half_its_time_at_most(
    seed: int, slots: int, think_s: float
) -> None:
    """On one slot the other key has its half as long as it thinks for as long as its replies take."""
    beside, alone = (p95_beside(kind, seed, slots, think_s) for kind in (SHORT, None))
    assert beside <= 1.5 * alone


@pytest.mark.parametrize("slots", [1, SLOTS])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_flood_of_long_requests_costs_another_key_what_is_left_of_one_at_most(seed: int, slots: int) -> None:
    assert p95_beside(LONG, seed, slots) <= p95_beside(None, seed, slots) + LONG_S


def test_one_that_holds_the_only_slot_already_is_not_next_again() -> None:
    world = World(engine(slots=1))
    flood(world, "flood", LONG, 10)
    jobs: list[Job] = []
    world.at(3.0, lambda: jobs.append(world.send(request("quiet", CHAT), CHAT[1])))
    world.run(until=40.0)
    assert [job.began_at for job in jobs] == [LONG_S]


def test_keys_that_flood_get_engine_seconds_by_their_weights() -> None:
    world = World(engine(slots=2))
    kinds = {"light": (SHORT, 1), "heavy": (LONG, 1), "thrice": (CHAT, 3)}

    def keep(key: str) -> None:
        kind, weight = kinds[key]
        if world.now < UNTIL_S:
            world.send(request(key, kind, weight), kind[1], lambda: keep(key))

    for key in kinds:
        for _ in range(8):
            keep(key)
    world.run(until=UNTIL_S)
    used = dict.fromkeys(kinds, 0.0)
    for job in world.jobs:
        if job.began_at is not None and job.ended_at is not None:
            used[job.sub.key] += job.ended_at - job.began_at
    whole = sum(used.values())
    assert {key: round(seconds / whole, 1) for key, seconds in used.items()} == {
        "light": 0.2, "heavy": 0.2, "thrice": 0.6,
    }  # fmt: skip


def test_what_a_wrong_estimate_gave_too_much_is_taken_back() -> None:
    """A key whose requests take ten times as long as expected gets no more than the other one."""
    world = World(engine(slots=1))
    used = {"wrong": 0.0, "right": 0.0}

    def keep(key: str, tokens: int) -> None:
        if world.now < UNTIL_S:
            world.send(request(key, (20, 80)), tokens, lambda: keep(key, tokens))

    for _ in range(4):
        keep("wrong", 800)
        keep("right", 80)
    world.run(until=UNTIL_S)
    for job in world.jobs:
        if job.began_at is not None and job.ended_at is not None:
            used[job.sub.key] += job.ended_at - job.began_at
    assert abs(used["wrong"] - used["right"]) <= 2 * 8.1


def test_short_requests_of_a_key_pass_its_long_ones() -> None:
    world = World(engine(slots=1))
    first = world.send(request("a", CHAT), CHAT[1])
    long = world.send(request("a", LONG), LONG[1])
    short = [world.send(request("a", SHORT), SHORT[1]) for _ in range(3)]
    world.run()
    assert sorted(world.jobs, key=lambda job: job.began_at or 0.0) == [first, *short, long]


def test_short_requests_pass_no_old_one() -> None:
    world = World(engine(slots=1))
    endless = (20, round(PASSED_FOR_S * 100))
    first = world.send(request("a", endless), endless[1])
    old = [world.send(request("a", LONG), LONG[1]) for _ in range(2)]
    young: list[Job] = []
    for at in (1.0, PASSED_FOR_S - 0.1, PASSED_FOR_S + 1.0):
        world.at(at, lambda: young.append(world.send(request("a", SHORT), SHORT[1])))
    world.run()
    assert sorted(world.jobs, key=lambda job: job.began_at or 0.0) == [first, *old, *young]


def busy_slots(world: World) -> int:
    return sum(1 for job in world.jobs if job.began_at is not None and job.ended_at is None)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_no_slot_stays_empty_while_somebody_waits_for_it_and_nobody_starves(seed: int, slots: int) -> None:
    chance = Random(seed)
    world = World(engine(slots=slots))

    def step(sub: Submit, tokens: int) -> None:
        world.send(sub, tokens)
        assert world.ledger.waiting == 0 or busy_slots(world) == slots

    total_s, arrivals = 0.0, sorted(chance.uniform(0.0, 30.0) for _ in range(80))
    for at in arrivals:
        kind = chance.choice([SHORT, CHAT, LONG])
        total_s += kind[0] * 0.001 + kind[1] * 0.01
        sub = request(chance.choice("abc"), kind, chance.choice([1, 1, 3]))
        world.at(at, lambda sub=sub, tokens=kind[1]: step(sub, tokens))  # type: ignore[misc]
    world.run()
    assert all(job.ended_at is not None for job in world.jobs)
    last = max(job.ended_at for job in world.jobs if job.ended_at is not None)
    assert last <= arrivals[-1] + total_s / slots + LONG_S + 1e-6
    assert list(_idle_while_waiting(world, slots)) == []


def _idle_while_waiting(world: World, slots: int) -> Iterator[tuple[float, float]]:
    """Spans in which a slot was empty and somebody waited."""
    jobs = [(job.came_at, job.began_at, job.ended_at) for job in world.jobs]
    times = sorted({at for job in jobs for at in job if at is not None})
    for begin, end in pairwise(times):
        middle = (begin + end) / 2
        waiting = sum(came <= middle < began for came, began, _ in jobs if began is not None)
        running = sum(began <= middle < ended for _, began, ended in jobs if began is not None and ended is not None)
        if waiting and running < slots:
            yield begin, end
