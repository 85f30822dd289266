"""Who the peers are and how they are: by address as the sender knows them, by origin as the receiver does.

# ops: set_members, answered, failed, heard, left, expire, describe · goal: each change of a peer is said once
# plan: an answer tells whose address it is: our own and second addresses of one instance are left out
# warning: a pod's name stays in DNS before its port is open and after it is closed: that is no trouble for a while

Forbidden here: waiting, sending, and merging.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from pharos.clock import Clock
from pharos.core.fleet.events import Event
from pharos.peer import describe, wire
from pharos.peer.describe import FORGET_S, PATIENCE_S
from pharos.peer.link import LinkFault
from pharos.peer.peer import Heard, Peer
from pharos.peer.record import PeerRecord
from pharos.peer.section import Piece

SILENT_S: Final = 2.0
"""After so long without a delta, what an instance said of the moment is void."""
DIFFERS_S: Final = 10.0
"""So long may configurations differ unsaid: instances read a change one after the other."""
MOST_HEARD: Final = 64
"""Instances that are remembered."""


class Mesh:
    """All peers of an instance."""

    def __init__(
        self,
        origin: str,
        *,
        clock: Clock,
        wall: Callable[[], float],
        on_event: Callable[[Event], None],
        on_gone: Callable[[str, float], None],
    ) -> None:
        """`on_gone`: told the origin of an instance whose word for the moment is void, and when."""
        self._origin = origin
        self._clock = clock
        self._wall = wall
        self._on_event = on_event
        self._on_gone = on_gone
        self._own: set[str] = set()
        """Addresses at which this very instance answered."""
        self._differs: dict[str, tuple[tuple[str, ...], float, bool]] = {}
        """By name of a peer: what differs, since when, whether it was said."""
        self._foreign: dict[str, tuple[int, float]] = {}
        """By origin: the other protocol that it spoke, and when."""
        self.peers: dict[str, Peer] = {}
        """By address; this instance is not among them once it has answered itself."""
        self.origins: dict[str, Heard] = {}

    def __repr__(self) -> str:
        return f"<Mesh {sum(peer.is_up for peer in self.peers.values())} of {len(self.peers)} up>"

    # --- members

    def set_members(self, addresses: Sequence[str], now: float) -> None:
        """Take the list over. One that still answers stays until it does not."""
        wanted = set(addresses)
        self._own &= wanted
        for address in addresses:
            peer = self.peers.get(address)
            if peer is None and address not in self._own:
                self.peers[address] = Peer(address, now)
        for address, peer in list(self.peers.items()):
            peer.is_listed = address in wanted
            if not peer.is_listed and not peer.is_up:
                del self.peers[address]

    def tellable(self) -> Iterator[Peer]:
        """Those that deltas go to: each instance once."""
        seen: set[str] = set()
        for peer in list(self.peers.values()):
            if peer.origin is not None and peer.is_up:
                if peer.origin in seen:
                    continue
                seen.add(peer.origin)
            yield peer

    # --- the sender's side

    def answered(self, peer: Peer, pieces: list[Piece], nbytes: int, answer: wire.Answer, now: float) -> bool:
        """A delta was taken. Whether a snapshot should be pulled there."""
        if answer.origin == self._origin:
            self._own.add(peer.address)
            self.peers.pop(peer.address, None)
            return False
        was_away = not peer.is_up
        known = peer.origin == answer.origin
        is_fresh = peer.told(pieces, nbytes, answer, now) or (peer.pull_at is not None and now >= peer.pull_at)
        if is_fresh:
            peer.pull_at = None
        if was_away and not (known and peer.said == "up"):
            self._say("info", f"peer {peer.address} is connected")
        peer.said = "up"
        return is_fresh

    def failed(self, peer: Peer, pieces: list[Piece], fault: LinkFault, now: float, spread: float) -> None:
        """A delta was not taken."""
        peer.failed(pieces, fault, now, spread)
        if not peer.is_listed:
            self.peers.pop(peer.address, None)
        elif fault.kind in ("refused", "protocol", "broken"):
            self._tell_once(peer, fault.kind, f"peer {peer.address} {fault}: nothing is shared with it")

    # --- the receiver's side

    def heard(self, delta: wire.Delta, nbytes: int, now: float) -> Heard:
        """A delta came."""
        heard = self.origins.get(delta.origin)
        if heard is None:
            while len(self.origins) >= MOST_HEARD:
                oldest = min(self.origins.values(), key=lambda one: one.at)
                self._on_gone(oldest.origin, now)
                del self.origins[oldest.origin]
            heard = self.origins[delta.origin] = Heard(delta.origin, now)
            if all(peer.origin != delta.origin for peer in self.peers.values()):
                for peer in self.peers.values():
                    if not peer.is_up:
                        peer.not_before = now  # one of them has probably started
        if heard.is_silent:
            heard.is_silent = False
            for peer in self.peers.values():
                if peer.origin == delta.origin:
                    peer.pull_at = peer.not_before = now  # what it told others meanwhile is not known here
        heard.at = now
        heard.nbytes += nbytes
        if delta.seq > heard.seq:
            heard.seq, heard.config = delta.seq, delta.fingerprint
        self._foreign.pop(delta.origin, None)
        return heard

    def left(self, heard: Heard, seq: int, now: float) -> None:
        """An instance said that it ends."""
        if heard.left_at is None:
            heard.left_at = now
            heard.seq = max(heard.seq, seq)
            for peer in self.peers.values():
                if peer.origin == heard.origin:
                    peer.leave(now)
            self._on_gone(heard.origin, now)
            self._say("info", f"peer {self._name(heard.origin)} has left")

    def misunderstood(self, origin: str, theirs: int, now: float) -> None:
        """A delta of another protocol came."""
        if len(self._foreign) >= MOST_HEARD:
            self._foreign.clear()
        is_news = origin not in self._foreign
        self._foreign[origin] = theirs, now
        if is_news:
            self._say("warning", f"peer {self._name(origin)} speaks protocol {theirs}, and this is {wire.PROTO}: "
                      "nothing is shared with it until both are of one release")  # fmt: skip

    # --- time

    def expire(self, now: float) -> None:
        """Let go what was not heard of for long, and say what has lasted long enough to be said."""
        for heard in list(self.origins.values()):
            if not heard.is_silent and now - heard.at > SILENT_S:
                heard.is_silent = True
                if heard.left_at is None:
                    self._on_gone(heard.origin, now)
            if heard.is_silent and now - heard.at > FORGET_S:
                del self.origins[heard.origin]
        for peer in self.peers.values():
            if peer.is_up or peer.fault != "unreachable" or self._has_left(peer.origin):
                continue
            if (peer.is_told and peer.is_away) or now - peer.since > PATIENCE_S:
                self._tell_once(peer, "unreachable", f"peer {peer.address} is silent: {peer.error}")

    def check_config(self, ours: dict[str, int], now: float) -> None:
        """Say which peers have had another configuration for a while, once for each difference."""
        names = set()
        for name, theirs in self._configs():
            names.add(name)
            differing = describe.differences(ours, theirs)
            before, since, is_said = self._differs.get(name, ((), now, True))
            if differing != before:
                since, is_said = now, before == differing
            if differing and not is_said and now - since >= DIFFERS_S:
                is_said = True
                self._say("warning", f"peer {name} has other {' and '.join(differing)} than this instance")
            self._differs[name] = differing, since, is_said
        for name in set(self._differs) - names:
            del self._differs[name]

    def _configs(self) -> Iterator[tuple[str, dict[str, int]]]:
        for peer in self.peers.values():
            heard = self.origins.get(peer.origin) if peer.origin is not None else None
            if peer.is_up or heard is not None:
                yield peer.address, heard.config if heard is not None and not peer.is_up else peer.config

    # --- for people

    def describe(self, now: float, ours: dict[str, int]) -> list[PeerRecord]:
        """Each peer as of now: members first, then who tells us and whose address nobody told us."""
        at = self._wall()
        shown = [
            describe.member(peer, self.origins.get(peer.origin) if peer.origin is not None else None, ours, now, at)
            for peer in self.peers.values()
            if not self._is_second(peer)
        ]
        known = {peer.origin for peer in self.peers.values()}
        shown += [
            describe.stranger(heard, ours, now, at)
            for heard in self.origins.values()
            if heard.origin not in known and not (heard.is_silent and heard.left_at is None)
        ]
        return [one for one in shown if not describe.is_over(one)]

    def _is_second(self, peer: Peer) -> bool:
        """Whether it is a further address of a peer that is up."""
        others = [one for one in self.peers.values() if one.origin == peer.origin and one.is_up]
        return peer.origin is not None and bool(others) and others[0] is not peer

    def _has_left(self, origin: str | None) -> bool:
        heard = self.origins.get(origin) if origin is not None else None
        return heard is not None and heard.left_at is not None

    def _name(self, origin: str) -> str:
        named = [peer.address for peer in self.peers.values() if origin and peer.origin == origin]
        return named[0] if named else origin or "of an unknown kind"

    def _tell_once(
        self, peer: Peer, what: Literal["up", "unreachable", "refused", "protocol", "broken"], text: str
    ) -> None:
        if peer.said != what:
            peer.said = what
            self._say("warning", text)

    def _say(self, level: Literal["info", "warning"], text: str) -> None:
        self._on_event(Event("", "", "", level, text))
