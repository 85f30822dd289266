"""What a request asks for reaches the policy, and what nobody can ever serve is refused instead of kept waiting."""

from random import Random

import pytest

from pharos.core.engine.plan import Plan
from pharos.core.fleet import Feedback, Fleet
from pharos.core.sched import Ledger
from pharos.core.sched.compare import compare
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, M, backend, fleet_of, publish, spec, target, warm
from tests.core.sched.given import ask, lease, refusal, ticket, world

OLLAMA = Plan("ollama", "config", None, LLAMACPP.active, ())
VISION = frozenset({"vision"})
DONE = Feedback(ok=True, cold=False, ttft_s=1.0, duration_s=3.0)


def small_and_large(*, is_large_up: bool = True) -> Ledger:
    fleet = fleet_of(spec("small"), spec("large"))
    publish(fleet, "small", 0.0, warm(1) | {Signal.CONTEXT_LENGTH: 1000})
    publish(fleet, "large", 0.0, warm(1) | {Signal.CONTEXT_LENGTH: 8000})
    if not is_large_up:
        fleet.unreachable(backend(fleet, "large"), "gone")
    return Ledger(fleet)


def test_a_long_prompt_waits_for_the_one_that_can_hold_it() -> None:
    ledger = small_and_large()
    assert lease(ledger.submit(ask(prompt_tokens=6000), 1.0, 0)).backend == "large"
    ticket(ledger.submit(ask(prompt_tokens=6000), 1.0, 0))


def test_a_prompt_that_no_context_holds_is_refused_with_the_largest_one() -> None:
    said = refusal(small_and_large().submit(ask(prompt_tokens=10**6), 1.0, 0))
    assert (said.outcome, said.retry_after_s) == ("does_not_fit", None)
    assert said.text == f"No backend of the model '{M}' can take this request: the largest context holds 8000 tokens."


def test_one_that_is_away_may_hold_it_so_the_client_may_come_back() -> None:
    said = refusal(small_and_large(is_large_up=False).submit(ask(prompt_tokens=6000), 1.0, 0))
    assert (said.outcome, said.retry_after_s) == ("unavailable", 5)
    assert said.text.endswith("its context holds 1000 tokens. Another one is not up now.")


@pytest.mark.parametrize("more", [{"exclude": frozenset({99})}, {"absent_ok": False}])
def test_a_retry_that_fits_nowhere_else_gets_the_answer_it_holds(more: dict[str, object]) -> None:
    said = refusal(small_and_large().submit(ask(prompt_tokens=10**6, **more), 1.0, 0))
    assert said.outcome == "nowhere_else"


def test_what_a_request_needs_reaches_the_policy() -> None:
    fleet = fleet_of(spec("blind"), spec("seeing"))
    for name, words in (("blind", ("completion",)), ("seeing", ("completion", "vision"))):
        publish(fleet, name, 0.0, warm(4) | {(Signal.CAPACITY, M): 4, (Signal.CAPABILITIES, M): words}, plan=OLLAMA)
    ledger = Ledger(fleet)
    assert {lease(ledger.submit(ask(needs=VISION), 1.0, seed)).backend for seed in range(4)} == {"seeing"}
    said = refusal(Ledger(_only_blind()).submit(ask(needs=VISION), 1.0, 0))
    assert said.text.endswith("cannot do vision.")


def _only_blind() -> Fleet:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(4) | {(Signal.CAPABILITIES, M): ("completion",)}, plan=OLLAMA)
    return fleet


def test_what_caches_hold_is_given_by_target_and_counts_at_its_place() -> None:
    fleet, ledger = world(4, 4)
    cached = target(fleet, "gpu-2").id
    held = lease(ledger.submit(ask(prompt_tokens=1000, matched={cached: 900, 77: 5}), 1.0, 0))
    assert (held.backend, held.decision.why, held.decision.req.matched) == ("gpu-2", "cache", ((1, 900),))
    other = lease(ledger.submit(ask(prompt_tokens=1000, matched={cached: 900}, exclude=frozenset({cached})), 1.0, 0))
    assert other.decision.req.matched == ()


def test_two_contexts_on_two_engines_take_two_loads() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    for name in ("a", "b"):
        publish(fleet, name, 0.0, {(Signal.RESIDENCY, M): Residency.COLD}, plan=OLLAMA)
    ledger, now, cold = Ledger(fleet), 1.0, 0
    for turn in range(100):
        held = lease(ledger.submit(ask(context_tokens=4096 if turn % 2 else 32768), now, turn))
        cold += held.cold
        took = 8.0 if held.cold else 0.5
        now += took
        ledger.release(held, now, 0, Feedback(ok=True, cold=held.cold, ttft_s=took, duration_s=took))
        for name in ("a", "b"):
            it = target(fleet, name)
            asked = it.loaded_for
            state = Residency.COLD if asked is None else Residency.LOADED
            context = {} if asked is None else {(Signal.CONTEXT_LENGTH, M): asked}
            publish(fleet, name, now, {(Signal.RESIDENCY, M): state} | context, plan=OLLAMA)
    assert cold == 2


