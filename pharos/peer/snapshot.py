"""All shared state as blocks: for a peer that asks, and for the state file.

Forbidden here: sockets, files, and what a section means.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec

from pharos.peer import wire
from pharos.peer.link import LinkFault
from pharos.peer.section import Sections


async def blocks(sections: Sections, origin: str, *, now: float, wall: float) -> AsyncIterator[bytes]:
    """The blocks of a snapshot; others are served between two. `wall`: seconds since 1970."""
    yield wire.MAGIC + wire.block(wire.Head(proto=wire.PROTO, origin=origin, at=wall))
    count = 0
    for frame in sections.frames(now):
        count += 1
        yield wire.block(frame)
        await asyncio.sleep(0)
    yield wire.block(wire.Frame(section="", count=count))


class Taken(msgspec.Struct):
    """What has come of a peer's snapshot."""

    origin: str | None = None
    nbytes: int = 0
    entries: int = 0


async def take(data: AsyncIterator[bytes], own: str, merge: Callable[[str, wire.Frame], int], taken: Taken) -> bool:
    """Merge a snapshot as its bytes come. Whether it is one of a peer, and whole. Raises `LinkFault`, `WireError`.

    `own`: this instance's origin, whose snapshot is not merged. `taken` tells what has come also when this raises.
    """
    reader = wire.Blocks()
    async for some in data:
        taken.nbytes += len(some)
        for frame in reader.feed(some):
            if reader.head is not None and reader.head.origin != own:
                taken.entries += merge(reader.head.origin, frame)
            await asyncio.sleep(0)
        taken.origin = reader.head.origin if reader.head is not None else None
        if taken.origin == own:
            return False
    if not reader.is_whole:
        raise LinkFault("broken", "its snapshot ended in the middle")
    return True
