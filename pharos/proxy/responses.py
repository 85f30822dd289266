"""Which engine made which response: `/v1/responses` keeps a conversation in the engine that answered it.

Forbidden here: I/O, and keeping anything of a reply but its id.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
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

_ID: Final = re.compile(rb'"(resp[A-Za-z0-9_.:-]{1,240})"')
_TOLD_ID: Final = re.compile(r"resp[A-Za-z0-9_.:-]{1,240}")
_TOKEN: Final = re.compile(rb'"[^"\\\r\n]*(?:\\.[^"\\\r\n]*)*"|[{}\[\]:,\r\n]|[^"{}\[\]:,\r\n]+', re.DOTALL)
_DATA: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])data:")
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
_IN_BODY: Final = [b'"id"']
_IN_EVENT: Final = [b'"response"', b'"id"']
"""Where the id stands, as names of members. An engine may repeat words of a client at any other place."""


Told = tuple[str, str, str, str]
"""Id, backend, model and key of a response, as instances tell each other."""


class Origin(Struct, frozen=True):
    """Where a response was made, and for whom."""

    target: int | None
    """Id of the target; `None`: another instance told of it by its names."""
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
        self._untold: list[Told] | None = None
        """What other instances have yet to be told; `None`: there are none."""

    def __repr__(self) -> str:
        return f"<Responses {len(self._origins)}>"

    def __len__(self) -> int:
        return len(self._origins)

    def note(self, response_id: str, target: Target, key: str) -> None:
        """Remember which target made a response; the first key whose it was keeps it."""
        known = self._origins.get(response_id)
        if known is not None and known.key != key:
            return
        self._origins[response_id] = Origin(target.id, target.backend.name, target.model, key)
        self._origins.move_to_end(response_id)
        if self._untold is not None and len(self._untold) < self._most:
            self._untold.append((response_id, target.backend.name, target.model, key))
        self._trim()

    def _trim(self) -> None:
        while len(self._origins) > self._most:
            self._origins.popitem(last=False)

    # --- other instances

    def share(self) -> None:
        """Keep what is noted from now on for other instances: see `told`."""
        self._untold = []

    def told(self) -> list[Told]:
        """What was noted here since the last call."""
        if not self._untold:
            return []
        told, self._untold = self._untold, []
        return told

    def export(self) -> Iterator[Told]:
        """All that is remembered, the latest first."""
        for response_id, origin in reversed([*self._origins.items()]):
            yield response_id, origin.backend, origin.model, origin.key

    def take(self, told: Told) -> None:
        """Remember what another instance noted. What was noted here stays; of two that told, the lesser names count."""
        response_id, backend, model, key = told
        if len(response_id) > LONGEST_ID or not _TOLD_ID.fullmatch(response_id):
            return
        known = self._origins.get(response_id)
        if known is not None:
            is_own = known.target is not None
            if is_own or (known.key, known.backend, known.model) <= (key, backend, model):
                return
        self._origins[response_id] = Origin(None, backend, model, key)
        self._trim()

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
        if target is None or (origin.target is not None and target.id != origin.target):
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


class _Finder:
    """Looks for the id at its place, in a body or in events, as the bytes come."""

    __slots__ = ("_at", "_is_event", "_path", "_seen", "_text", "found", "is_over")

    def __init__(self) -> None:
        self._seen = bytearray()
        self._at = 0
        """Up to where all was understood."""
        self._is_event: bool | None = None
        """Whether the bytes are events; `None`: not known yet."""
        self._path: list[bytes | None] | None = None
        """Names of the members that are open, empty before a name, `None` for a list; no list outside of events."""
        self._text = b""
        """The last text."""
        self.found = ""
        self.is_over = False
        """Nothing more is to be looked for."""

    def __repr__(self) -> str:
        return f"<Finder {len(self._seen)} bytes>"

    def feed(self, data: bytes) -> None:
        """Take what came."""
        seen = self._seen
        seen += data[: LOOKED_AT + 1 - len(seen)]
        if self._is_event is None:
            start = seen.lstrip(_BLANK)
            if not start:
                return
            self._is_event = start[:1] != b"{"
            if not self._is_event:
                self._path = []
        wanted = _IN_EVENT if self._is_event else _IN_BODY
        while not self.is_over and self._step(wanted):
            pass
        if len(seen) > LOOKED_AT:
            self.is_over = True

    def _step(self, wanted: list[bytes]) -> bool:
        """Go on by one word; whether there was a whole one."""
        path = self._path
        found = (_DATA.search if path is None else _TOKEN.match)(self._seen, self._at)
        if found is None:
            return False
        if path is None:
            self._path = []
        elif found[0] in (b"\r", b"\n"):
            if self._is_event:
                self._path = None
                return True  # the break belongs to the next line too
        else:
            self._take(found[0], path, wanted)
        self._at = found.end()
        return True

    def _take(self, word: bytes, path: list[bytes | None], wanted: list[bytes]) -> None:
        first = word[:1]
        if first == b'"':
            self._text = word
            if path == wanted:
                told = _ID.fullmatch(word)
                self.found = "" if told is None else told[1].decode("ascii")
                self.is_over = True
        elif first in b"{[":
            path.append(b"" if first == b"{" else None)
        elif first in b"}]":
            del path[-1:]
        elif path and path[-1] is not None and first in b":,":
            path[-1] = self._text if first == b":" else b""


class _IdTap:
    """All but the look at the first bytes is done by the tap it stands for."""

    __slots__ = ("_finder", "_note", "_tap", "feed")

    def __init__(self, tap: Tap, note: Callable[[str], None]) -> None:
        self._tap = tap
        self._note = note
        self._finder = _Finder()
        self.feed: Callable[[bytes], bytes] = self._feed_and_look

    def __repr__(self) -> str:
        return f"<IdTap {self._tap!r}>"

    @property
    def bare(self) -> "Tap":
        """The other one, as soon as nothing more is looked for: asking it over this one costs at each event."""
        return cast("Tap", self) if self.feed == self._feed_and_look else self._tap.bare

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tap has
        return getattr(self._tap, name)

    def _feed_and_look(self, data: bytes) -> bytes:
        finder = self._finder
        finder.feed(data)
        if finder.found:
            self._note(finder.found)
        if finder.is_over:
            self.feed = self._tap.feed
        return self._tap.feed(data)
