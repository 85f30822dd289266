"""Which of one backend's lines are said: what happens again and again is said once a minute, with a count of the rest.

Forbidden here: losing an event. One that is not said is still counted, by its outcome.
"""

from typing import Final

import msgspec

from pharos.core.fleet.events import Event

EVERY_S: Final = 60.0
"""Seconds for which what was said holds."""
MOST: Final = {"restarted": 1, "new_version": 1, "unlisted": 1}
"""Lines of one outcome in that time. These three come for every model at once."""
MOST_OTHERS: Final = 5
STAGE: Final = "generation"
"""The stage whose events an engine can make as often as it likes."""


class _Said(msgspec.Struct, eq=False):
    """The lines of one outcome since some time."""

    since: float
    lines: int
    more: int
    last: Event


class Repeats:
    """What was said of one backend in the last minute."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def __repr__(self) -> str:
        return f"<Repeats {sum(one.more for one in self._said.values())} not said>"

    def admit(self, event: Event, now: float) -> Event:
        """Return the event as it is to be told: without its text when enough like it was said."""
        if event.stage != STAGE or not event.text:
            return event
        said = self._said.get(event.outcome)
        if said is None:
            said = self._said[event.outcome] = _Said(now, 0, 0, event)
        if said.lines < MOST.get(event.outcome, MOST_OTHERS):
            said.lines += 1
            return event
        said.more, said.last = said.more + 1, event
        return msgspec.structs.replace(event, text="")

    def summaries(self, now: float) -> list[Event]:
        """Lines about what was not said in a minute that is over now; it begins anew where there was something."""
        found: list[Event] = []
        for outcome, said in list(self._said.items()):
            if now - said.since < EVERY_S:
                continue
            if said.more:
                more = f" (and {said.more - 1} more like it within a minute)" if said.more > 1 else ""
                found.append(Event(STAGE, "", said.last.backend, said.last.level, said.last.text + more))
                self._said[outcome] = _Said(now, MOST.get(outcome, MOST_OTHERS), 0, said.last)
            else:
                del self._said[outcome]
        return found
