"""What is said of a model that no backend lists, while some backend has never told what it has."""

from pharos.core.sched import Ledger
from tests.core.fleet.given import M, backend, fleet_of, publish, spec, warm
from tests.core.sched.given import ask, refusal


def test_a_model_that_only_a_backend_may_have_that_was_never_reached_is_unavailable_and_after_5_minutes_unknown() -> (
    None
):
    fleet = fleet_of(spec("a"), spec("dead"))
    publish(fleet, "a", 1.0, warm(1))
    fleet.unreachable(backend(fleet, "dead"), "refused")
    ledger = Ledger(fleet)
    early = refusal(ledger.submit(ask(model="nope"), 300.0, 0))
    assert (early.outcome, early.retry_after_s) == ("unavailable", 5)
    assert (
        early.text
        == "No backend that is up lists the model 'nope', and dead (does not answer) has not told its models yet."
    )
    publish(fleet, "a", 300.0, warm(1))
    late = refusal(ledger.submit(ask(model="nope"), 300.1, 0))
    assert (late.outcome, late.retry_after_s, late.unread) == ("unknown_model", None, ("dead",))
    fleet.set_backends([spec("a")], 301.0)
    fleet.set_backends([spec("a"), spec("dead")], 302.0)
    fleet.unreachable(backend(fleet, "dead"), "refused")
    again = refusal(ledger.submit(ask(model="nope"), 303.0, 0))
    assert again.outcome == "unavailable", "it is new: its time begins anew"


def test_while_no_backend_ever_told_its_models_nothing_is_unknown() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    fleet.unreachable(backend(fleet, "a"), "refused")
    fleet.unreachable(backend(fleet, "b"), "refused")
    said = refusal(Ledger(fleet).submit(ask(), 9000.0, 0))
    assert (said.outcome, said.unread) == ("unavailable", ())
    absent = "a (does not answer), b (does not answer)"
    assert said.text == f"No backend that is up lists the model '{M}', and {absent} have not told their models yet."


def test_a_model_that_somebody_listed_stays_unavailable_whoever_was_never_reached() -> None:
    fleet = fleet_of(spec("a"), spec("dead"))
    publish(fleet, "a", 1.0, warm(1))
    fleet.unreachable(backend(fleet, "dead"), "refused")
    fleet.unreachable(backend(fleet, "a"), "gone")
    assert refusal(Ledger(fleet).submit(ask(), 9000.0, 0)).outcome == "unavailable"


def test_who_lists_a_model_and_is_not_up_is_counted_by_what_it_does() -> None:
    fleet = fleet_of(spec("a"), spec("b"), spec("c"), spec("d"))
    for name in "abcd":
        publish(fleet, name, 1.0, warm(1))
    fleet.unreachable(backend(fleet, "a"), "refused")
    fleet.unreachable(backend(fleet, "b"), "refused")
    fleet.starting(backend(fleet, "c"))
    fleet.cordons.put("d")
    said = refusal(Ledger(fleet).submit(ask(), 9000.0, 0))
    assert said.text == f"No backend that serves the model '{M}' is up: 2 do not answer, 1 is starting, 1 is drained."
