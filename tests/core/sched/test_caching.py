"""What the prefix index is asked and told as requests come and go."""

import pytest

from pharos.core.engine.plan import Plan
from pharos.core.fleet import Feedback, Fleet
from pharos.core.prefix import Chain, PrefixIndex
from pharos.core.sched import Caches, Grant, Lease, Ledger
from tests.core.fleet.given import M, backend, fleet_of, publish, spec, target, warm
from tests.core.sched.given import ask, lease, ticket, world

FIRST = Chain((11, 12), (400, 4000))
SECOND = Chain((11, 12, 13), (400, 4000, 4400))
OTHER = Chain((91,), (4000,))
VLLM = Plan("vllm", "config", None, (), ())


def told(cached: int | None, prompt: int = 1000) -> Feedback:
    return Feedback(ok=True, cold=False, prompt_tokens=prompt, cached_tokens=cached, bytes_prompt=4000)


def turn(ledger: Ledger, chain: Chain, feedback: Feedback | None, now: float, *, streamed: bool = False) -> str | None:
    """One request from its submission to its end."""
    held = lease(ledger.submit(ask(prompt_tokens=1100, chain=chain), now, 0))
    said = ledger.caches.ended(held, feedback, now, streamed=streamed)
    ledger.release(held, now, 0, feedback)
    return said


def where(ledger: Ledger, chain: Chain, now: float) -> Lease:
    held = lease(ledger.submit(ask(prompt_tokens=1100, chain=chain), now, 0))
    ledger.release(held, now, 0)
    return held


def matches(ledger: Ledger, chain: Chain) -> dict[int, int]:
    return dict(ledger.caches.known(ask(chain=chain)).matched)


def test_the_second_turn_goes_where_the_first_one_was() -> None:
    _, ledger = world(1, 1)
    other = lease(ledger.submit(ask(), 1.0, 0))
    assert turn(ledger, FIRST, told(None), 1.0) == "unknown"
    ledger.release(other, 1.0, 0)
    held = where(ledger, SECOND, 2.0)
    assert (held.backend, held.decision.why, held.decision.matched_tokens) == ("gpu-2", "cache", 1000)
    assert held.match is not None
    assert (held.match.text_bytes, held.match.source, held.chain) == (4000, "local", SECOND)
    assert where(ledger, OTHER, 2.0).match is None
    assert repr(ledger.caches).startswith("<Caches <PrefixIndex 2 of")


def test_tokens_of_a_match_are_as_the_model_has_shown_them() -> None:
    fleet, ledger = world(1)
    turn(ledger, FIRST, told(0, prompt=2000), 1.0)
    assert fleet.tokens_per_byte(M) == 0.5
    assert matches(ledger, SECOND) == {target(fleet).id: 2000}


def test_a_greeting_that_all_begin_with_ties_nobody_to_an_engine() -> None:
    _, ledger = world(1)
    turn(ledger, Chain((1, 2), (60, 4000)), told(None), 1.0)
    assert matches(ledger, Chain((1, 3), (60, 4000))) == {}
    assert matches(ledger, Chain((1, 2), (60, 4000))) != {}


def test_one_that_waited_is_told_what_caches_hold_when_its_turn_comes() -> None:
    _, ledger = world(1)
    first = lease(ledger.submit(ask(chain=FIRST), 1.0, 0))
    waits = ticket(ledger.submit(ask(prompt_tokens=1100, chain=SECOND), 1.0, 0))
    ledger.caches.ended(first, told(None), 2.0, streamed=True)
    [grant] = ledger.release(first, 2.0, 0, told(None))
    assert isinstance(grant, Grant)
    assert (grant.ticket, grant.lease.decision.matched_tokens) == (waits.id, 1000)


def test_what_was_found_before_and_is_gone_now_does_not_count() -> None:
    _, ledger = world(1)
    turn(ledger, FIRST, told(None), 1.0)
    before = ledger.caches.known(ask(chain=SECOND))
    assert before.matched
    ledger.caches.index.correct(FIRST, next(iter(before.matched)))
    after = ledger.caches.known(before)
    assert (after.matched, after.found) == ({}, {})


