"""One look at each backend, as the doctor reports it: the scraper's own way of reading, without a running Pharos.

Forbidden here: printing, and requests of its own: what an engine is asked is decided by its recipe.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.control.inspect import Contact, Inspection
from pharos.core.fleet import Backend, BackendSpec, Fleet
from pharos.obs import describe

EXIT_COMPLETE: Final = 0
EXIT_WRONG: Final = 1
EXIT_UNREACHABLE: Final = 2

BUDGET_S: Final = 10.0
"""The most seconds for one backend: a person waits for the answer, and would rather have all of it."""
AT_ONCE: Final = 16
"""Backends looked at side by side."""


class Finding(msgspec.Struct, frozen=True):
    """What one look at one backend showed."""

    row: dict[str, Any]
    """The shape that all pages share, and two more fields: `evidence` (how the kind was told) and `error`."""
    exit_code: int


async def examine(specs: Sequence[BackendSpec]) -> list[Finding]:
    """One finding per backend, in the given order."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with new_session() as session:
        fetcher = Fetcher(session)

        async def one(spec: BackendSpec) -> Finding:
            async with gate:
                return _described(spec, await inspect.resolve(fetcher, spec, budget_s=BUDGET_S), fetcher.clock())

        return list(await asyncio.gather(*(one(spec) for spec in specs)))


def _described(spec: BackendSpec, found: Inspection, now: float) -> Finding:
    fleet = Fleet()
    fleet.set_backends((spec,), now)
    backend = fleet.backends[spec.name]
    _take_in(fleet, backend, found, now)
    row = describe.backend(backend, now)
    row["evidence"] = found.detection.evidence or None
    row["error"], exit_code = _judge(spec, found, is_complete=describe.is_complete(row))
    return Finding(row, exit_code)


def _take_in(fleet: Fleet, backend: Backend, found: Inspection, now: float) -> None:
    """What the scraper would do with the same visit."""
    if found.plan is not None and found.round is not None:
        fleet.publish(backend, found.plan, found.round, now, full=True, started_at=found.started_at)
    elif found.contact is Contact.STARTING:
        fleet.starting(backend)
    elif found.contact is Contact.TIMED_OUT:
        fleet.timed_out(backend, now)
    elif found.contact is Contact.UNREACHABLE:
        fleet.unreachable(backend, found.why)
    else:
        fleet.unrecognised(backend, found.why)


def _judge(spec: BackendSpec, found: Inspection, *, is_complete: bool) -> tuple[str | None, int]:
    """What is wrong and what to do, with the exit status that says it."""
    url, why = spec.url, found.why
    match found.contact:
        case Contact.UNREACHABLE:
            return f"no engine can be reached at {url}: {why}", EXIT_UNREACHABLE
        case Contact.TIMED_OUT:
            return (
                f"{url} takes connections but does not answer in time: {why}. It may be busy; try again.",
                EXIT_UNREACHABLE,
            )
        case Contact.STARTING:
            return f"the engine at {url} is still starting (503). Try again when its model is loaded.", EXIT_WRONG
        case Contact.NOT_READABLE:
            return f"what answers at {url} is no engine: {why}. Are scheme and port right?", EXIT_WRONG
        case Contact.ANSWERED:
            if found.plan is None:
                return f"{url} answers, but Pharos cannot use it: {why}. Is this the engine's own address?", EXIT_WRONG
            return None, EXIT_COMPLETE if is_complete else EXIT_WRONG
