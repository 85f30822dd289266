"""Backends, targets and decisions as plain dictionaries in the one JSON shape that doctor, status page and admin share.

Forbidden here: inventing a value; what is unknown is `None` and has a row that says why.
"""

from collections.abc import Mapping
from typing import Any

from pharos.core.engine import recipes
from pharos.core.engine.hints import Hint, hint_for, locked
from pharos.core.engine.plan import asleep_in, why_unknown
from pharos.core.engine.probe import SCRAPED, DropReason, FeedKind, Probe, SideEffect
from pharos.core.fleet.backend import Backend, State, Target
from pharos.core.policy import Score
from pharos.core.signals import BACKEND, LOAD_SIGNALS, MARKS, Key, Reading, Residency, Signal, Value
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
        "up": None if it.state is State.UNKNOWN else it.is_alive(now),
        "plan": _known_rows(it, now),
        "dropped": [
            {"probe": drop.probe, "reason": _with_detail(drop.reason.value, drop.detail)}
            for drop in (plan.dropped if plan is not None else ())
        ],
        "unknown": _unknown_rows(it, now),
    }


def standing(it: Backend) -> Described:
    """How one backend stands with Pharos: not part of what its engine tells."""
    return {"state": it.state.value, "error": it.error, "drained_by": it.drained_by, "inflight": it.inflight}


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
        "queue": it.physical,
        "residency": _plain(view.residency),
        "inflight": it.inflight,
        "queue_inflight": it.slots.inflight,
        "peers": it.peers,
        "queue_peers": it.slots.peers,
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
            "base_s": stats.base_s.value,
            "decode_s_per_token": stats.decode_s_per_token.value,
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
    asleep = asleep_in({key: reading for key, reading in it.readings.items() if reading.is_fresh(now)})
    queues = {one.served: one.group for one in it.targets.values() if one.listed}
    for signal in Signal:
        if signal in MARKS or (signal in _IF_OFFERED and not _is_offered(it, signal)):
            continue
        of_signal = {model: reading for (name, model), reading in it.readings.items() if name is signal}
        known = {model for model, reading in of_signal.items() if reading.is_fresh(now)}
        if BACKEND in known:
            continue
        told = {model for model, queue in queues.items() if model in known or queue in known}
        silent: list[str] = [model for model in queues if model not in told] if known else [BACKEND]
        hint = hint_for(signal, own)
        fix = _fix(it, signal, hint)
        usual = _why_unknown(it, signal, asleep=asleep) if silent else ("", False)
        for model in silent:
            stale = of_signal.get(model) if known else max(of_signal.values(), key=lambda one: one.at, default=None)
            reason, is_expected = _why_not_of(it, signal, model, stale, now, usual)
            rows.append(
                {
                    "signal": signal.value,
                    "model": None if model == BACKEND else model,
                    "reason": reason,
                    "expected": is_expected,
                    "cost": hint.cost,
                    "fix": fix,
                }
            )
    return rows


def _fix(it: Backend, signal: Signal, hint: Hint) -> str | None:
    """What would make a signal known: first of all the right key, where the engine asks for one."""
    if it.plan is None:
        return None
    drops = [drop for drop in it.plan.dropped if drop.signal is signal]
    is_locked = any(drop.reason is DropReason.UNAUTHORIZED for drop in drops)
    return locked(it.spec.credential) if is_locked else hint.fix


def _own_hints(it: Backend) -> Mapping[Signal, Hint]:
    return recipes.by_kind(it.plan.kind).hints if it.plan is not None else {}


def _why_not_of(
    it: Backend, signal: Signal, model: str, stale: Reading | None, now: float, usual: tuple[str, bool]
) -> tuple[str, bool]:
    """The reason for one model or the whole backend; `usual`: the one for all of which nothing more is known."""
    doubted = _doubt(it, model) if signal in LOAD_SIGNALS else None
    if doubted is not None:
        return doubted, False
    if stale is not None and not _is_withheld(it, model, stale):
        return f"too old: {stale.probe} read it {now - stale.at:.0f} s ago", False
    return usual


