"""Peers as people and metrics see them. Forbidden here: changing anything."""

from typing import Final

from pharos.peer.peer import Heard, Peer
from pharos.peer.record import PeerRecord, State

PATIENCE_S: Final = 30.0
"""So long a member that was never reached is nothing to talk about: it may be starting."""
FORGET_S: Final = 60.0
"""One that is silent, and that nobody names as a member, is remembered for so long; one that left is shown half of it.
"""


def differences(ours: dict[str, int], theirs: dict[str, int]) -> tuple[str, ...]:
    """Parts of the configuration that both tell of and that are not the same."""
    return tuple(sorted(part for part, value in ours.items() if theirs.get(part, value) != value))


def member(peer: Peer, heard: Heard | None, ours: dict[str, int], now: float, wall: float) -> PeerRecord:
    """One whose address is known. `wall`: now, in seconds since 1970."""
    theirs = peer.config if peer.is_up or heard is None else heard.config
    return PeerRecord(
        name=peer.address,
        origin=peer.origin,
        state=_state(peer, heard, now),
        up=peer.is_up,
        heard_ago_s=now - heard.at if heard is not None else None,
        heard_at=wall - (now - heard.at) if heard is not None else None,
        config_differs=differences(ours, theirs),
        protocol=peer.protocol,
        bytes_sent=peer.bytes_sent,
        bytes_received=peer.bytes_pulled + (heard.nbytes if heard is not None else 0),
        entries_sent=peer.entries_sent,
        entries_received=peer.entries_pulled + (heard.entries if heard is not None else 0),
        dropped=peer.dropped,
        error=peer.error,
    )


def stranger(heard: Heard, ours: dict[str, int], now: float, wall: float) -> PeerRecord:
    """One that tells us, and whose address nobody told us."""
    has_left = heard.left_at is not None
    return PeerRecord(
        name=heard.origin,
        origin=heard.origin,
        state="left" if has_left else "up",
        up=False,
        heard_ago_s=now - heard.at,
        heard_at=wall - (now - heard.at),
        config_differs=differences(ours, heard.config),
        protocol=None,
        bytes_sent=0,
        bytes_received=heard.nbytes,
        entries_sent=0,
        entries_received=heard.entries,
        dropped=0,
        error="" if has_left else "its address is not among peers.members or the addresses of peers.dns",
    )


def is_over(record: PeerRecord) -> bool:
    """Whether it left so long ago that nobody wants to see it."""
    long_ago = record.heard_ago_s is None or record.heard_ago_s > FORGET_S / 2
    return record.state == "left" and not record.up and long_ago


def _state(peer: Peer, heard: Heard | None, now: float) -> State:
    if peer.fault == "protocol":
        return "protocol_differs"
    if peer.fault == "refused":
        return "refused"
    if heard is not None and heard.left_at is not None and not peer.is_up:
        return "left"
    if peer.is_up and heard is not None and not heard.is_silent:
        return "up"
    is_young = now - peer.since <= PATIENCE_S
    return "new" if is_young and (heard is None or peer.is_up) and not (peer.is_told and peer.is_away) else "silent"
