"""What would surprise a person about a backend though nothing is broken: one sentence each, with what to do.

Forbidden here: asking the engine anything.
"""

from collections.abc import Iterator
from typing import Final

from pharos.core.fleet import Backend
from pharos.core.fleet.names import canonical
from pharos.core.signals import Signal
from pharos.obs.words import listed

SHOWN: Final = 6
"""Models that are named in one remark."""


def of_backend(backend: Backend, now: float) -> tuple[str, ...]:
    """Every remark on what is known of a backend; `now` on the clock of its readings."""
    return (*_aliases(backend), *_capacity(backend, now), *_lost(backend))


def _aliases(backend: Backend) -> Iterator[str]:
    """Aliases of models that the engine does not list, with what it lists instead."""
    known = list(dict.fromkeys(target.served for target in backend.targets.values() if target.listed))
    names = {canonical(served) for served in known}
    for served, alias in backend.spec.aliases:
        if canonical(served) not in names:
            shown = listed(known, 3) if known else "none"
            yield f"aliases: the engine lists no model {served!r}, so {alias!r} leads nowhere; it lists {shown}"


def _capacity(backend: Backend, now: float) -> Iterator[str]:
    """Whether the configured capacity is used, as routing sees it: model by model."""
    configured = backend.spec.capacity
    if configured is None:
        return
    seen = {target.served: target.view(now).capacity for target in backend.targets.values() if target.listed}
    told = {model: slots for model, slots in seen.items() if slots is not None}
    untold = [model for model, slots in seen.items() if slots is None]
    if not told:
        is_told = any(signal is Signal.CAPACITY for signal, _ in backend.readings)
        why = "it is not known for which models its slots hold" if is_told else "the engine does not tell its slots"
        yield f"capacity: {configured} from the configuration is used, because {why}"
        return
    engine = (
        f"{min(told.values())}" if len(set(told.values())) == 1 else listed([f"{it} {told[it]}" for it in told], SHOWN)
    )
    text = f"capacity: {configured} from the configuration is not used"
    if untold:
        text = f"capacity: {configured} from the configuration is used for {listed(untold, SHOWN)} only"
    yield f"{text}, because the engine tells its slots{' of the others' if untold else ''} ({engine})"


def _lost(backend: Backend) -> Iterator[str]:
    """Fields whose names are like those that a probe misses."""
    plan = backend.plan
    for one in plan.dropped if plan is not None else ():
        if one.successor:
            yield f"{one.signal.value}: {one.probe} finds nothing, and {one.successor} may have replaced what it reads"
