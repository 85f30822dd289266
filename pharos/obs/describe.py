"""Backends, targets and decisions as plain dictionaries in the one JSON shape that doctor, status page and admin share.

Forbidden here: inventing a value; what is unknown is `None` and has a row that says why.
"""

from collections.abc import Mapping
from typing import Any

from pharos.core.engine import recipes
from pharos.core.engine.hints import Hint, hint_for
from pharos.core.engine.plan import asleep_in, why_unknown
from pharos.core.engine.probe import DropReason, Probe
from pharos.core.fleet.backend import Backend, State, Target
from pharos.core.policy import Score
from pharos.core.signals import BACKEND, Key, Reading, Residency, Signal, Value
from pharos.proxy.done import Done

SCHEMA = 1
"""Version of the shape: it goes up when a field changes its meaning or goes away, not when one is added."""
NOT_OFFERED = "no probe of this kind of engine reads it"
"""The reason of a row under `unknown` that no engine of this kind could mend."""

_NOT_TOLD = frozenset(
    {
        DropReason.NO_VALUE,
        DropReason.NO_EVIDENCE,
        DropReason.VERSION_GUARD,
        DropReason.NO_LOG_FEED,
        DropReason.SIDE_EFFECT,
    }
)
"""Reasons that show an engine which does not tell, as against one that is broken, locked or not set up to tell."""

Described = dict[str, Any]


def backend(it: Backend, now: float) -> Described:
    """One backend: what is known and from where, what was tried in vain, what is unknown and what would help."""
    plan = it.plan
    return {
        "schema": SCHEMA,
        "name": it.spec.name,
        "url": it.spec.url,
        "kind": plan.kind if plan is not None else it.spec.kind,
        "kind_source": plan.kind_source if plan is not None else None,
        "version": plan.version if plan is not None else None,
        "up": None if it.state is State.UNKNOWN else it.is_up(now),
        "plan": _known_rows(it, now),
        "dropped": [
            {"probe": drop.probe, "reason": _with_detail(drop.reason.value, drop.detail)}
            for drop in (plan.dropped if plan is not None else ())
        ],
        "unknown": _unknown_rows(it, now),
    }


def is_complete(described: Described) -> bool:
    """Whether everything is known that this kind of engine can tell."""
    return all(row["expected"] for row in described["unknown"])


def target(it: Target, now: float) -> Described:
    """One target: what its engine says, what we have running there, and what we have learned about its speed."""
    view, stats = it.view(now), it.stats
    return {
        "model": it.model,
        "served_as": it.served,
        "listed": it.listed,
        "residency": _plain(view.residency),
        "inflight": it.inflight,
        "queue_inflight": it.slots.inflight,
        "running": view.running,
        "waiting": view.waiting,
        "capacity": view.capacity,
        "kv_usage": view.kv_usage,
        "context_length": view.context_length,
        "size_bytes": view.size_bytes,
        "generation": it.generation,
        "learned": {
            "prefill_s_per_token": stats.prefill_s_per_token.value,
            "load_s": stats.load_s.value,
            "service_s": stats.service_s.value,
        },
    }


def decision(done: Done) -> Described:
    """Why one request went where it did. Seconds; `actual` is dispatch to first token, which `predicted` foretold."""
    return {
        "request_id": done.request_id,
        "key": done.key,
        "model": done.model,
        "target": done.target,
        "reason": done.reason,
        "stages": [f"{stage}={outcome}" for stage, outcome in done.stages],
        "predicted": done.predicted_s,
        "actual": done.ttft_s,
        "candidates": [_candidate(score) for score in done.scores],
    }


def request(done: Done) -> Described:
    """A decision with what became of the request, for the status page."""
    usage = done.usage
    return decision(done) | {
        "at": done.at_wall,
        "path": done.path,
        "status": done.status,
        "streamed": done.streamed,
        "queue_wait_s": done.queue_wait_s,
        "first_byte_s": done.first_byte_s,
        "overhead_s": done.overhead_s,
        "duration_s": done.duration_s,
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "cached_tokens": usage.cached_tokens if usage is not None else None,
        "completion_tokens": usage.completion_tokens if usage is not None else None,
    }


