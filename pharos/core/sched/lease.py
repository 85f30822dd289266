"""What goes into the scheduler and what comes out of it. Records only; a lease has exactly one owner."""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Slots, Target
from pharos.core.policy import Decision
from pharos.core.prefix import Chain, Match

RETRY_WAIT_S = ASSUMPTIONS["retry_wait_s"].value


class Submit(msgspec.Struct, frozen=True):
    """One request that wants a slot."""

    key: str
    """Name of the API key it came with."""
    weight: int
    """That key's share: so many engine-seconds for each one of a key that weighs 1."""
    model: str
    """The client's name of the model."""
    prompt_tokens: int
    """Estimated."""
    exclude: frozenset[int] = frozenset()
    """Ids of targets that answered this request with a refusal."""
    retry: bool = False
    """It had a slot before: it goes to the front of its key's line, as if it had never left."""
    only: frozenset[int] | None = None
    """Ids of the targets that may serve it; `None`: any of the model's."""
    matched: Mapping[int, int] = {}
    """By id of a target, prompt tokens that its cache probably holds."""
    max_tokens: int | None = None
    """The client's limit of the reply; `None`: it sets none."""
    expected_tokens: float | None = None
    """Length of the reply as those before it were: see `OutputLengths`."""
    needs: frozenset[str] = frozenset()
    """What the model must be able to do: words of `signals.ABILITIES`."""
    context_tokens: int | None = None
    """The context size that it asks for (Ollama's `num_ctx`)."""
    absent_ok: bool = True
    """It may wait for a backend to come back; false when an engine's refusal is in hand that could be passed on."""
    chain: Chain | None = None
    """Of its prompt; with one, `matched` and `found` are looked up whenever a target is chosen."""
    found: Mapping[int, Match] = {}
    """By id of a target, what the prefix index says of it: see `Caches.known`."""
    priority: int = 0
    """Of its key: while requests wait, those of higher ones go first, whatever the weights."""


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
    """The model was known not to be in memory, or not with the context asked for, and nobody was loading it."""
    is_speed_sample: bool
    """Whether its times tell the target's speed: not when residency was unknown or a load under way."""
    waited_s: float
    """Seconds in the queue."""
    released: bool = False
    """Whether it holds no slot (any more)."""
    chain: Chain | None = None
    """Of the request's prompt."""
    match: Match | None = None
    """What the target's cache held of it, as the prefix index knew when it was granted."""
    generation: int = 0
    """The target's, when it was granted; told of requests with a chain only."""
    charged_s: float = 0.0
    """Engine-seconds that its key was charged for it as expected; 0: nothing, as neither it nor its key has waited."""
    charged_from: float = -math.inf
    """What it takes from then on is charged, seconds on the caller's clock."""

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


RefusalOutcome = Literal["unknown_model", "unavailable", "does_not_fit", "queue_full", "wait_too_long", "nowhere_else"]


class Refusal(msgspec.Struct, frozen=True):
    """No slot, and no place in the queue."""

    outcome: RefusalOutcome
    retry_after_s: int | None
    text: str
    """For people."""
    unread: tuple[str, ...] = ()
    """Backends that never told their models, so that nobody knows whether they have an unknown one."""


class Grant(msgspec.Struct, frozen=True):
    """A waiting request got its slot."""

    ticket: int
    lease: Lease


class Expiry(msgspec.Struct, frozen=True):
    """A waiting request waited long enough."""

    ticket: int
    refusal: Refusal
