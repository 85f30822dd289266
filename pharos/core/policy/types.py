"""What a policy is given, and how it sees a candidate. Records only."""

from typing import Literal

import msgspec

from pharos.core.assumptions import ASSUMPTIONS


class RouteRequest(msgspec.Struct, frozen=True, gc=False):
    """What a policy needs to know of one request."""

    prompt_tokens: int
    """Estimated."""
    seed: int
    """Drawn for each request: it chooses among targets that are as good, or all requests would go to one of them."""
    matched: tuple[tuple[int, int], ...] = ()
    """Place among the candidates, and prompt tokens that its cache probably holds; each place once."""
    max_tokens: int | None = None
    """The client's limit of the reply; `None`: it sets none."""
    expected_tokens: float | None = None
    """Length of the reply as those before it were."""
    needs: frozenset[str] = frozenset()
    """What a model must be able to do: words of `signals.ABILITIES`."""
    context_tokens: int | None = None
    """The context size that it asks for, on engines that load a model for one; `None`: any will do."""
    now: float = 0.0
    """Seconds on the clock of the candidates' times."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One of the targets that a request may go to, with all that weighs in the choice. `None`: unknown."""

    target_id: int
    name: str
    """The backend's name."""
    ours: int
    """Requests of Pharos in flight on its queue: this instance's and, as last told, its peers'."""
    running: int | None
    """The engine's count, foreign requests included."""
    waiting: int | None
    """Requests queued inside the engine."""
    capacity: int | None
    """Slots."""
    router_ahead: int
    """Requests that wait in our queue ahead of this one."""
    warm: bool | None
    """Whether the model is in memory."""
    reports_residency: bool
    """Whether the engine tells; one that does not has one model, always in memory."""
    loading: bool
    """A load is under way: what has passed of it is not paid again."""
    kv_usage: float | None = None
    """Share of the engine's cache in use."""
    prefill_s_per_token: float | None = None
    load_s: float | None = None
    service_s: float | None = None
    fits_if_cold: bool | None = None
    """Whether a load would leave every model with requests in flight in memory."""
    base_s: float | None = None
    """Seconds to the first token that do not grow with the prompt."""
    loading_since: float | None = None
    """When the load under way began, seconds on the caller's clock."""
    frees_at: float | None = None
    """When the first of our own requests on a full queue is expected to end, seconds on the caller's clock."""
    context_tokens: int | None = None
    """Tokens that one request may use there now."""
    is_soft: bool = False
    """That is no limit: the engine loads the model anew for a request that asks for another size, and cuts what is
    longer."""
    loaded_for: int | None = None
    """The context size for which such an engine loaded the model, or loads it now."""
    unable: frozenset[str] = frozenset()
    """Abilities that the engine told the model lacks."""
    peers: int = 0
    """How many of `ours` are other instances': nobody here knows when they end."""


class Params(msgspec.Struct, frozen=True, gc=False):
    """Numbers a policy falls back to where no candidate knows better."""

    prefill_s_per_token: float = ASSUMPTIONS["prefill_s_per_token"].value
    load_s: float = ASSUMPTIONS["load_s"].value
    service_s: float = ASSUMPTIONS["service_s"].value
    capacity: int = int(ASSUMPTIONS["capacity"].value)
    kv_pressure_from: float = ASSUMPTIONS["kv_pressure_from"].value
    """Share of the cache above which a match is trusted less; none of it is left when the cache is full."""
    tie_s: float = ASSUMPTIONS["tie_s"].value
    """Costs this close are equal."""
    base_s: float = ASSUMPTIONS["base_s"].value
    regret_share: float = 1.0
    """How much of what was waited before counts towards one more copy of a model; 0: only who waits now."""


class Score(msgspec.Struct, frozen=True, gc=False):
    """What one candidate would cost, in estimated seconds to the first token."""

    target_id: int
    name: str
    wait_s: float
    load_s: float
    prefill_s: float
    kv_s: float
    """What cached tokens that were probably evicted would cost."""
    total_s: float
    feasible: bool
    free: bool
    """Whether a slot is free by what is known of it, not by what is presumed."""
    occupancy: float
    """Requests there per slot."""
    why_not: str
    """Why it cannot take the request now, for people; empty when it can."""


Why = Literal["only_choice", "least_loaded", "cache", "fastest", "warm", "tied"]
"""Outcomes of the decision table's stage "route"."""
