"""A target's signals as of one moment: what is stale, or never was read, is `None`.

Forbidden here: defaults. What to make of an unknown is the policy's to say.
"""

import math
from collections.abc import Mapping

import msgspec

from pharos.core.engine.probe import FULL_INTERVAL_S
from pharos.core.signals import BACKEND, STALE_AFTER_INTERVALS, Key, Reading, Residency, Signal

REPLY_PROVES_LOADED_S = STALE_AFTER_INTERVALS * FULL_INTERVAL_S
"""Seconds for which a successful reply shows that the model is in memory: as long as a residency reading would."""


class View(msgspec.Struct, frozen=True, gc=False):
    """Signals of one target. A value the engine gives for the whole backend holds for each of its targets."""

    residency: Residency | None = None
    running: int | None = None
    waiting: int | None = None
    capacity: int | None = None
    kv_usage: float | None = None
    context_length: int | None = None
    size_bytes: int | None = None
    vram_bytes: int | None = None
    running_at: float | None = None
    """When `running` was asked for, seconds on the caller's clock."""
    waiting_at: float | None = None
    """When `waiting` was asked for."""


def look(readings: Mapping[Key, Reading], served: str, loaded_at: float | None, now: float) -> tuple[View, float]:
    """See one model's signals at `now`, and until when that view holds if nothing new is read.

    `served` is the engine's name of the model; `loaded_at` when a successful reply last showed it in memory.
    """
    used: list[Reading] = []

    def fresh(signal: Signal) -> Reading | None:
        for model in (served, BACKEND):
            reading = readings.get((signal, model))
            if reading is not None and reading.is_fresh(now):
                used.append(reading)
                return reading
        return None

    running, waiting = fresh(Signal.RUNNING), fresh(Signal.WAITING)
    residency, proven_until = _residency(fresh(Signal.RESIDENCY), loaded_at, now)
    view = View(
        residency=residency,
        running=_whole(running),
        waiting=_whole(waiting),
        capacity=_whole(fresh(Signal.CAPACITY)),
        kv_usage=_share(fresh(Signal.KV_USAGE)),
        context_length=_whole(fresh(Signal.CONTEXT_LENGTH)),
        size_bytes=_whole(fresh(Signal.SIZE_BYTES)),
        vram_bytes=_whole(fresh(Signal.VRAM_BYTES)),
        running_at=running.at if running is not None else None,
        waiting_at=waiting.at if waiting is not None else None,
    )
    ends = [r.at + STALE_AFTER_INTERVALS * r.interval_s for r in used if r.interval_s is not None]
    return view, min([*ends, proven_until])


def _residency(reading: Reading | None, loaded_at: float | None, now: float) -> tuple[Residency | None, float]:
    """Where the model is, and until when a reply's proof of it holds.

    A successful reply that is newer than the reading shows the model loaded; the next reading has the last word.
    """
    is_proven = loaded_at is not None and now - loaded_at <= REPLY_PROVES_LOADED_S
    if loaded_at is not None and is_proven and (reading is None or reading.at < loaded_at):
        return Residency.LOADED, loaded_at + REPLY_PROVES_LOADED_S
    if reading is None or not isinstance(reading.value, Residency):
        return None, math.inf
    return reading.value, math.inf


def _whole(reading: Reading | None) -> int | None:
    return reading.value if reading is not None and isinstance(reading.value, int) else None


def _share(reading: Reading | None) -> float | None:
    return float(reading.value) if reading is not None and isinstance(reading.value, int | float) else None
