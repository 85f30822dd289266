"""Which engine made which response: `/v1/responses` keeps a conversation in the engine that answered it.

Forbidden here: I/O, and keeping anything of a reply but its id.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, cast

from msgspec import Struct

from pharos.core.fleet import Fleet, Target
from pharos.proxy.errors import ClientFault, EngineFault, shown
from pharos.proxy.tap import Tap

MOST: Final = 20_000
"""Ids that are remembered; the oldest are forgotten first."""
LONGEST_ID: Final = 256
"""Characters of an id; those of engines have about 50."""
LOOKED_AT: Final = 16 * 1024
"""Bytes of a reply in which its id is looked for; it stands in the first event, or at the beginning of the body."""

_ID: Final = re.compile(rb'"id"[ \t\r\n]*:[ \t\r\n]*"((?:resp|response)[A-Za-z0-9_.:-]{1,240})"')


class Origin(Struct, frozen=True):
    """Where a response was made, and for whom."""

    target: int
    backend: str
    model: str
    """The clients' name of it."""
    key: str
    """Name of the key: nobody else may ask for it."""


class Responses:
    """Origins by id of response, the latest `most` of them."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._origins: OrderedDict[str, Origin] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Responses {len(self._origins)}>"

    def __len__(self) -> int:
        return len(self._origins)

    def note(self, response_id: str, target: Target, key: str) -> None:
        """Remember which target made a response."""
        self._origins[response_id] = Origin(target.id, target.backend.name, target.model, key)
        self._origins.move_to_end(response_id)
        while len(self._origins) > self._most:
            self._origins.popitem(last=False)

    def forget(self, response_id: str) -> None:
        """It was deleted."""
        self._origins.pop(response_id, None)

    def origin(self, response_id: str, key: str, fleet: Fleet) -> Origin:
        """Where a response was made. Raises ClientFault (404) for an unknown id, EngineFault (503) for a lost engine.

        Another key's response is as unknown as one that never was.
        """
        origin = self._origins.get(response_id)
        if origin is None or origin.key != key:
            raise ClientFault(
                404,
                "response_not_found",
                f"No response `{shown(response_id)}` is known here: send the whole conversation as `input` instead.",
            )
        backend = fleet.backends.get(origin.backend)
        target = backend.targets.get(origin.model) if backend is not None else None
        if target is None or target.id != origin.target:
            raise EngineFault(
                503,
                "response_lost",
                f"The backend {origin.backend} that keeps the response `{shown(response_id)}` is gone: "
                "send the whole conversation as `input` instead.",
            )
        self._origins.move_to_end(response_id)
        return origin


def finding_id(tap: Tap, note: Callable[[str], None]) -> Tap:
    """A tap that also finds the id of the response in its first bytes, and tells `note`, once."""
    return cast("Tap", _IdTap(tap, note))


class _IdTap:
    """All but the look at the first bytes is done by the tap it stands for."""

    __slots__ = ("_note", "_seen", "_tap", "feed")

    def __init__(self, tap: Tap, note: Callable[[str], None]) -> None:
        self._tap = tap
        self._note = note
        self._seen = bytearray()
        self.feed: Callable[[bytes], bytes] = self._feed_and_look

    def __repr__(self) -> str:
        return f"<IdTap {self._tap!r}>"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tap has
        return getattr(self._tap, name)

    def _feed_and_look(self, data: bytes) -> bytes:
        self._seen += data
        found = _ID.search(self._seen)
        if found is not None:
            self._note(found[1].decode("ascii"))
        if found is not None or len(self._seen) > LOOKED_AT:
            self._seen.clear()
            self.feed = self._tap.feed
        return self._tap.feed(data)