@pytest.mark.parametrize(("cached", "said"), [(1000, "predicted_hit"), (500, "predicted_hit"), (None, "unknown")])
def test_a_prediction_that_came_true_is_recorded_with_the_longer_prompt(cached: int | None, said: str) -> None:
    fleet, ledger = world(1)
    assert turn(ledger, FIRST, told(0), 1.0) == "miss"
    assert turn(ledger, SECOND, told(cached), 2.0) == said
    assert matches(ledger, SECOND) == {target(fleet).id: 1100}


@pytest.mark.parametrize(("cached", "prompt", "left"), [(0, 1100, 0), (499, 1100, 400), (300, 0, 0)])
def test_a_wrong_prediction_is_taken_out_beyond_what_was_there(cached: int, prompt: int, left: int) -> None:
    fleet, ledger = world(1)
    turn(ledger, FIRST, told(0), 1.0)
    assert turn(ledger, SECOND, told(cached, prompt), 2.0) == "wrong_prediction"
    found = ledger.caches.index.lookup(SECOND, fleet.generation_of).get(target(fleet).id)
    assert (found.text_bytes if found is not None else 0) == left


def test_a_failure_takes_the_prompt_out() -> None:
    _, ledger = world(1)
    turn(ledger, FIRST, told(0), 1.0)
    assert turn(ledger, SECOND, Feedback(ok=False, cold=False), 2.0) is None
    assert matches(ledger, SECOND) == {}


def test_what_teaches_nothing_changes_nothing() -> None:
    _, ledger = world(1)
    assert turn(ledger, FIRST, None, 1.0) is None
    held = lease(ledger.submit(ask(), 2.0, 0))
    assert ledger.caches.ended(held, told(1000), 2.0, streamed=True) is None
    assert len(ledger.caches.index) == 0


def test_a_cache_that_was_lost_while_the_request_ran_holds_nothing() -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(chain=FIRST), 1.0, 0))
    fleet.cache_lost(target(fleet))
    assert ledger.caches.ended(held, told(0), 2.0, streamed=True) == "miss"
    assert matches(ledger, FIRST) == {}


def test_a_lost_cache_is_not_predicted() -> None:
    fleet, ledger = world(1)
    turn(ledger, FIRST, told(0), 1.0)
    fleet.cache_lost(target(fleet))
    assert matches(ledger, SECOND) == {}
    turn(ledger, FIRST, told(0), 3.0)
    assert matches(ledger, SECOND) == {target(fleet).id: 1000}


def shared() -> tuple[Fleet, Ledger]:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(4), plan=VLLM)
    return fleet, Ledger(fleet)


def test_engines_that_share_their_cache_have_a_prompt_from_its_first_token_on() -> None:
    fleet, ledger = shared()
    held = lease(ledger.submit(ask(chain=FIRST), 1.0, 0))
    ledger.caches.token_came(held, 1.5)
    assert matches(ledger, SECOND) == {target(fleet).id: 1000}
    ledger.caches.ended(held, told(0), 2.0, streamed=True)
    assert repr(ledger.caches.index).endswith(" 0 used again>"), "one request counts once"
    ledger.release(held, 2.0, 0)
    assert turn(ledger, OTHER, told(0), 3.0) == "miss"
    assert matches(ledger, OTHER) == {target(fleet).id: 1000}, "a reply in one piece has no first token"


def test_other_engines_have_it_only_when_the_request_has_ended() -> None:
    fleet, ledger = world(2)
    held = lease(ledger.submit(ask(chain=FIRST), 1.0, 0))
    ledger.caches.token_came(held, 1.5)
    assert matches(ledger, SECOND) == {}
    ledger.caches.ended(held, told(0), 2.0, streamed=True)
    ledger.release(held, 2.0, 0, told(0))
    assert matches(ledger, SECOND) == {target(fleet).id: 1000}


def test_a_backend_without_a_plan_shares_nothing_and_a_request_without_a_chain_records_nothing() -> None:
    fleet, ledger = shared()
    held = lease(ledger.submit(ask(), 1.0, 0))
    ledger.caches.token_came(held, 1.5)
    backend(fleet).plan = None
    ledger.caches.token_came(held, 1.5)
    assert len(ledger.caches.index) == 0


