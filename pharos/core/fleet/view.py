"""A target's signals as of one moment: what is stale, or never was read, is `None`.

Forbidden here: defaults. What to make of an unknown is the policy's to say.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

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


_KINDS: Final[tuple[tuple[Signal, type | tuple[type, ...]], ...]] = (
    (Signal.RESIDENCY, Residency),
    (Signal.RUNNING, int),
    (Signal.WAITING, int),
    (Signal.CAPACITY, int),
    (Signal.KV_USAGE, (int, float)),
    (Signal.CONTEXT_LENGTH, int),
    (Signal.SIZE_BYTES, int),
    (Signal.VRAM_BYTES, int),
)
"""What a view shows, in the order of its fields, and the type of each; a value of another type is unknown."""
_SHOWN: Final = tuple((signal, (signal, BACKEND), kind) for signal, kind in _KINDS)
_NO_MODEL = "\0"
_SHOWN_WITHOUT_SLOTS: Final = tuple(
    (signal, (signal, _NO_MODEL if signal is Signal.CAPACITY else BACKEND), kind) for signal, kind in _KINDS
)


def look(
    readings: Mapping[Key, Reading],
    served: str,
    loaded_at: float | None,
    now: float,
    group: str | None = None,
    *,
    has_slots: bool = True,
) -> tuple[View, float]:
    """See one model's signals at `now`, and until when that view holds if nothing new is read.

    `served` is the engine's name of the model; `loaded_at` when a successful reply last showed it in memory; `group`
    the name of its queue, if it shares one. What is told of the model itself comes before what is told of the queue.
    `has_slots`: what is told of the whole backend's slots holds for this model.
    """
    # Each reply changes what its target looks like, so every request pays for this: one loop, and few calls in it.
    values: list[Any] = []
    times: list[float | None] = []
    until, get = math.inf, readings.get
    for signal, of_backend, kind in _SHOWN if has_slots else _SHOWN_WITHOUT_SLOTS:
        reading = get((signal, served))
        if group is not None and (reading is None or not reading.is_fresh(now)):
            reading = get((signal, group))
        if reading is None or not reading.is_fresh(now):
            reading = get(of_backend)
            if reading is None or not reading.is_fresh(now):
                values.append(None)
                times.append(None)
                continue
        values.append(reading.value if isinstance(reading.value, kind) else None)
        times.append(reading.at)
        if reading.interval_s is not None:
            end = reading.at + STALE_AFTER_INTERVALS * reading.interval_s
            if end < until:  # noqa: PLR1730 - min() is a call
                until = end
    told, running, waiting, capacity, kv_usage, context_length, size_bytes, vram_bytes = values
    residency, proven_until = _residency(told, times[0], loaded_at, now)
    kv_usage = float(kv_usage) if kv_usage is not None else None
    view = View(
        residency, running, waiting, capacity, kv_usage, context_length, size_bytes, vram_bytes, times[1], times[2]
    )
    return view, min(until, proven_until)


def _residency(
    told: Residency | None, told_at: float | None, loaded_at: float | None, now: float
) -> tuple[Residency | None, float]:
    """Where the model is, and until when a reply's proof of it holds. `told_at`: when the engine was asked.

    A successful reply that is newer than the reading shows the model loaded; the next reading has the last word.
    """
    if loaded_at is not None and now - loaded_at <= REPLY_PROVES_LOADED_S and (told_at is None or told_at < loaded_at):
        return Residency.LOADED, loaded_at + REPLY_PROVES_LOADED_S
    return told, math.inf
