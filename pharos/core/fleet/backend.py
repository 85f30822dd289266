"""A backend (one engine endpoint) and its targets (one per model it lists): plain state, changed by `registry` only.

Backend and target name each other, so they share this module. Forbidden here: deciding what an event means.
"""

import enum
import math
from typing import TYPE_CHECKING

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
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


class Slots(msgspec.Struct, eq=False):
    """The slots of one physical target: names that share one queue share this object."""

    physical: int
    """Id of the first target of the queue."""
    inflight: int = 0
    """Our own requests there now."""
    last_end_at: float | None = None
    """When one of them last ended: older counts of the engine still hold its slot."""


class Target:
    """One model on one backend: the unit that is scheduled."""

    __slots__ = (
        "_refused_usage",
        "_view",
        "_view_from",
        "_view_stamp",
        "_view_until",
        "backend",
        "generation",
        "id",
        "inflight",
        "last_residency",
        "listed",
        "loaded_at",
        "model",
        "served",
        "slots",
        "stats",
    )

    def __init__(self, target_id: int, backend: "Backend", model: str, slots: Slots) -> None:
        self.id = target_id
        """Small; given to another target once its backend is forgotten."""
        self.backend = backend
        self.model = model
        """The client's name of the model."""
        self.served = model
        """The engine's name of it."""
        self.generation = 0
        """Counts up whenever what the engine cached for this model is gone."""
        self.stats = Stats()
        self.slots = slots
        self.inflight = 0
        """Our own requests under this very name now; `slots.inflight` has those of all names of the queue."""
        self.listed = True
        """Whether the backend's last list of models has it."""
        self.loaded_at: float | None = None
        """When a successful reply last showed the model in memory."""
        self.last_residency: Residency | None = None
        """The last residency known, however old: what the next reading is compared with."""
        self._refused_usage: tuple[str | None] | None = None
        self._view = View()
        self._view_stamp = -1
        self._view_from = self._view_until = math.inf

    @property
    def physical(self) -> int:
        """Id of the first target of its queue; equal for names that share one."""
        return self.slots.physical

    def view(self, now: float) -> View:
        """Signals as of `now`; what is stale or was never read is `None`."""
        if self._view_stamp != self.backend.stamp or not self._view_from <= now < self._view_until:
            self._view, self._view_until = look(self.backend.readings, self.served, self.loaded_at, now)
            self._view_stamp, self._view_from = self.backend.stamp, now
        return self._view

    def refuse_usage(self) -> None:
        """Remember that this version of the engine refuses the field that asks a stream for usage."""
        self._refused_usage = (self.backend.version,)

    def may_ask_usage(self) -> bool:
        """Whether a stream may be asked for usage: not where this engine version has refused it."""
        return self._refused_usage != (self.backend.version,)

    def __repr__(self) -> str:
        residency = self.last_residency.value if self.last_residency is not None else "residency unknown"
        inflight = self.slots.inflight
        return f"<Target {self.model}@{self.backend.name} {residency} {inflight} in flight gen={self.generation}>"


class Backend:
    """One engine endpoint, what was read from it, and its targets in the engine's order."""

    __slots__ = (
        "ejected_at",
        "error",
        "heard_at",
        "id",
        "last_full_at",
        "last_load_at",
        "models_read",
        "plan",
        "readings",
        "removed",
        "removed_at",
        "reports_residency",
        "slots",
        "spec",
        "stamp",
        "state",
        "targets",
        "up_since",
        "version",
    )

    def __init__(self, backend_id: int, spec: BackendSpec) -> None:
        self.id = backend_id
        self.spec = spec
        self.plan: Plan | None = None
        self.readings: dict[Key, Reading] = {}
        self.stamp = 0
        """Counts up with every change of what the views of its targets are made from."""
        self.state = State.UNKNOWN
        self.targets: dict[str, Target] = {}
        """By the client's name; a model that left the list stays, with `listed` false."""
        self.slots: Slots | None = None
        """The one queue of an engine whose models share it."""
        self.version: str | None = None
        """The last version read, however old."""
        self.models_read = False
        """Whether its list of models was ever read."""
        self.reports_residency = False
        """Whether its plan reads which models are in memory."""
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

    @property
    def name(self) -> str:
        """Its label."""
        return self.spec.name

    @property
    def inflight(self) -> int:
        """Our own requests there now, all models together."""
        return sum(target.inflight for target in self.targets.values())

    def is_up(self, now: float) -> bool:
        """Whether it may get requests: it answered its last round, or was heard of lately though it is busy."""
        if self.removed or (self.state is not State.UP and self.state is not State.BUSY):
            return False
        return self.heard_at is not None and now - self.heard_at <= BUSY_FOR_S

    def __repr__(self) -> str:
        return f"<Backend {self.spec.name} {self.state.value} {len(self.targets)} targets>"
