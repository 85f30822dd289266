"""One instance among its peers: tells them what changed at every tick, takes what they tell, and knows who is there.

# ops: run, receive, frames, restore, leave, describe · goal: a tick costs one encoding, whatever the number of peers
# plan: full mesh; absolute values, so that nothing is acknowledged; what was missed is pulled as a snapshot
# warning: everything here runs on the event loop in small steps; a request never waits for any of it

Forbidden here: sockets, files, and merging (sections do it).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Literal

import msgspec

from pharos.clock import Clock
from pharos.core.fleet.events import Event
from pharos.peer import snapshot, wire
from pharos.peer.link import Link, LinkFault
from pharos.peer.members import RETRY_S, LookupFault, Members
from pharos.peer.mesh import Mesh
from pharos.peer.peer import Peer
from pharos.peer.record import PeerRecord
from pharos.peer.section import Piece, Sections

TICK_S: Final = 0.2
HEARTBEAT_S: Final = 0.8
"""After so many seconds without news a delta goes out all the same: peers forget gauges after two seconds."""
AGAIN_S: Final = 5.0
"""Seconds between two full sets of the moment."""
PULL_AGAIN_S: Final = 5.0
"""After so long a snapshot that did not come is asked for again."""
LEAVE_S: Final = 2.0
"""Seconds that peers get to take the last delta."""
LOOK_FIRST_S: Final = 3.0
"""The first look at who is there takes no longer: a start does not hang on a name server."""

OnEvent = Callable[[Event], None]
Fingerprint = Callable[[], dict[str, int]]


class Refused(Exception):  # noqa: N818 - an answer, not a fault of ours
    """A delta is not taken; `status` is that of HTTP."""

    def __init__(self, status: Literal[400, 409, 503], text: str) -> None:
        super().__init__(text)
        self.status = status


class Node:
    """This instance. `run` is its background task; everything else may be called at any time."""

    def __init__(  # noqa: PLR0913 - the composition root gives it everything
        self,
        origin: str,
        sections: Sections,
        members: Members,
        link: Link,
        *,
        fingerprint: Fingerprint,
        clock: Clock,
        wall: Callable[[], float],
        on_event: OnEvent,
        spread: Callable[[], float],
    ) -> None:
        """`spread`: chance, 0 to 1, which keeps instances from trying again at one moment."""
        self.origin = origin
        self.sections = sections
        self._members = members
        self._link = link
        self._fingerprint = fingerprint
        self._clock = clock
        self._wall = wall
        self._spread = spread
        self._on_event = on_event
        self.mesh = Mesh(origin, clock=clock, wall=wall, on_event=on_event, on_gone=sections.forget)
        self._seq = 0
        self._again_at = clock()
        self._is_leaving = False
        self._calls: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()  # addresses that a delta is on its way to
        self._pulling = asyncio.Lock()
        self._restored = asyncio.Event()
        self._restored.set()
        self._is_lost = False  # the last look at the members failed

    def __repr__(self) -> str:
        return f"<Node {self.origin} {len(self.mesh.peers)} peers>"

    def describe(self, now: float) -> list[PeerRecord]:
        """Each peer as of now, those of the list first. `now`: seconds on the clock of this node."""
        return self.mesh.describe(now, self._fingerprint())

    # --- telling

    async def run(self) -> None:
        """Tell peers what changes, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_members())
                group.create_task(self._tick_on())
        finally:
            for call in self._calls:
                call.cancel()

    async def _follow_members(self) -> None:
        while True:
            wait_s = await self.look()
            await asyncio.sleep(wait_s)

    async def look(self) -> float:
        """See who is a member now; returns the seconds until the next look."""
        try:
            addresses, wait_s = await self._members.look()
        except LookupFault as fault:
            if not self._is_lost:
                self._is_lost = True
                text = f"peers.dns cannot be resolved ({fault}): the peers of before stay"
                self._on_event(Event("", "", "", "warning", text))
            return RETRY_S
        self._is_lost = False
        self.mesh.set_members(addresses, self._clock())
        return wait_s

    async def _tick_on(self) -> None:
        due = self._clock()
        while True:
            self.tick()
            due = max(due + TICK_S, self._clock())
            await asyncio.sleep(due - self._clock())

    def tick(self) -> None:
        """Gather what changed, and send it to whoever can be reached now."""
        now = self._clock()
        self.mesh.expire(now)
        self.mesh.check_config(self._fingerprint(), now)
        pieces = self.sections.changes(now)
        if now >= self._again_at:
            self._again_at = now + AGAIN_S
            pieces += self.sections.again(now)
        again: list[Piece] | None = None
        for peer in self.mesh.tellable():
            peer.add(pieces)
            if peer.address in self._busy or now < peer.not_before:
                continue
            if peer.has_news or now - peer.sent_at >= HEARTBEAT_S - TICK_S / 2:
                if again is None and peer.wants_again:
                    again = self.sections.again(now)
                self._call(peer, peer.compose(again if again is not None else []), now)

    def _call(self, peer: Peer, pieces: list[Piece], now: float) -> None:
        self._busy.add(peer.address)
        peer.sent_at = now
        body = self._delta(pieces)
        call = asyncio.create_task(self._tell(peer, pieces, body), name=f"tell {peer.address}")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def _delta(self, pieces: Iterable[Piece], *, leaving: bool = False) -> bytes:
        self._seq += 1
        delta = wire.Delta(
            proto=wire.PROTO, origin=self.origin, seq=self._seq, fingerprint=self._fingerprint(), leaving=leaving
        )
        return wire.encode_delta(delta, [(piece.name, piece.raw) for piece in pieces])

    async def _tell(self, peer: Peer, pieces: list[Piece], body: bytes) -> None:
        try:
            answer = wire.decode_answer(await self._link.tell(peer.address, body))
        except LinkFault as fault:
            self.mesh.failed(peer, pieces, fault, self._clock(), self._spread())
            return
        except wire.WireError as fault:
            self.mesh.failed(peer, pieces, LinkFault("broken", str(fault)), self._clock(), self._spread())
            return
        except asyncio.CancelledError:
            peer.add(pieces)  # this instance ends: they go with its last delta
            raise
        finally:
            self._busy.discard(peer.address)
        if self.mesh.answered(peer, pieces, len(body), answer, self._clock()):
            await self._catch_up(peer)

    async def _catch_up(self, peer: Peer) -> None:
        """Pull what was missed of a peer that is there (again)."""
        if not self._restored.is_set():
            await self._restored.wait()
            if peer.pulled == peer.origin:
                return  # the restore has asked it
        async with self._pulling:
            if self.mesh.peers.get(peer.address) is not peer:
                return
            try:
                await self._pull(peer)
            except (LinkFault, wire.WireError):
                peer.pull_at = self._clock() + PULL_AGAIN_S

    async def _pull(self, peer: Peer) -> bool:
        """Merge a peer's snapshot. Whether it is a peer's, and whole. Raises `LinkFault` and `WireError`."""
        taken = snapshot.Taken()
        try:
            is_theirs = await snapshot.take(self._link.pull(peer.address), self.origin, self._take, taken)
        finally:
            peer.bytes_pulled += taken.nbytes
            peer.entries_pulled += taken.entries
        peer.pulled = taken.origin
        return is_theirs

    def _take(self, origin: str, frame: wire.Frame) -> int:
        return self.sections.take(origin, frame.section, frame.entries, self._clock(), is_restored=True)

    # --- being told

    async def receive(self, body: bytes) -> bytes:
        """Take a delta; returns the answer. Raises `Refused`."""
        if self._is_leaving:
            raise Refused(503, "this instance is ending")
        try:
            delta = wire.decode_delta(body)
            parts = wire.parts_of(delta)
        except wire.ProtocolError as fault:
            self.mesh.misunderstood(_origin_of(body), fault.theirs, self._clock())
            raise Refused(409, str(fault)) from None
        except wire.WireError as fault:
            raise Refused(400, str(fault)) from None
        if delta.origin == self.origin:
            return self._answer()
        heard = self.mesh.heard(delta, len(body), self._clock())
        for name, raw in parts:
            if self.sections.is_latest(name):
                if heard.left_at is not None or delta.seq <= heard.latest.get(name, 0):
                    continue
                heard.latest[name] = delta.seq
            heard.entries += self.sections.take(delta.origin, name, raw, self._clock())
            await asyncio.sleep(0)
        if delta.leaving:
            self.mesh.left(heard, delta.seq, self._clock())
        return self._answer()

    def _answer(self) -> bytes:
        return wire.encode_answer(wire.Answer(proto=wire.PROTO, origin=self.origin, fingerprint=self._fingerprint()))

    def frames(self) -> AsyncIterator[bytes]:
        """A snapshot, block by block; others are served between two."""
        return snapshot.blocks(self.sections, self.origin, now=self._clock(), wall=self._wall())

    # --- start and end

    async def restore(self, within_s: float) -> int:
        """Pull the state of every peer that can be reached; returns how many gave theirs. Never raises.

        `run` may have begun: what peers tell meanwhile is merged beside it, so that nothing falls between the two.
        """
        self._restored.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK_FIRST_S, within_s)):
                await self.look()
        peers = list(self.mesh.peers.values())
        done = 0

        async def pull(peer: Peer) -> None:
            nonlocal done
            with contextlib.suppress(LinkFault, wire.WireError):
                is_theirs = await self._pull(peer)
                done += is_theirs

        try:
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(pull(peer) for peer in peers))
        except TimeoutError:
            pass
        finally:
            self._restored.set()
        return done

    async def leave(self) -> int:
        """Tell peers everything of the moment and that this instance ends; how many took it. `run` must have ended."""
        now = self._clock()
        pieces = [*self.sections.changes(now), *self.sections.again(now)]
        told = 0

        async def tell(peer: Peer) -> None:
            nonlocal told
            peer.add(pieces)
            while True:
                some = peer.compose([])
                is_last = not peer.has_news
                try:
                    await self._link.tell(peer.address, self._delta(some, leaving=is_last))
                except LinkFault:
                    return
                if is_last:
                    told += 1
                    return

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*(tell(peer) for peer in self.mesh.tellable() if peer.is_up))
        self._is_leaving = True
        return told


def _origin_of(body: bytes) -> str:
    """Who speaks another protocol, as far as that can be told; empty: it cannot."""
    try:
        origin = msgspec.msgpack.decode(body, type=_Origin).origin
        wire.check_name(origin)
    except (msgspec.MsgspecError, RecursionError, ValueError, wire.WireError):
        return ""
    return origin


class _Origin(msgspec.Struct, frozen=True):
    origin: str = ""