def test_a_target_whose_number_the_index_cannot_hold_is_left_out() -> None:
    fleet, ledger = world(1)
    target(fleet).id = 0x10000
    assert turn(ledger, FIRST, told(0), 1.0) == "miss"
    assert len(ledger.caches.index) == 0


def test_a_number_that_another_target_gets_has_no_matches() -> None:
    fleet = fleet_of(spec("old"))
    publish(fleet, "old", 0.0, warm())
    index = PrefixIndex()
    ledger = Ledger(fleet, caches=Caches(fleet, index))
    turn(ledger, FIRST, told(0), 0.0)
    number = target(fleet, "old").id
    for n in range(34):
        fleet.set_backends([spec(f"other-{n}")], 1.0)
    fleet.set_backends([spec("new")], 2.0)
    publish(fleet, "new", 2.0, warm())
    assert target(fleet, "new").id == number
    assert fleet.generation_of(number) == 0
    assert matches(ledger, SECOND) == {}
    assert fleet.generation_of(number + 1) is None


def test_nobody_need_hear_of_numbers() -> None:
    fleet = fleet_of(spec("old"))
    publish(fleet, "old", 0.0)
    for n in range(34):
        fleet.set_backends([spec(f"other-{n}")], 1.0)
    fleet.set_backends([spec("new")], 2.0)
    publish(fleet, "new", 2.0)
    assert target(fleet, "new").id == 0


def test_who_never_has_a_prompt_found_is_looked_at_and_who_has_is_not() -> None:
    _, ledger = world(1)
    caches = ledger.caches

    def look(number: int, chain: Chain | None, prompt_tokens: int = 1000) -> None:
        held = lease(ledger.submit(ask(prompt_tokens=prompt_tokens, chain=chain), 1.0, 0))
        caches.look_for_buster(held, b"%06d " % number + b"x" * 5000)
        caches.ended(held, told(None), 1.0, streamed=True)
        ledger.release(held, 1.0, 0, told(None))

    for number in range(24):
        look(number, Chain((1000 + number,), (4000,)))
    assert [(one.key, one.model, one.position) for one in caches.busters.found()] == [("alice", M, 0)]
    look(1, FIRST, prompt_tokens=0)
    assert len(caches.busters.found()) == 1
    look(1, FIRST)
    assert caches.busters.found() == []


def test_of_two_who_wait_the_one_whose_prompt_the_free_engine_holds_goes_first() -> None:
    fleet, ledger = world(1, 1)
    for name in ("gpu-1", "gpu-2"):
        target(fleet, name).stats.prefill_s_per_token.add(0.01)
        target(fleet, name).stats.service_s.add(1.0)
        target(fleet, name).stats.decode_s_per_token.add(0.01)
    done = told(0, prompt=10_000)
    chains = [Chain((21, 22), (4000, 40_000)), Chain((31, 32), (4000, 40_000))]
    for it, chain in zip((target(fleet, "gpu-1"), target(fleet, "gpu-2")), chains, strict=True):
        first = lease(ledger.submit(ask(prompt_tokens=10_000, chain=chain, only=frozenset({it.id})), 1.0, 0))
        ledger.caches.ended(first, done, 1.0, streamed=True)
        ledger.release(first, 1.0, 0, done)
    held = [lease(ledger.submit(ask(prompt_tokens=100, expected_tokens=1000.0), 1.0, 0)) for _ in chains]
    waits = [
        ticket(ledger.submit(ask(prompt_tokens=10_100, chain=Chain((*chain.hashes, 5), (*chain.ends, 40_400))), 1.5, 0))
        for chain in chains
    ]
    [grant] = ledger.release(next(one for one in held if one.backend == "gpu-2"), 2.0, 0, done)
    assert (grant.ticket, grant.lease.decision.matched_tokens > 0) == (waits[1].id, True)
    assert ledger.release(grant.lease, 2.0, 0, done) == [], "the other one rather waits for the engine that has its own"
    [grant] = ledger.release(next(one for one in held if one.backend == "gpu-1"), 3.0, 0, done)
    assert (grant.ticket, grant.lease.backend) == (waits[0].id, "gpu-1")
