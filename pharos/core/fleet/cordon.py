"""Draining a backend by hand: no new request, those in flight finish, and it is read as before.

It goes by name, so it outlasts every change of the configuration; a restart of Pharos ends it. Forbidden here: ending
anything that runs.
"""

from pharos.core.fleet.backend import Backend
from pharos.core.fleet.events import Event
from pharos.core.fleet.roster import Roster

STAGE = "drain"


class Cordons:
    """What operators keep new requests from."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def __repr__(self) -> str:
        return f"<Cordons {len(self._roster.cordoned)}>"

    def put(self, name: str) -> list[Event]:
        """Keep new requests from a present backend; nothing is said when that is so. Raises `KeyError`."""
        backend = self._roster.present[name]
        if backend.cordoned:
            return []
        self._roster.cordoned.add(name)
        backend.cordoned = True
        backend.settle()
        return [drained(backend)]

    def lift(self, name: str) -> list[Event]:
        """Let requests in again, unless discovery keeps them out. Raises `KeyError`.

        Whoever waits for a slot may have one now: the caller must have the ledger look.
        """
        backend = self._roster.present[name]
        if not backend.cordoned:
            return []
        self._roster.cordoned.discard(name)
        backend.cordoned = False
        backend.settle()
        return [drained(backend)]


def drained(backend: Backend) -> Event:
    """Say who drains a backend, or that nobody does any more."""
    if backend.drained_by is None:
        return Event(STAGE, "ended", backend.name, "info", f"{backend.name} gets new requests again")
    who = "an operator drains" if backend.cordoned else "discovery drains"
    running = backend.inflight
    left = f"{running} that {'runs' if running == 1 else 'run'} there may finish" if running else "none runs there"
    return Event(STAGE, "begun", backend.name, "info", f"{who} {backend.name}: no new requests, {left}")
