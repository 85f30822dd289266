"""A backend (one engine endpoint) and its targets (one per model it lists): plain state, changed by `registry` only.

Backend and target name each other, so they share this module. Forbidden here: deciding what an event means.
"""

import enum
import math
from typing import TYPE_CHECKING, Literal

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine.own import OwnProbeSpec
from pharos.core.engine.usage_fields import PLAIN, Dialect
from pharos.core.fleet.lacking import Lacking
from pharos.core.fleet.readings import Readings
from pharos.core.fleet.stats import Stats
from pharos.core.fleet.view import View, look

if TYPE_CHECKING:
    from pharos.core.engine.plan import Plan
    from pharos.core.signals import Key, Reading, Residency

BUSY_FOR_S = ASSUMPTIONS["busy_for_s"].value


class BackendSpec(msgspec.Struct, frozen=True):
    """What configuration or discovery says of a backend. Two equal specs are the same backend."""

    name: str
    """The label in metrics, logs and pages; unique in the fleet."""
    url: str
    """Without a trailing slash."""
    kind: str | None = None
    """Engine kind; `None`: detect it."""
    capacity: int | None = None
    """Slots of one physical target, where the engine does not tell."""
    memory_bytes: int | None = None
    """Memory for models; `None`: loads are not checked against it."""
    credential: str | None = None
    """Name of the configured credential that is sent to it, never the key; `None`: none is sent."""
    ca_file: str | None = None
    """File of certificates that its own must descend from; `None`: the system's."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and value of headers that every request to it carries; no secrets."""
    logs: str | None = None
    """Where its log is: `docker://NAME` or `file:///PATH`; `None`: no log is read."""
    probes: tuple[OwnProbeSpec, ...] = ()
    """The operator's own."""
    aliases: tuple[tuple[str, str], ...] = ()
    """The engine's name of a model and the clients' name of it."""
    drain: bool = False
    """Whether discovery wants no new request to go there, while its streams finish. Not part of what makes a backend
    another one."""

    def undrained(self) -> "BackendSpec":
        """The same, whether drained or not: what one backend is told from another by."""
        return msgspec.structs.replace(self, drain=False) if self.drain else self


class State(enum.StrEnum):
    """What the last contact with a backend showed."""

    UNKNOWN = "unknown"
    """No round has ended yet."""
    UP = "up"
    BUSY = "busy"
    """It does not answer scrapes in time: still routable while it is heard of, its signals age."""
    STARTING = "starting"
    """It answers that it is still loading (503)."""
    UNRECOGNISED = "unrecognised"
    """It answers, but not like any engine known here."""
    DOWN = "down"
    EJECTED = "ejected"
    """A request found it dead; the next round that it answers brings it back."""


_UP, _BUSY = State.UP, State.BUSY

DrainedBy = Literal["operator", "discovery"]
"""A person by `pharos backend drain`, or what found it: by `pharos.drain`, or as it is not ready or ends."""


class Slots(msgspec.Struct, eq=False):
    """The slots of one physical target: names that share one queue share this object."""

    physical: int
    """Id of the first target of the queue."""
    inflight: int = 0
    """Our own requests there now."""
    peers: int = 0
    """Requests of other instances there, as they last told: see `sched.elsewhere`."""
    last_end_at: float | None = None
    """When one of them last ended: older counts of the engine still hold its slot."""
    turns: int = 0
    """Counts up whenever one of ours begins or ends, or `peers` changes."""
    progress: dict[int, tuple[float, float]] = {}
    """By lease, when it began (seconds on the caller's clock) and how many seconds it is expected to take in all; those
    of which nothing is expected are not in it."""


class Mark(msgspec.Struct, frozen=True):
    """The last value of a mark, and since when it has been the same."""

    value: str | float
    since: float
    """Seconds on the caller's clock."""


