"""The record of one finished request, for metrics, the status page and logs. Not written to once handed on."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import msgspec

from pharos.core.decisions import Outcome
from pharos.core.engine.usage_fields import Usage
from pharos.core.policy import Decision, Score

CLIENT_LEFT_STATUS = 499
"""Status of a request whose client went away: no client ever sees it."""


class Scores(Sequence[Score]):
    """The scores of a decision, made when somebody looks at them: most are never looked at."""

    __slots__ = ("_decision",)

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def __repr__(self) -> str:
        return f"<Scores {len(self)}>"

    def __len__(self) -> int:
        return len(self._decision.rows)

    @overload
    def __getitem__(self, place: int) -> Score: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Score]: ...

    def __getitem__(self, place: int | slice) -> Score | Sequence[Score]:
        return self._decision.scores[place]

    def __iter__(self) -> Iterator[Score]:
        return iter(self._decision.scores)


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
    reason: str = ""
    scores: Sequence[Score] = ()
    """How the candidates compared; see `Scores`."""
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
    streamed: bool = False


OnDone = Callable[[Done], None]
