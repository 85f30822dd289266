"""Gauges that stand still: an engine says that requests run, but its counters of work done do not move.

Some engines keep their last numbers when all requests are aborted at once, until the next one comes; a router that
believes them never sends it. Forbidden here: doubting while requests of ours run there, which keep an engine busy
without a count moving for as long as a long prompt takes.
"""

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet.backend import Backend
from pharos.core.fleet.events import Event
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Signal

FROZEN_S = ASSUMPTIONS["frozen_s"].value

_GAUGES = (Signal.RUNNING, Signal.WAITING)
_BELIEVED_NO_MORE = LOAD_SIGNALS - {Signal.WORK_DONE}


def doubt(backend: Backend) -> list[Event]:
    """Take the load of models whose engine shows work without doing any for unknown; say so once.

    Counters that are not read any more stand still for nobody. A model is believed again once its counter moves, or
    falls idle.
    """
    events: list[Event] = []
    for (signal, model), mark in tuple(backend.marks.items()):
        if signal is not Signal.WORK_DONE:
            continue
        last, claims = backend.readings.get((signal, model)), _claims_work(backend, model)
        if last is None or claims is None:
            continue  # not read now, so nothing is new
        if last.at - mark.since < FROZEN_S or not claims:
            backend.doubts.pop(model, None)
            continue
        if _has_ours(backend, model):
            continue
        if model not in backend.doubts:
            about = f" of {model}" if model != BACKEND else ""
            text = f"requests are said to run, but the engine's counters{about} have not moved for {FROZEN_S:.0f} s"
            backend.doubts[model] = text
            events.append(Event("scrape", "frozen", backend.name, "warning", f"{backend.name}: {text}"))
        _forget_gauges(backend, model)
    return events


def _forget_gauges(backend: Backend, model: str) -> None:
    backend.told.forget(lambda key, _: key[0] in _BELIEVED_NO_MORE and model in (BACKEND, key[1]))


def _claims_work(backend: Backend, model: str) -> bool | None:
    """Whether a gauge says that something runs or waits there; `None` while no gauge is known."""
    gauges = [
        reading.value
        for (signal, of), reading in backend.readings.items()
        if signal in _GAUGES and model in (BACKEND, of) and isinstance(reading.value, int)
    ]
    return any(value > 0 for value in gauges) if gauges else None


def _has_ours(backend: Backend, model: str) -> bool:
    return any(target.slots.inflight > 0 for target in backend.targets.values() if model in (BACKEND, target.served))
