"""A small fleet with readings, as the scraper would have published it, and finished requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pharos.core.engine.plan import Dropped, Plan, Round
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Probe
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.backend import Backend, BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.policy import Score
from pharos.core.signals import BACKEND, Reading, Residency, Signal, Value
from pharos.proxy.done import Done

NOW = 1000.0


def probe(name: str, signal: Signal, path: str, *, own: bool = False) -> Probe:
    return Probe(name=name, signal=signal, feed=Feed(kind=FeedKind.GET, path=path), parse=lambda _: {}, own=own)


PROBES = (
    probe("models", Signal.MODELS, "/v1/models"),
    probe("residency", Signal.RESIDENCY, "/props"),
    probe("slots", Signal.CAPACITY, "/props"),
    probe("busy", Signal.RUNNING, "/metrics"),
    probe("mine", Signal.CONTEXT_LENGTH, "/props", own=True),
)
DROPPED = (
    Dropped(probe="version", signal=Signal.VERSION, reason=DropReason.NO_VALUE, detail="names no build"),
    Dropped(probe="deferred", signal=Signal.WAITING, reason=DropReason.NOT_FOUND, detail="/metrics answers 501"),
)
VALUES: dict[tuple[Signal, str], Value] = {
    (Signal.MODELS, BACKEND): ("tiny",),
    (Signal.RESIDENCY, BACKEND): Residency.LOADED,
    (Signal.CAPACITY, BACKEND): 4,
    (Signal.RUNNING, BACKEND): 0,
    (Signal.CONTEXT_LENGTH, BACKEND): 4096,
}


@dataclass
class Chosen:
    """Why a request went where it did, made up."""

    reason: str = "warm, est 0.4 s"
    scores: Sequence[Score] = (
        Score(
            target_id=0, name="gpu-1", wait_s=0.0, load_s=0.0, prefill_s=0.4, kv_s=0.0, total_s=0.4,
            feasible=True, why_not="", free=True, occupancy=0.0,
        ),
    )  # fmt: skip


def publish(fleet: Fleet, name: str, values: dict[tuple[Signal, str], Value], now: float = NOW) -> Backend:
    backend = fleet.backends[name]
    plan = Plan(kind="llamacpp", kind_source="detected", version=None, active=PROBES, dropped=DROPPED)
    names = {one.signal: one.name for one in PROBES}
    readings = {
        key: Reading(value=value, at=now, probe=names.get(key[0], "?"), interval_s=5.0) for key, value in values.items()
    }
    found = Round(readings=readings, failed=(), read=frozenset(names))
    fleet.publish(backend, plan, found, now, full=True, started_at=now)
    return backend


@pytest.fixture
def fleet() -> Fleet:
    """Two backends: `gpu-1` was read, `gpu-2` not yet."""
    fleet = Fleet()
    fleet.set_backends((BackendSpec("gpu-1", "http://gpu-1:8080"), BackendSpec("gpu-2", "http://gpu-2:8080")), NOW)
    publish(fleet, "gpu-1", VALUES)
    return fleet


@pytest.fixture
def finished() -> Callable[..., Done]:
    """Makes the record of a served request; keywords change it."""

    def make(**changes: Any) -> Done:
        fields: dict[str, Any] = {
            "request_id": "r1",
            "path": "/v1/chat/completions",
            "at_wall": 1_800_000_000.0,
            "key": "alice",
            "model": "tiny",
            "target": "tiny@gpu-1",
            "backend": "gpu-1",
            "status": 200,
            "stages": [("admission", "ok"), ("route", "warm"), ("upstream", "ok")],
            "choice": Chosen(),
            "predicted_s": 0.4,
            "ttft_s": 0.3,
            "first_byte_s": 0.2,
            "overhead_s": 0.0012,
            "usage": Usage(prompt_tokens=100, cached_tokens=60, completion_tokens=7),
            "streamed": True,
        }  # fmt: skip
        return Done(**(fields | changes))

    return make
