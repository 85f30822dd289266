"""One request on its way through: what is known about it, what it still holds. No I/O, no decision."""

import msgspec

from pharos.core.prefix import Chain
from pharos.proxy.answer import Answer
from pharos.proxy.auth import Key
from pharos.proxy.body import Reservation
from pharos.proxy.done import Done
from pharos.proxy.head import Headers
from pharos.proxy.parse import ChatRequest
from pharos.proxy.relay import Client
from pharos.proxy.table import Route


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A parsed request that wants an engine."""

    route: Route
    path: str
    """As it came: on some routes it has an id in it, so that counts and records go by `route.path`."""
    query: str
    """What of the query string the engine gets, without the question mark."""
    headers: Headers
    key: Key
    parsed: ChatRequest
    named: str
    """The model as the body has it; `parsed` has the one name that everything goes by."""
    body: bytes
    reservation: Reservation
    client: Client
    answer: Answer
    done: Done
    arrived_at: float
    upload_s: float
    """Seconds spent waiting for the client's own bytes."""
    method: str = "POST"
    """Towards the engine."""
    prompt_bytes: int = 0
    """Bytes of the prompt's text: see `reading.Read`."""
    chain: Chain | None = None
    """Of its prompt; `None`: nothing can be predicted about it."""
    needs: frozenset[str] = frozenset()
    """Abilities that it asks of a model."""
    only: frozenset[int] | None = None
    """Targets that may serve it, where not all may: those of some kind, the one that knows an id; `None`: any."""
    excluded: frozenset[int] = frozenset()
    """Targets that answered this request with a refusal."""
    lacking: frozenset[int] = frozenset()
    """Those of them that refused it as if they did not serve its route."""
    was_fatal: bool = False
    """An engine closed its connection on it without a reply."""
    was_refused: bool = False
    """The engine that did so last had not even taken all of it."""
    was_stale: bool = False
    """A kept connection that was closed already cost it one try: only new ones are used from then on."""

    def __repr__(self) -> str:
        return f"<Call {self.done.request_id} {self.path} {self.parsed.model}>"

    @property
    def is_bound(self) -> bool:
        """Whether one engine alone can answer, because it remembers what the request goes on from: it is asked once."""
        return self.only is not None and self.route.kinds is None

    def let_body_go(self) -> None:
        """No retry can follow any more: the body need not stay in memory."""
        self.body = b""
        self.reservation.release()

    def note(self, stage: str, outcome: str) -> None:
        """Remember a decision."""
        self.done.stages.append((stage, outcome))
