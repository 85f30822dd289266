"""A client that asks for a context that no model has: Ollama gives what the model was made for, and goes on with that.

Seen at Ollama 0.17.4: of two requests with `num_ctx` 10,000,000 the first one loads the model with 32,768, the second
one loads nothing; one that asks for 32,768 then loads it anew.
"""

from pharos.core.engine.plan import Plan
from pharos.core.fleet import Feedback, Fleet
from pharos.core.sched import Ledger
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, M, fleet_of, publish, spec, target
from tests.core.sched.given import ask, lease

OLLAMA = Plan("ollama", "config", None, LLAMACPP.active, ())
MILLIONS = 10_000_000
MADE_FOR = 32_768


def tells(fleet: Fleet, now: float, context: int) -> None:
    loaded = {(Signal.RESIDENCY, M): Residency.LOADED, (Signal.CONTEXT_LENGTH, M): context, Signal.CAPACITY: 4}
    publish(fleet, "gpu-1", now, loaded, plan=OLLAMA)


def is_cold(ledger: Ledger, now: float, context: int) -> bool:
    held = lease(ledger.submit(ask(context_tokens=context), now, 0))
    ledger.release(held, now + 0.1, 0, Feedback(ok=True, cold=held.cold, ttft_s=0.1, duration_s=0.1))
    return held.cold


def asked_for_millions() -> tuple[Fleet, Ledger]:
    fleet = fleet_of(spec())
    tells(fleet, 0.0, 4096)
    ledger = Ledger(fleet)
    assert is_cold(ledger, 1.0, MILLIONS)
    tells(fleet, 2.0, MADE_FOR)
    return fleet, ledger


def test_more_than_a_model_was_made_for_loads_it_once() -> None:
    fleet, ledger = asked_for_millions()
    for now in range(3, 9):
        assert not is_cold(ledger, float(now), MILLIONS)
        tells(fleet, now + 0.5, MADE_FOR)
    assert target(fleet).loaded_for == MILLIONS


def test_what_it_was_made_for_is_another_size_then() -> None:
    fleet, ledger = asked_for_millions()
    assert is_cold(ledger, 3.0, MADE_FOR)
    tells(fleet, 4.0, MADE_FOR)
    assert not is_cold(ledger, 5.0, MADE_FOR)
    assert is_cold(ledger, 6.0, MILLIONS)


def test_once_another_client_has_had_it_loaded_anew_that_is_what_counts() -> None:
    fleet, ledger = asked_for_millions()
    tells(fleet, 3.0, 4096)
    assert target(fleet).loaded_for == 4096
    assert not is_cold(ledger, 4.0, 4096)


def test_a_size_that_it_gives_is_as_it_ever_was() -> None:
    fleet, ledger = asked_for_millions()
    assert is_cold(ledger, 3.0, 8192)
    tells(fleet, 4.0, 8192)
    assert target(fleet).loaded_for == 8192
    assert not is_cold(ledger, 5.0, 8192)