class Target:
    """One model on one backend: the unit that is scheduled."""

    __slots__ = (
        "_lacking",
        "_refused_usage",
        "_view",
        "_view_from",
        "_view_stamp",
        "backend",
        "began_at",
        "context_asked",
        "generation",
        "group",
        "id",
        "inflight",
        "last_context",
        "last_residency",
        "listed",
        "loaded_at",
        "loading_at",
        "model",
        "peers",
        "proven",
        "says_done",
        "served",
        "slots",
        "stats",
        "unable",
        "view_until",
    )

    def __init__(self, target_id: int, backend: "Backend", model: str, served: str, slots: Slots) -> None:
        self.id = target_id
        """Small; given to another target once its backend is forgotten."""
        self.backend = backend
        self.model = model
        """The clients' name of the model, in its one spelling (see `names`)."""
        self.served = served
        """The engine's name of it."""
        self.generation = 0
        """Counts up whenever what the engine cached for this model is gone."""
        self.stats = Stats()
        self.slots = slots
        self.group: str | None = None
        """Name of the queue that it shares, if it is known to share one: some engines tell their slots by queue."""
        self.inflight = 0
        """Our own requests under this very name now; `slots.inflight` has those of all names of the queue."""
        self.peers = 0
        """Requests of other instances under this name, as they last told."""
        self.listed = True
        """Whether the backend's last list of models has it."""
        self.loaded_at: float | None = None
        """When a successful reply last showed the model in memory."""
        self.last_residency: Residency | None = None
        """The last residency known, however old: what the next reading is compared with."""
        self.last_context: int | None = None
        """The last context length read while the model was loaded, in tokens."""
        self.loading_at: float | None = None
        """When the engine first said of the load under way that it loads; `None`: it does not say so now."""
        self.began_at: float | None = None
        """When the first of our own requests that are there now began, as far as its time was told."""
        self.context_asked: tuple[int, float, int | None] | None = None
        """The context size that a request of ours asked for, in tokens, and when; until the engine tells anew. And what
        it told then, where that is less: no model has more than it was made for."""
        self.unable: frozenset[str] = frozenset()
        """Abilities that its engine told the model lacks."""
        self.proven: set[str] = set()
        """Routes on which it has answered well."""
        self.says_done = False
        """Whether a stream of chunks from it has ended with `[DONE]`: then each that is whole does."""
        self._refused_usage: tuple[str | None] | None = None
        self._lacking = Lacking()
        self._view = View()
        self._view_stamp = -1
        self._view_from = math.inf
        self.view_until = math.inf
        """When the last view must be made anew though nothing was read: a reading ages out."""

    @property
    def physical(self) -> int:
        """Id of the first target of its queue; equal for names that share one."""
        return self.slots.physical

    @property
    def in_use(self) -> bool:
        """Whether requests of any instance are there, as far as that is known."""
        return self.inflight > 0 or self.peers > 0

    @property
    def loaded_for(self) -> int | None:
        """The context size that it was loaded for, or is being loaded for, where the engine loads for one.

        What a request of ours asked for counts until the engine tells anew, and on while it gave less than that: Ollama
        (0.17.4) compares what requests ask for, not what it gave, so that the same again loads nothing.
        """
        return self.context_asked[0] if self.context_asked is not None else self.last_context

    @property
    def loading_since(self) -> float | None:
        """When a load under way began, by the earlier of what the engine said and what we sent; `None`: unknown."""
        said, sent = self.loading_at, self.began_at if self.inflight else None
        if said is None or sent is None:
            return said if sent is None else sent
        return min(said, sent)

    def begin(self, now: float | None, context: int | None) -> None:
        """One of our requests takes a slot; see `Fleet.dispatched`."""
        if not self.inflight:
            self.began_at = now
        if context is not None and now is not None:
            before = self.context_asked
            self.context_asked = (context, now, before[2] if before is not None and before[0] == context else None)
        self.inflight += 1
        self.slots.inflight += 1
        self.slots.turns += 1

    def view(self, now: float) -> View:
        """Signals as of `now`; what is stale or was never read is `None`."""
        if self._view_stamp != self.backend.stamp or not self._view_from <= now < self.view_until:
            self._view, self.view_until = look(
                self.backend.readings,
                self.served,
                self.loaded_at,
                now,
                self.group,
                has_slots=self.group is not None or not self.backend.slots_by_queue,
            )
            self._view_stamp, self._view_from = self.backend.stamp, now
        return self._view

    def refuse_usage(self) -> None:
        """Remember that this version of the engine refuses the field that asks a stream for usage."""
        self._refused_usage = (self.backend.version,)

    def may_ask_usage(self) -> bool:
        """Whether a stream may be asked for usage: not where this engine version has refused it."""
        return self._refused_usage != (self.backend.version,)

    def note_lacking(self, route: str, now: float, request: int | None = None) -> bool:
        """Remember that this process of the engine does not serve a route, for this model at least: whether it is new.

        `request` tells the refused request from others, where the refusal may be about what it asked: then only a
        second one's proves anything. `None`: the refusal speaks of the route. One that was served is never missing:
        then something in front of the engine answers in its place for a while.
        """
        if route in self.proven:
            return False
        return self._lacking.note(route, (self.backend.version, self.backend.up_since), now, request)

    def lacks(self, route: str, now: float) -> bool:
        """Whether it is known not to serve a route.

        It is asked anew after a while, in another version, and when it was away: a proxy in front of an engine that is
        not there yet answers as if the route were missing.
        """
        return self._lacking.has(route, (self.backend.version, self.backend.up_since), now)

    def __repr__(self) -> str:
        residency = self.last_residency.value if self.last_residency is not None else "residency unknown"
        inflight = self.slots.inflight
        return f"<Target {self.model}@{self.backend.name} {residency} {inflight} in flight gen={self.generation}>"


