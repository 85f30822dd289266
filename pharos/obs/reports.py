"""What parts that may be switched off tell `/metrics`: peers, quotas, reloads, the state file, the loop's lag.

The composition root hands their words in; a part that is not there has no series. Forbidden here: asking them.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from pharos.obs.exposition import Bound, Counter, Gauge, Histogram, Labels, Tally

STALL_S = 0.1
"""Seconds for which the event loop may stand still before that is a stall of its own, told in the log."""
_LAG_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
"""The budget is 20 ms, so it is a bound of its own."""


class PeerShown(msgspec.Struct, frozen=True):
    """One other instance as the metrics show it."""

    peer: str
    """As it is configured or was found; bounded by who is a member."""
    up: bool | None
    """Whether it takes our deltas; `None`: not tried yet."""
    mismatched: bool | None = None
    """Whether it has other backends, keys or another time zone; `None`: it has not told."""
    protocol_mismatched: bool | None = None
    """Whether it refused our deltas as those of another protocol, kept until it takes one; `None`: not tried yet."""
    last_heard_at: float | None = None
    """When its last delta came, in seconds since 1970; `None`: none came."""
    dropped_prefix_ops: int | None = None
    """Prefix operations that it was not told since they were too many; `None`: not counted."""
    sent_bytes: int | None = None
    """Bytes of deltas and snapshots sent to it; `None`: not counted."""


class QuotaShown(msgspec.Struct, frozen=True):
    """How much of one quota of a key is spent."""

    key: str
    quota: str
    """`rpm` or `tokens_per_day`."""
    used: float
    """Share of it: 1 is all."""


def _nobody() -> Iterable[PeerShown]:
    return ()


def _no_quotas() -> Iterable[QuotaShown]:
    return ()


class Reports:
    """The last words of each part."""

    def __init__(self) -> None:
        self.peers: Callable[[], Iterable[PeerShown]] = _nobody
        """Asked at each scrape for every member but this one."""
        self.quotas: Callable[[], Iterable[QuotaShown]] = _no_quotas
        """Asked at each scrape for every key that has one."""
        self._peer_gauges = (
            Gauge("pharos_peer_up", "Whether the peer takes what this instance tells it", ("peer",)),
            Gauge("pharos_peer_mismatch", "1: the peer has other backends, keys or another time zone", ("peer",)),
            Gauge(
                "pharos_peer_proto_mismatch",
                "1: the peer speaks another protocol, so the two share nothing; kept until it takes a delta again",
                ("peer",),
            ),
            Gauge(
                "pharos_peer_last_heard_timestamp_seconds",
                "When the peer's last delta came, in seconds since 1970; left out until one came",
                ("peer",),
            ),
            Gauge(
                "pharos_peer_dropped_prefix_ops",
                "Prefix operations that the peer missed as they were too many",
                ("peer",),
            ),
            Tally("pharos_peer_sent_bytes_total", "Bytes of deltas and snapshots sent to the peer", ("peer",)),
        )
        self._quota = Gauge("pharos_quota_used_ratio", "Share of a key's quota that is spent now", ("key", "quota"))
        self._reload = Gauge(
            "pharos_config_last_reload_successful", "0: the last change of the configuration was refused"
        )
        self._reloaded_at = Gauge(
            "pharos_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read, in seconds since 1970",
        )
        self._saving = Gauge("pharos_state_file_failing", "1: the state file could not be written the last time")
        self._saved_at = Gauge(
            "pharos_state_file_saved_timestamp_seconds", "When the state file was last written, in seconds since 1970"
        )
        self._lag = Histogram(
            "pharos_loop_lag_seconds",
            "How late the event loop came to a timer, looked at 10 times a second",
            bounds=_LAG_S,
        )
        self._stalls = Counter(
            "pharos_loop_stalls_total",
            f"Times that it came more than {STALL_S:g} s late; the log names the place",
            made=[()],
        )
        self._config_ok: bool | None = None
        self._config_at: float | None = None
        self._state_ok: bool | None = None
        self._state_at: float | None = None

    @property
    def families(self) -> tuple[Gauge | Histogram | Counter, ...]:
        """All of them."""
        return (
            *(*self._peer_gauges, self._quota),
            *(self._reload, self._reloaded_at, self._saving, self._saved_at, self._lag, self._stalls),
        )

    def config_read(self, at: float, *, ok: bool) -> None:
        """The configuration was read, at the start or anew. `at` in seconds since 1970; not `ok`: the old one stays."""
        self._config_ok = ok
        if ok:
            self._config_at = at

    def state_written(self, at: float, *, ok: bool) -> None:
        """The state file was written, or could not be."""
        self._state_ok = ok
        if ok:
            self._state_at = at

    def lagged(self, lag_s: float) -> None:
        """The event loop came so late to a timer."""
        self._lag.observe(lag_s)
        if lag_s > STALL_S:
            self._stalls.inc_made()

    def pieces(self, keys: Bound) -> Iterator[bytes]:
        """All that was told, as text."""
        peers = list(self.peers())
        for family, read in zip(self._peer_gauges, _PEER, strict=True):
            values = ((one.peer, read(one)) for one in peers)
            yield from _known(family, {(peer,): value for peer, value in values if value is not None})
        spent: dict[Labels, float] = {}
        for one in self.quotas():
            labels = (keys.admit(one.key), one.quota)
            spent[labels] = max(one.used, spent.get(labels, 0.0))
        yield from _known(self._quota, spent)
        for gauge, value in (
            (self._reload, self._config_ok),
            (self._reloaded_at, self._config_at),
            (self._saving, None if self._state_ok is None else not self._state_ok),
            (self._saved_at, self._state_at),
        ):
            yield from _known(gauge, {} if value is None else {(): float(value)})
        yield from self._lag.pieces()
        yield from self._stalls.pieces()


def _known(family: Gauge, values: dict[Labels, float]) -> Iterator[bytes]:
    """A family that has something to show."""
    if values:
        yield family.piece(values)


_PEER: tuple[Callable[[PeerShown], float | None], ...] = (
    lambda one: one.up,
    lambda one: one.mismatched,
    lambda one: one.protocol_mismatched,
    lambda one: one.last_heard_at,
    lambda one: one.dropped_prefix_ops,
    lambda one: one.sent_bytes,
)
