"""What goes into the scheduler and what comes out of it. Records only; a lease has exactly one owner."""

from typing import Literal

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Slots, Target
from pharos.core.policy import Decision

RETRY_WAIT_S = ASSUMPTIONS["retry_wait_s"].value


class Submit(msgspec.Struct, frozen=True):
    """One request that wants a slot."""

    key: str
    """Name of the API key it came with."""
    weight: int
    """That key's share: so many grants per turn."""
    model: str
    """The client's name of the model."""
    prompt_tokens: int
    """Estimated."""
    exclude: frozenset[int] = frozenset()
    """Ids of targets that answered this request with a refusal."""
    retry: bool = False
    """It had a slot before: it goes to the front of its key's line."""
    only: frozenset[int] | None = None
    """Ids of the targets that may serve it; `None`: any of the model's."""
    absent_ok: bool = True
    """It may wait for a backend to come back; false when an engine's refusal is in hand that could be passed on."""


class Lease(msgspec.Struct, eq=False):
    """A granted slot, held by one request until released."""

    id: int
    target: Target
    slots: Slots
    """The slots it took one of."""
    backend: str
    """Name of the backend, for records."""
    key: str
    model: str
    decision: Decision
    at: float
    """When it was granted, seconds on the caller's clock."""
    cold: bool
    """The model was known not to be in memory, and nobody was loading it."""
    is_speed_sample: bool
    """Whether its times tell the target's speed: not when residency was unknown or a load under way."""
    waited_s: float
    """Seconds in the queue."""
    released: bool = False
    """Whether it holds no slot (any more)."""

    def __repr__(self) -> str:
        state = "released" if self.released else "held"
        return f"<Lease {self.id} {self.model}@{self.backend} {state}>"


class Ticket(msgspec.Struct, frozen=True):
    """A place in the queue."""

    id: int
    deadline: float | None
    """When it expires if nothing changes, seconds on the caller's clock; `None`: never."""
    position: int
    """Place among those that wait for the same model, the first is 1."""


RefusalOutcome = Literal["unknown_model", "unavailable", "queue_full", "wait_too_long", "nowhere_else"]


class Refusal(msgspec.Struct, frozen=True):
    """No slot, and no place in the queue."""

    outcome: RefusalOutcome
    retry_after_s: int | None
    text: str
    """For people."""


class Grant(msgspec.Struct, frozen=True):
    """A waiting request got its slot."""

    ticket: int
    lease: Lease


class Expiry(msgspec.Struct, frozen=True):
    """A waiting request waited long enough."""

    ticket: int
    refusal: Refusal
