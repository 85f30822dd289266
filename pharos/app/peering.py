"""What instances share and what outlives the process: the sections of all planes, the node among its peers, the file.

Forbidden here: merging, sending and writing, which the peer plane does.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from pharos import clock
from pharos.app.from_config import entries
from pharos.app.metering import peer_shown
from pharos.app.reporting import Reporting
from pharos.app.usage import Accounting
from pharos.config import units
from pharos.config.load import backend_specs
from pharos.config.schema import Config, Peers
from pharos.control.tasks import Tasks
from pharos.core.fleet import Fleet
from pharos.core.fleet.inherit import Inheritance
from pharos.core.prefix import PendingOps
from pharos.core.sched import Ledger
from pharos.obs.reports import PeerShown
from pharos.peer import fingerprint, sections, snapshot, wire
from pharos.peer.http import HttpLink
from pharos.peer.members import Listed, Members, Named
from pharos.peer.node import Node
from pharos.peer.receiver import Receiver
from pharos.peer.record import PeerRecord
from pharos.peer.secret import Secret
from pharos.peer.section import Section, Sections
from pharos.peer.statefile import StateFile
from pharos.peer.tls import Certificates
from pharos.proxy.gate import Gate
from pharos.proxy.responses import Responses

log = logging.getLogger(__name__)

RESTORE_S: Final = 5.0
"""Seconds that all peers together get to give their state before this instance is ready without it."""
SAVE_EVERY_S: Final = 30.0


class Peering:
    """Peers and state file, each of which may be missing."""

    def __init__(
        self,
        config: Config,
        *,
        fleet: Fleet,
        ledger: Ledger,
        gate: Gate,
        responses: Responses,
        usage: Accounting,
        reporting: Reporting,
    ) -> None:
        self.origin = usage.book.cells.origin
        self._fleet = fleet
        self._ledger = ledger
        self._gate = gate
        self._usage = usage
        self._reporting = reporting
        self._fingerprint = _fingerprint(config, usage.zone.name)
        self.is_restored = config.peers is None and config.state_file is None
        """Whether what others and the file know has been merged, or there is nobody to ask."""
        self._is_restoring = False
        self._sections = Sections(self._all(responses))
        self._file = StateFile(config.state_file, on_event=reporting.event) if config.state_file is not None else None
        self._peers = config.peers
        self.node: Node | None = None
        """This instance among its peers; `None`: it has none, or has not started."""
        self._receiver: Receiver | None = None
        self._link: HttpLink | None = None
        if config.peers is not None:
            ledger.caches.index.pending = PendingOps()
            responses.share()
            reporting.metrics.reports.peers = self._shown

    def __repr__(self) -> str:
        return f"<Peering {self.node!r} {self._file!r}>"

    def adopt(self, config: Config) -> None:
        """Compare with peers by these backends and keys from now on."""
        self._fingerprint = _fingerprint(config, self._usage.zone.name)

    @property
    def port(self) -> int | None:
        """Of the listener for peers, once it has started; `None` without one."""
        return self._receiver.port if self._receiver is not None else None

    def describe(self, now: float) -> list[PeerRecord]:
        """Every peer as of now, seconds on the monotonic clock."""
        return self.node.describe(now) if self.node is not None else []

    def told(self) -> list[dict[str, Any]] | None:
        """What the status page shows of peers; `None`: there are none."""
        if self._peers is None:
            return None
        return [msgspec.to_builtins(record) for record in self.describe(clock.monotonic())]

    # --- start and end

    async def start(self, tasks: Tasks, *, otherwise: Callable[[], Awaitable[None]]) -> None:
        """Listen for peers and tell them what happens here. Raises `OSError`, `otherwise` done first."""
        if self._peers is not None:
            try:
                await self._listen(self._peers)
            except OSError:
                await otherwise()
                raise
            if self.node is not None:
                tasks.start("peers", self.node.run)
        if self._file is not None:
            tasks.start("state file", self._save_on)

    async def _listen(self, peers: Peers) -> None:
        event = self._reporting.event
        secret = Secret(peers.secret_file, clock=clock.monotonic, on_event=event)
        tls = None
        if peers.tls is not None:
            files = peers.tls
            try:
                tls = Certificates(
                    files.cert_file, files.key_file, files.ca_file, clock=clock.monotonic, on_event=event
                )
            except OSError as fault:  # what TLS finds wrong with them is one too
                log.error("peers.tls cannot be used (%s): nothing is shared until Pharos is started again", fault)  # noqa: TRY400 - no trace says more
                return
        host, port = units.split_address(peers.listen)
        self._link = HttpLink(secret, tls.client if tls is not None else None)
        self.node = Node(
            self.origin,
            self._sections,
            _members(peers, port),
            self._link,
            fingerprint=lambda: self._fingerprint,
            clock=clock.monotonic,
            wall=clock.wall,
            on_event=event,
            spread=random.random,
        )
        self._receiver = Receiver(self.node, secret, clock=clock.monotonic, on_event=event)
        try:
            await self._receiver.start(host or None, port, tls.server() if tls is not None else None)
        except OSError as fault:
            fault.filename = f"peers.listen {peers.listen}"
            await self._link.close()
            raise

    def begin_restore(self, tasks: Tasks, then: Callable[[], None]) -> None:
        """Merge what the file and the peers know, once; `then` is called when that has ended."""
        if self._is_restoring:
            return
        self._is_restoring = True

        async def run() -> None:
            try:
                await self._restore()
            except Exception:
                log.exception("state could not be taken over: ready without it")
            self.is_restored = True
            then()

        tasks.start("restore", run)

    async def _restore(self) -> None:
        if self._file is not None:
            await self._file.load(self._take)
        if self.node is not None:
            count = await self.node.restore(RESTORE_S)
            if count:
                log.info("what %d other %s was taken over", count, "instances know" if count > 1 else "instance knows")

    def _take(self, head: wire.Head, frame: wire.Frame) -> None:
        self._sections.take(head.origin, frame.section, frame.entries, clock.monotonic(), is_restored=True)

    async def end(self, tasks: Tasks) -> None:
        """Tell peers the last news and that this instance leaves, then write the file."""
        tasks.stop("peers")
        tasks.stop("state file")
        await asyncio.sleep(0)
        if self.node is not None:
            await self.node.leave()
        if self._receiver is not None:
            await self._receiver.close()
        if self._link is not None:
            await self._link.close()
        if self._file is not None and self.is_restored:  # otherwise it would lose what was not read yet
            await self._save(self._file)

    async def _save_on(self) -> None:
        saved: int | None = None
        while self._file is not None:
            await asyncio.sleep(SAVE_EVERY_S)
            counted = self._counted()
            if self.is_restored and counted != saved and await self._save(self._file):
                saved = counted

    def _counted(self) -> int:
        """Requests of all instances: while nobody asks for anything there is nothing new to write."""
        self._reporting.count()
        return sum(count.requests for count in self._usage.book.month(clock.wall()).values())

    async def _save(self, file: StateFile) -> bool:
        ok = await file.save(snapshot.blocks(self._sections, self.origin, now=clock.monotonic(), wall=clock.wall()))
        self._reporting.metrics.reports.state_written(clock.wall(), ok=ok)
        return ok

    # --- what is shared

    def _all(self, responses: Responses) -> list[Section]:
        """All sections, in the order in which a snapshot brings them: what is missed most comes first."""
        book = self._usage.book
        return [
            sections.Gauges(self._ledger.elsewhere, self._ledger.waiting_by_model, self._kick),
            sections.Cells(book, clock.wall, self._reporting.count),
            sections.Minutes(book, clock.wall),
            sections.Responses(responses),
            sections.Learned(Inheritance(self._fleet), clock.wall),
            sections.Prefixes(self._fleet, self._ledger.caches.index, clock.wall),
        ]

    def _kick(self) -> None:
        """A peer may have given a slot back."""
        if self._ledger.waiting:
            self._gate.kick()

    def _shown(self) -> Iterable[PeerShown]:
        return [peer_shown(one) for one in self.describe(clock.monotonic()) if one.state not in ("left", "new")]


def _fingerprint(config: Config, zone: str) -> dict[str, int]:
    """What must be the same at all instances. Backends that discovery finds are left out: each host finds its own."""
    return {
        "backends": fingerprint.number((spec.name, spec.url) for spec in backend_specs(config)),
        "keys": fingerprint.number(
            (sha256, key.name, key.weight, key.models, key.quota, key.priority) for sha256, key in entries(config)
        ),
        "zone": fingerprint.number([zone]),
    }


def _members(peers: Peers, port: int) -> Members:
    if peers.dns is None:
        return Listed(peers.members)
    name, has_port, tail = peers.dns.rpartition(":")
    return Named(name, int(tail)) if has_port else Named(peers.dns, port)
