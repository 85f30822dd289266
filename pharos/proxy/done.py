"""The record of one finished request, for metrics, the status page and logs. Not written to once handed on."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pharos.core.decisions import Outcome
from pharos.core.engine.usage_fields import Usage
from pharos.core.policy import Score
from pharos.core.prefix import Chain, Source

CLIENT_LEFT_STATUS = 499
"""Status of a request whose client went away: no client ever sees it."""


class Choice(Protocol):
    """Why a request went where it did: a `Decision`, which works it out when somebody looks, as mostly nobody does."""

    @property
    def reason(self) -> str:
        """For people."""
        ...

    @property
    def scores(self) -> Sequence[Score]:
        """How the candidates compared."""
        ...


class Done(msgspec.Struct):
    """What became of one request. Seconds are `None` when that point was never reached."""

    request_id: str
    path: str
    at_wall: float
    """When it arrived, in seconds since 1970."""
    key: str | None = None
    model: str | None = None
    target: str | None = None
    """Name of the target that answered last, as people know it: model@backend."""
    backend: str | None = None
    status: int = 0
    """Status the client got; 499 when it left before one was sent or during the reply."""
    stages: list[Outcome] = msgspec.field(default_factory=list)
    """Every decision taken for it, in order; rows of the decision table."""
    choice: Choice | None = None
    """The last decision about its target."""
    predicted_s: float | None = None
    ttft_s: float | None = None
    """Dispatch to the first token of a streamed reply."""
    first_byte_s: float | None = None
    """Dispatch to the first byte of the reply."""
    overhead_s: float | None = None
    """Pharos's own time before the first byte to the engine: neither the client's upload nor the queue."""
    queue_wait_s: float = 0.0
    duration_s: float = 0.0
    usage: Usage | None = None
    chain: Chain | None = None
    """Hashes of its prompt; nothing of its text."""
    predicted_from: Source | None = None
    """How the prefix index came to the cached prompt that it predicted; `None`: it predicted none."""
    streamed: bool = False
    trace: str | None = None
    """Its client's `traceparent`; `None`: it sent none, or nobody here asks for it."""

    @property
    def reason(self) -> str:
        """Why it went where it did, for people."""
        return self.choice.reason if self.choice is not None else ""

    @property
    def scores(self) -> Sequence[Score]:
        """How the candidates compared."""
        return self.choice.scores if self.choice is not None else ()


OnDone = Callable[[Done], None]
