"""Which engine made which response: whoever goes on from one may ask any instance.

Entries: `[id, backend, model, key]`. Forbidden here: anything of a response but its id.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Protocol

from pharos.peer.section import FRAME, Section

Told = tuple[str, str, str, str]
"""Id of a response, backend, the clients' name of the model, name of the key."""


class ResponseIds(Protocol):
    """Who remembers them; the data plane does."""

    def told(self) -> list[Told]:
        """Those that were noted here since the last call."""

    def export(self) -> Iterator[Told]:
        """All, the latest first."""

    def take(self, told: Told) -> None:
        """Remember one that another instance noted."""


class Responses(Section):
    """Ids of responses."""

    name: ClassVar[str] = "responses"

    def __init__(self, ids: ResponseIds) -> None:
        self._ids = ids

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`."""
        del now
        return [list(one) for one in self._ids.told()]

    def full(self, now: float) -> Iterator[list[Any]]:
        """See `Section.full`."""
        del now
        ids = self._ids.export()
        while some := [list(one) for one in islice(ids, FRAME)]:
            yield some

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`."""
        del origin, now, is_restored
        for entry in entries:
            match entry:
                case [str(response_id), str(backend), str(model), str(key), *_]:
                    self._ids.take((response_id, backend, model, key))
                case _:
                    continue
