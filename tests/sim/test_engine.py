from typing import Any

import pytest

from pharos.sim.spec import ModelSpec
from tests.sim.given import M, N, Stand, ask, grown, spec, swapping

A, B, C, D = ask(1), ask(2), ask(3), ask(4)


def times(stand: Stand) -> list[tuple[float | None, float | None]]:
    return [(job.first_at, job.ended_at) for job in stand.run()]


def test_a_request_takes_its_prompt_and_then_its_reply() -> None:
    stand = Stand(spec(base_s=0.02))
    stand.send(ask(1, 2))
    ((first, end),) = times(stand)
    assert first == pytest.approx(0.02 + 200 * 0.001)
    assert end == pytest.approx(0.22 + 100 * 0.01)


def test_a_reply_of_one_token_ends_with_it() -> None:
    stand = Stand(spec())
    stand.send(ask(1, reply=1))
    assert times(stand) == [(pytest.approx(0.1), pytest.approx(0.1))]


def test_more_requests_than_slots_wait_in_the_engine_in_their_order() -> None:
    stand = Stand(spec(slots=1))
    for one in (A, B, C):
        stand.send(one)
    assert [job.started_at for job in stand.run()] == pytest.approx([0.0, 1.1, 2.2])


def test_each_further_request_slows_all_down() -> None:
    stand = Stand(spec(slowdown=0.5))
    stand.send(A)
    stand.send(B)
    first, second = stand.run()
    assert first.prefill_s == pytest.approx(0.1)
    assert second.prefill_s == pytest.approx(0.15)


def test_a_slot_holds_its_last_prompt_and_reply() -> None:
    stand = Stand(spec())
    stand.send(A)
    stand.send(grown(A, 11), at=10.0)
    _, second = stand.run()
    assert second.cached_tokens == 201
    assert second.prefill_s == pytest.approx(0.1)


def test_the_last_token_of_a_prompt_is_always_processed() -> None:
    stand = Stand(spec())
    stand.send(A)
    stand.send(A, at=10.0)
    assert [job.cached_tokens for job in stand.run()] == [0, 99]


def test_a_busy_slot_lends_nothing() -> None:
    stand = Stand(spec())
    stand.send(A)
    stand.send(A, at=0.5)
    assert [job.cached_tokens for job in stand.run()] == [0, 0]


def test_of_free_slots_the_one_with_the_longest_beginning_is_taken_else_the_oldest() -> None:
    stand = Stand(spec())
    for at, one in enumerate((A, B, grown(A, 11), C, grown(A, 12))):
        stand.send(one, at=10.0 * at)
    assert [job.cached_tokens for job in stand.run()] == [0, 0, 201, 0, 201]


@pytest.mark.parametrize(("host_tokens", "cached"), [(0, 0), (1000, 201), (250, 0)])
def test_what_a_slot_gives_up_is_kept_in_the_hosts_memory_as_far_as_there_is_room(
    host_tokens: int, cached: int
) -> None:
    stand = Stand(spec(slots=1, host_cache_tokens=host_tokens))
    for at, one in enumerate((A, B, C, grown(A, 11))):
        stand.send(one, at=10.0 * at)
    assert stand.run()[-1].cached_tokens == cached


def test_a_prompt_in_the_hosts_memory_takes_the_place_of_its_own_beginning() -> None:
    stand = Stand(spec(slots=1, host_cache_tokens=1000))
    longer = grown(A, 11)
    for at, one in enumerate((A, B, longer, C, A, B, grown(longer, 12))):
        stand.send(one, at=10.0 * at)
    assert stand.run()[-1].cached_tokens == 402


def test_a_shared_cache_serves_others_from_the_first_token_on() -> None:
    stand = Stand(spec(slots=4, shared_cache_tokens=10_000))
    stand.send(A)
    stand.send(A, at=0.05)
    stand.send(A, at=0.2)
    assert [job.cached_tokens for job in stand.run()] == [0, 0, 99]


def test_a_full_shared_cache_drops_what_was_used_longest_ago_ends_before_beginnings() -> None:
    stand = Stand(spec(shared_cache_tokens=450))
    long = ask(21, 22, reply=1)
    for at, one in enumerate((long, B, long, ask(21, 29), ask(5, 6, 7, reply=1), ask(21, 22))):
        stand.send(one, at=10.0 * at)
    assert [job.cached_tokens for job in stand.run()] == [0, 0, 199, 100, 0, 100]


def test_a_model_that_is_not_there_is_loaded_once_for_all_who_wait() -> None:
    stand = Stand(swapping())
    stand.send(A)
    stand.send(B, at=3.0)
    jobs = stand.run()
    assert [job.started_at for job in jobs] == [10.0, 10.0]
    assert [job.loaded_s for job in jobs] == [10.0, 0.0]
    assert stand.engine.loads == 1


def test_a_model_in_use_is_not_evicted_and_who_needs_its_room_holds_up_all_behind() -> None:
    stand = Stand(swapping(load_s=1.0))
    stand.send(ask(1, reply=1001))
    stand.send(ask(2, model=N), at=2.0)
    stand.send(ask(3), at=3.0)
    jobs = stand.run()
    assert [job.started_at for job in jobs] == pytest.approx([1.0, 12.1, 14.2])
    assert stand.engine.loads == 3


def test_what_a_model_had_cached_goes_with_it() -> None:
    stand = Stand(swapping())
    stand.send(A)
    stand.send(ask(2, model=N), at=20.0)
    stand.send(A, at=40.0)
    assert [job.cached_tokens for job in stand.run()] == [0, 0, 0]


def test_the_idle_model_that_was_used_longest_ago_goes_first() -> None:
    three = (ModelSpec(M, 4.0), ModelSpec(N, 4.0), ModelSpec("gemma2:9b", 4.0))
    stand = Stand(swapping(models=three, memory_gb=9.0))
    for at, model in enumerate((M, N, M, "gemma2:9b")):
        stand.send(ask(1, model=model), at=20.0 * at)
    stand.run()
    assert set(stand.engine.lanes) == {M, "gemma2:9b"}


def test_a_model_that_is_too_big_for_the_host_is_loaded_all_the_same() -> None:
    stand = Stand(swapping(memory_gb=1.0))
    stand.send(A)
    assert stand.run()[0].started_at == 10.0


@pytest.mark.parametrize("more", [{}, {"memory_gb": 5.0}])
def test_counts_are_those_of_the_moment(more: dict[str, Any]) -> None:
    stand = Stand(spec(slots=1, **more))
    for one in (A, B):
        stand.send(one)
    seen: list[tuple[int, int]] = []
    stand.timeline.at(10.05, lambda: seen.append((stand.engine.running(M), stand.engine.waiting(M))))
    stand.timeline.at(0.05, lambda: seen.append((stand.engine.running(M), stand.engine.waiting(M))))
    stand.run()
    assert seen == ([(0, 2), (1, 1)] if more else [(1, 1), (0, 0)])
