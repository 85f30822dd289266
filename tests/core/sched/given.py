"""Ledgers for tests, over fleets built by publishing rounds."""

from pharos.core.fleet import BackendSpec, Fleet
from pharos.core.sched import Expiry, Grant, Lease, Ledger, Refusal, Submit, Ticket
from pharos.core.signals import Value
from tests.core.fleet.given import M, fleet_of, publish, spec, warm


def ask(key: str = "alice", model: str = M, **more: object) -> Submit:
    return Submit(**({"key": key, "weight": 1, "model": model, "prompt_tokens": 100} | more))  # type: ignore[arg-type]


def world(*capacities: int, models: tuple[str, ...] = (M,), **options: object) -> tuple[Fleet, Ledger]:
    """Warm, idle backends gpu-1, gpu-2 … with so many slots, read at time 0."""
    fleet = fleet_of(*[spec(f"gpu-{i}") for i in range(1, len(capacities) + 1)])
    for name, capacity in zip(fleet.backends, capacities, strict=True):
        publish(fleet, name, 0.0, warm(capacity), models=models)
    return fleet, Ledger(fleet, **options)  # type: ignore[arg-type]


def one(spec_: BackendSpec, now: float = 0.0, **values: Value) -> tuple[Fleet, Ledger]:
    fleet = fleet_of(spec_)
    publish(fleet, spec_.name, now, warm(1, **values))
    return fleet, Ledger(fleet)


def lease(got: Lease | Ticket | Refusal) -> Lease:
    assert isinstance(got, Lease), got
    return got


def ticket(got: Lease | Ticket | Refusal) -> Ticket:
    assert isinstance(got, Ticket), got
    return got


def refusal(got: Lease | Ticket | Refusal) -> Refusal:
    assert isinstance(got, Refusal), got
    return got


def granted(news: list[Grant] | list[Grant | Expiry]) -> list[int]:
    return [item.ticket for item in news if isinstance(item, Grant)]


def expired(news: list[Grant | Expiry]) -> dict[int, str]:
    return {item.ticket: item.refusal.outcome for item in news if isinstance(item, Expiry)}
