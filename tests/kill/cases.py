"""Cases of engines that die: where, how, within which reply. The same seed gives the same cases."""

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.kill.mortal import Play
from tests.kill.replies import FRAMINGS, KINDS, Recorded, Wire, edges, recorded, wire

SOCKETS: Final = ("close", "reset", "silence")
"""Ways to die of an engine in this process."""
WAYS: Final = (*SOCKETS, "orderly", "killed", "drain")
"""`orderly`: its framing ends as it should, its reply does not; `killed`: SIGKILL of the process that serves; `drain`:
not the engine ends but Pharos, past its timeout."""
SHARE: Final = {"killed": 4}
"""Of so many places one is tried in this way."""
AT_EDGES: Final = 0.2
"""Share of the places that are near an end of something."""


class Case(NamedTuple):
    """One engine that dies."""

    number: int
    protocol: str
    streamed: bool
    way: str
    framing: str
    engine: str
    kind: str
    """What Pharos takes it for: what it is, or `openai`, of which nothing is known."""
    writes: str
    at: int
    """Bytes of the wire that it sends."""
    wants_usage: bool

    @property
    def reply(self) -> Recorded:
        """What it would have sent."""
        return next(reply for reply in recorded(self.protocol, self.streamed) if reply.engine == self.engine)

    @property
    def wire(self) -> Wire:
        """All of that."""
        return wire(self.reply, self.framing)

    @property
    def enough(self) -> int:
        """Bytes of the wire from which on a client may take the reply for whole."""
        whole = self.wire
        # The system closes for a process that was killed: where that ends a reply it is an end as good as any.
        is_ended = self.way == "orderly" or (self.way in ("close", "killed") and self.framing == "close")
        return whole.place(self.reply.last_said) if is_ended else whole.enough

    def play(self) -> Play:
        """What the engine does."""
        whole, left, pieces = self.wire, self.at, []
        if self.way == "orderly":
            return Play(whole.ended_at(left), "stay")
        for piece in whole.pieces if self.writes != "one" else (whole.data,):
            part = piece[:left]
            left -= len(part)
            if part:
                pieces += _halves(part) if self.writes == "halves" else [part]
        way = "silence" if self.way == "drain" else self.way
        return Play(tuple(pieces), way)


def _halves(piece: bytes) -> list[bytes]:
    middle = len(piece) // 2
    return [part for part in (piece[:middle], piece[middle:]) if part]


def cases(seed: int, places: int, protocols: Sequence[str] = tuple(KINDS)) -> Iterator[Case]:
    """All cases of a seed."""
    number = 0
    for protocol in protocols:
        for streamed in (True, False):
            for way in WAYS:
                chance = random.Random(f"{seed}/{protocol}/{streamed}/{way}")
                for _ in range(max(1, places // SHARE.get(way, 1))):
                    number += 1
                    yield _case(number, protocol, way, chance, streamed=streamed)


def _case(number: int, protocol: str, way: str, chance: random.Random, *, streamed: bool) -> Case:
    reply = chance.choice(recorded(protocol, streamed))
    framing = "chunked" if way == "orderly" else chance.choice(FRAMINGS)
    whole = wire(reply, framing)
    size = len(whole.data)
    at = chance.choice(list(edges(whole))) if chance.random() < AT_EDGES else chance.randrange(size + 1)
    wants_usage = streamed and protocol in ("chat", "completions") and chance.random() < 1 / 2
    writes = chance.choice(("events", "events", "halves", "one"))
    is_known = reply.kind.is_ollama or way == "orderly" or chance.random() < 1 / 2
    kind = reply.engine if is_known else "openai"
    return Case(number, protocol, streamed, way, framing, reply.engine, kind, writes, min(at, size), wants_usage)
