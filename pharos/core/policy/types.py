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


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A target as the policy sees it for one request. `None`: unknown."""

    target_id: int
    name: str
    """The backend's name."""
    ours: int
    """Our own requests in flight on its queue."""
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
    """A load is under way: it is paid already, so the model counts as warm."""
    kv_usage: float | None = None
    """Share of the engine's cache in use."""
    matched_tokens: int = 0
    """Prompt tokens its cache probably holds."""
    prefill_s_per_token: float | None = None
    load_s: float | None = None
    service_s: float | None = None
    fits_if_cold: bool | None = None
    """Whether a load would leave every model with requests in flight in memory."""


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