class Backend:
    """One engine endpoint, what was read from it, and its targets in the engine's order."""

    __slots__ = (
        "closed",
        "cordoned",
        "counts_cached",
        "dialect",
        "doubts",
        "ejected_at",
        "error",
        "feed_faults",
        "heard_at",
        "id",
        "last_full_at",
        "last_load_at",
        "load_sent_at",
        "lost_probes",
        "marks",
        "models_read",
        "most_loaded",
        "plan",
        "queues",
        "reloads_for_context",
        "removed",
        "removed_at",
        "reports_residency",
        "since",
        "slots_by_queue",
        "spec",
        "stamp",
        "state",
        "targets",
        "told",
        "up_since",
        "usual_capacity",
        "usual_models",
        "version",
    )

    def __init__(self, backend_id: int, spec: BackendSpec) -> None:  # noqa: PLR0915 - a line per thing that is known
        self.id = backend_id
        self.spec = spec
        self.plan: Plan | None = None
        self.told = Readings()
        self.marks: dict[Key, Mark] = {}
        """What the last readings of marks were, however old: see `generation`."""
        self.doubts: dict[str, str] = {}
        """Model (or `BACKEND`) to why its load signals are not believed now, for people."""
        self.lost_probes: dict[str, str] = {}
        """Probe that told something before an upgrade and does not any more -> what may have replaced it, for people;
        empty when nothing looks like it."""
        self.feed_faults: dict[str, str] = {}
        """Probe of a log or stream that cannot be followed now -> why, for people."""
        self.stamp = 0
        """Counts up with every change of what its targets look like, except of our requests there (`Slots.turns`)."""
        self.state = State.UNKNOWN
        self.targets: dict[str, Target] = {}
        """By the client's name; a model that left the list stays, with `listed` false."""
        self.queues: dict[str, Slots] = {}
        """Name of a queue to its slots; models of the same name in `Signal.PHYSICAL_GROUP` share one."""
        self.version: str | None = None
        """The last version read, however old."""
        self.dialect: Dialect = PLAIN
        """What token counts of its replies mean."""
        self.counts_cached = False
        """Whether a reply of its process has stated cached tokens: then it tells of none by leaving them out."""
        self.usual_capacity: int | None = None
        """Slots that its kind of engine is assumed to have where nobody tells; `None`: as any engine."""
        self.usual_models: int | None = None
        """Models that its kind of engine is taken to hold in memory at once, until more were seen; `None`: unknown."""
        self.most_loaded = 0
        """So many models were seen in memory there together."""
        self.load_sent_at: float | None = None
        """When a request of ours last went there for which a model has to be loaded."""
        self.since = -math.inf
        """When it was added last."""
        self.models_read = False
        """Whether its list of models was ever read."""
        self.reports_residency = False
        """Whether its plan reads which models are in memory."""
        self.slots_by_queue = False
        self.reloads_for_context = False
        """Whether it loads a model anew for a request that asks for another context size."""
        self.last_full_at: float | None = None
        self.last_load_at: float | None = None
        self.heard_at: float | None = None
        """When a page of a scrape or a byte of one of our replies last came from it."""
        self.up_since: float | None = None
        """When the round was started that brought it up: older connections belong to an older process."""
        self.ejected_at = -math.inf
        self.error: str | None = None
        """Why it is not up, for people; `None` when it is."""
        self.removed = False
        self.removed_at: float | None = None
        self.cordoned = False
        """Whether an operator keeps new requests from it."""
        self.closed = spec.drain
        """Whether it gets no new request whatever its state: removed, cordoned, or drained by its spec (`settle`)."""

    @property
    def name(self) -> str:
        """Its label."""
        return self.spec.name

    @property
    def readings(self) -> "dict[Key, Reading]":
        """What was read, by signal and model: the reading that counts of each. Not to be changed here."""
        return self.told.best

    @property
    def inflight(self) -> int:
        """Our own requests there now, all models together."""
        return sum(target.inflight for target in self.targets.values())

    @property
    def drained_by(self) -> "DrainedBy | None":
        """Who keeps new requests from it while it is listed; `None`: nobody."""
        if self.cordoned:
            return "operator"
        return "discovery" if self.spec.drain else None

    def settle(self) -> None:
        """See anew whether it may get requests; call it when it was removed, cordoned, drained, or the reverse."""
        self.closed = self.removed or self.cordoned or self.spec.drain

    def is_alive(self, now: float) -> bool:
        """Whether it answered its last round, or was heard of lately though it is busy; drained or not."""
        is_there = not self.removed and (self.state is State.UP or self.state is State.BUSY)
        return is_there and self.heard_at is not None and now - self.heard_at <= BUSY_FOR_S

    def is_up(self, now: float) -> bool:
        """Whether it may get requests: it is alive, and not drained."""
        # Asked of each target for each request: members of an enumeration that are looked up cost more than the rest.
        state, heard_at = self.state, self.heard_at
        if heard_at is None or self.closed or (state is not _UP and state is not _BUSY):
            return False
        return now - heard_at <= BUSY_FOR_S

    def __repr__(self) -> str:
        return f"<Backend {self.spec.name} {self.state.value} {len(self.targets)} targets>"