def _doubt(it: Backend, model: str) -> str | None:
    """Why the load of a model is not believed; of the whole backend, when that of all its models is not."""
    told = it.doubts.get(model, it.doubts.get(BACKEND))
    if told is None and model == BACKEND and it.doubts:
        listed = {one.served for one in it.targets.values() if one.listed}
        return next(iter(it.doubts.values())) if listed <= it.doubts.keys() else None
    return told


def _is_withheld(it: Backend, model: str, stale: Reading) -> bool:
    """Whether the probe that read a value is not asked now, since that would disturb the engine."""
    active = it.plan.active if it.plan is not None else ()
    feed = next((probe.feed for probe in active if probe.name == stale.probe), None)
    if feed is None or feed.side_effect not in _WITH_OURS:
        return False
    return not any(one.inflight for one in it.targets.values() if one.served == model or not feed.per_model)


def _why_unknown(it: Backend, signal: Signal, *, asleep: bool | None) -> tuple[str, bool]:
    """The reason in words, the most telling first, and whether this engine simply does not tell."""
    plan = it.plan
    if plan is None:
        return it.error if it.error is not None else "not read yet", False
    planned = [probe for probe in plan.active if probe.signal is signal]
    broken: dict[str, list[str]] = {}
    for probe in planned:
        if probe.name in it.feed_faults:
            fault = f"its {_feed_name(probe)} cannot be followed ({it.feed_faults[probe.name]})"
            broken.setdefault(fault, []).append(probe.name)
    if broken:
        return "; ".join(f"{', '.join(names)}: {fault}" for fault, names in broken.items()), False
    withheld = why_unknown(plan, signal, asleep=asleep, ours=it.inflight > 0) if planned else None
    if withheld is None and planned:
        names = ", ".join(probe.name for probe in planned)
        if all(_may_be_silent(probe) and probe.name not in plan.trusted for probe in planned):
            return f"nothing told by {names}: it tells of some models only, or of none yet", True
        return f"no value from {names} in the last round", False
    drops = [withheld] if withheld is not None else [drop for drop in plan.dropped if drop.signal is signal]
    if not drops:
        return NOT_OFFERED, True
    text = "; ".join(f"{drop.probe}: {_with_detail(drop.reason.value, drop.detail)}" for drop in drops)
    usual = _NOT_TOLD | {DropReason.NOT_FOUND} if _is_beyond_help(it, signal) else _NOT_TOLD
    return text, all(drop.reason in usual for drop in drops)


def _feed_name(probe: Probe) -> str:
    return "log" if probe.feed.kind is FeedKind.LOG else f"stream {probe.feed.path}"


def _may_be_silent(probe: Probe) -> bool:
    """Whether finding nothing is an answer of this probe: it tells of models in memory, or when a line comes."""
    return probe.may_be_empty or probe.feed.kind not in SCRAPED


def _is_beyond_help(it: Backend, signal: Signal) -> bool:
    """Whether nothing is left to do about a path that is not there: there is no remedy, or it was taken."""
    is_given = signal is Signal.CAPACITY and it.spec.capacity is not None
    return is_given or hint_for(signal, _own_hints(it)).fix.startswith("none")


def _with_detail(reason: str, detail: str) -> str:
    return f"{reason} ({detail})" if detail else reason


def _plain(value: Value | None) -> Any:  # noqa: ANN401 (a JSON value)
    """The value as JSON has it."""
    if isinstance(value, Residency):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _is_offered(it: Backend, signal: Signal) -> bool:
    """Whether this kind of engine has any probe for a signal."""
    return it.plan is not None and any(probe.signal is signal for probe in recipes.by_kind(it.plan.kind).probes)


_WITH_OURS = frozenset({SideEffect.WAKES, SideEffect.PINS})
"""What is read only while requests of ours run."""
_IF_OFFERED = frozenset({Signal.PHYSICAL_GROUP, Signal.GPU_TOTAL_BYTES, Signal.GPU_USED_BYTES, Signal.MODELS_AT_ONCE})
"""Signals that nobody misses on an engine that has no such thing."""
_RANK = {signal: rank for rank, signal in enumerate(Signal)}