def _candidate(score: Score) -> Described:
    return {
        "target": score.name,
        "wait_s": score.wait_s,
        "load_s": score.load_s,
        "prefill_s": score.prefill_s,
        "kv_s": score.kv_s,
        "feasible": score.feasible,
        "why_not": score.why_not or None,
    }


def _known_rows(it: Backend, now: float) -> list[Described]:
    """One row per fresh value, in the order of the vocabulary."""
    probes = {probe.name: probe for probe in (it.plan.active if it.plan is not None else ())}
    fresh = [(key, reading) for key, reading in it.readings.items() if reading.is_fresh(now)]
    fresh.sort(key=lambda row: (_RANK[row[0][0]], row[0][1]))
    return [_known_row(key, reading, probes.get(reading.probe), now) for key, reading in fresh]


def _known_row(key: Key, reading: Reading, probe: Probe | None, now: float) -> Described:
    signal, model = key
    return {
        "signal": signal.value,
        "model": None if model == BACKEND else model,
        "value": _plain(reading.value),
        "probe": reading.probe,
        "feed": f"{probe.feed.kind.value} {probe.feed.path}".strip() if probe is not None else None,
        "age_s": round(max(0.0, now - reading.at), 3),
        "own": probe.own if probe is not None else False,
    }


def _unknown_rows(it: Backend, now: float) -> list[Described]:
    """One row per signal that nothing tells, and one per target that a per-model signal leaves out."""
    rows = []
    own = _own_hints(it)
    for signal in Signal:
        of_signal = {model: reading for (name, model), reading in it.readings.items() if name is signal}
        known = {model for model, reading in of_signal.items() if reading.is_fresh(now)}
        if BACKEND in known:
            continue
        served = dict.fromkeys(one.served for one in it.targets.values() if one.listed)
        silent: list[str] = [model for model in served if model not in known] if known else [BACKEND]
        for model in silent:
            stale = of_signal.get(model) if known else max(of_signal.values(), key=lambda one: one.at, default=None)
            hint = hint_for(signal, own)
            reason, is_expected = _why_unknown(it, signal, stale, now)
            rows.append(
                {
                    "signal": signal.value,
                    "model": None if model == BACKEND else model,
                    "reason": reason,
                    "expected": is_expected,
                    "cost": hint.cost,
                    "fix": hint.fix if it.plan is not None else None,
                }
            )
    return rows


def _own_hints(it: Backend) -> Mapping[Signal, Hint]:
    return recipes.by_kind(it.plan.kind).hints if it.plan is not None else {}


def _why_unknown(it: Backend, signal: Signal, stale: Reading | None, now: float) -> tuple[str, bool]:
    """The reason in words, the most telling first, and whether this engine simply does not tell."""
    if stale is not None:
        return f"too old: {stale.probe} read it {now - stale.at:.0f} s ago", False
    plan = it.plan
    if plan is None:
        return it.error if it.error is not None else "not read yet", False
    planned = [probe.name for probe in plan.active if probe.signal is signal]
    fresh = {key: reading for key, reading in it.readings.items() if reading.is_fresh(now)}
    withheld = why_unknown(plan, signal, asleep=asleep_in(fresh)) if planned else None
    if withheld is None and planned:
        return f"no value from {', '.join(planned)} in the last round", False
    drops = [withheld] if withheld is not None else [drop for drop in plan.dropped if drop.signal is signal]
    if not drops:
        return NOT_OFFERED, True
    text = "; ".join(f"{drop.probe}: {_with_detail(drop.reason.value, drop.detail)}" for drop in drops)
    return text, all(drop.reason in _NOT_TOLD for drop in drops)


def _with_detail(reason: str, detail: str) -> str:
    return f"{reason} ({detail})" if detail else reason


def _plain(value: Value | None) -> Any:  # noqa: ANN401 (a JSON value)
    """The value as JSON has it."""
    if isinstance(value, Residency):
        return value.value
    return list(value) if isinstance(value, tuple) else value


_RANK = {signal: rank for rank, signal in enumerate(Signal)}