def test_a_model_that_is_loaded_anew_for_a_request_is_a_cold_dispatch() -> None:
    fleet = fleet_of(spec())
    loaded = {(Signal.RESIDENCY, M): Residency.LOADED, (Signal.CONTEXT_LENGTH, M): 4096, Signal.CAPACITY: 4}
    publish(fleet, "gpu-1", 0.0, loaded, plan=OLLAMA)
    ledger = Ledger(fleet)
    held = lease(ledger.submit(ask(context_tokens=32768), 1.0, 0))
    assert held.cold
    ticket(ledger.submit(ask(context_tokens=4096), 1.0, 0))
    assert not lease(ledger.visit(ask(context_tokens=32768), 1.0, 0)).cold, "it is being loaded for that"


def test_a_model_whose_estimates_mislead_goes_to_the_least_loaded_until_they_are_good_again() -> None:
    fleet, ledger = world(4, 4)
    fast, slow = target(fleet, "gpu-1"), target(fleet, "gpu-2")
    fast.stats.prefill_s_per_token.add(0.001)
    slow.stats.prefill_s_per_token.add(0.002)
    running = lease(ledger.submit(ask(prompt_tokens=1000), 1.0, 0))
    assert running.backend == "gpu-1"
    said: list[str] = []

    def serve(factor: float, requests: int) -> set[str]:
        """Scripted engines: each takes so many times what was predicted, without cached counts to learn from."""
        went = set()
        for seed in range(requests):
            held = lease(ledger.submit(ask(prompt_tokens=1000), 1.0, seed))
            took = factor * (held.decision.predicted_start_s or 0.0)
            feedback = Feedback(ok=True, cold=False, ttft_s=took, prompt_tokens=1000)
            said.extend(event.outcome for event in compare(fleet, held, feedback))
            ledger.release(held, 1.0, seed, feedback)
            went.add(held.backend)
        return went

    assert serve(1.0, 40) == {"gpu-1"}
    serve(2.0, 20)
    assert said == ["fell_back"]
    assert serve(2.0, 5) == {"gpu-2"}, "the other one is less loaded"
    serve(1.0, 20)
    assert said == ["fell_back", "recovered"]
    assert serve(1.0, 5) == {"gpu-1"}


def test_least_load_by_configuration_has_nothing_to_fall_back_to() -> None:
    fleet, _ = world(1)
    Ledger(fleet, policy="least-load")
    assert fleet.calibration.steers is False


@pytest.mark.parametrize(
    "feedback",
    [None, Feedback(ok=False, cold=False, ttft_s=1.0), Feedback(ok=True, cold=False)],
    ids=["not the engine's doing", "failed", "no first token"],
)
def test_a_request_that_cannot_tell_calibrates_nothing(feedback: Feedback | None) -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    assert compare(fleet, held, feedback) == []
    assert fleet.calibration.seen(M, "gpu-1") == 0
    compare(fleet, held, DONE)
    assert fleet.calibration.seen(M, "gpu-1") == 1


def test_an_assumed_speed_that_is_wrong_is_shown_and_throws_no_model_back_until_one_was_measured() -> None:
    fleet, ledger = world(1, 1)
    off = Feedback(ok=True, cold=False, ttft_s=60.0, prompt_tokens=1000)

    def serve() -> list[str]:
        events = []
        for seed in range(20):
            held = lease(ledger.submit(ask(prompt_tokens=1000), 1.0, seed))
            events += compare(fleet, held, off)
            ledger.release(held, 1.0, seed, off)
        return [event.outcome for event in events]

    assert serve() == []
    assert (fleet.calibration.ratio(M, "gpu-1") or 1.0) < 0.5
    target(fleet, "gpu-2").stats.prefill_s_per_token.add(0.005)
    assert serve() == ["fell_back"]


def test_one_that_met_an_unknown_residency_calibrates_nothing() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, {Signal.RESIDENCY: Residency.LOADING, Signal.CAPACITY: 4})
    held = lease(Ledger(fleet).submit(ask(), 1.0, 0))
    compare(fleet, held, DONE)
    assert fleet.calibration.seen(M, "gpu-1") == 0


def test_after_50_requests_the_estimates_of_a_steady_engine_are_close() -> None:
    fleet, ledger = world(4)
    it, chance = target(fleet), Random(7)
    for seed in range(50):
        prompt = chance.randrange(50, 3000)
        cached = int(prompt * chance.choice([0.0, 0.5, 0.97]))
        held = lease(ledger.submit(ask(prompt_tokens=prompt, matched={it.id: cached}), 1.0, seed))
        took = 0.03 + 0.002 * (prompt - cached)
        feedback = Feedback(ok=True, cold=False, ttft_s=took, prompt_tokens=prompt, cached_tokens=cached)
        assert compare(fleet, held, feedback) == []
        ledger.release(held, 1.0, seed, feedback)
    spread = fleet.calibration.spread(M, "gpu-1")
    assert spread is not None
    assert spread < 0.3
