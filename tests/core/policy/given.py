"""Candidates for tests: one that knows everything and is warm and idle, changed by the field."""

import msgspec
from hypothesis import strategies as st

from pharos.core.policy import POLICIES, Candidate, Decision, Params, RouteRequest

PARAMS = Params()
KNOWN: dict[str, object] = {
    "ours": 0,
    "running": 0,
    "waiting": 0,
    "capacity": 4,
    "router_ahead": 0,
    "warm": True,
    "reports_residency": True,
    "loading": False,
    "kv_usage": 0.1,
    "prefill_s_per_token": 0.001,
    "load_s": 8.0,
    "service_s": 4.0,
    "fits_if_cold": True,
    "base_s": 0.0,
}


def candidate(target_id: int = 0, **changed: object) -> Candidate:
    return Candidate(target_id=target_id, name=f"gpu-{target_id}", **(KNOWN | changed))  # type: ignore[arg-type]


def pick(*candidates: Candidate, prompt: int = 1000, seed: int = 0, policy: str = "cost", **more: object) -> Decision:
    """`more`: fields of the request; `matched` may be a dict by place."""
    matched = more.pop("matched", {})
    assert isinstance(matched, dict)
    req = RouteRequest(prompt, seed, tuple(matched.items()), **more)  # type: ignore[arg-type]
    return POLICIES[policy](req, candidates, PARAMS)


def unknown_or(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


FIELDS: dict[str, st.SearchStrategy[object]] = {
    "ours": st.integers(0, 6),
    "running": unknown_or(st.integers(0, 6)),
    "waiting": unknown_or(st.integers(0, 4)),
    "capacity": unknown_or(st.integers(0, 6)),
    "router_ahead": st.just(2),
    "warm": unknown_or(st.booleans()),
    "reports_residency": st.booleans(),
    "loading": st.booleans(),
    "kv_usage": unknown_or(st.floats(0, 1)),
    "prefill_s_per_token": unknown_or(st.floats(0, 0.02)),
    "load_s": unknown_or(st.floats(0, 30)),
    "service_s": unknown_or(st.floats(0, 30)),
    "fits_if_cold": unknown_or(st.booleans()),
    "base_s": unknown_or(st.floats(0, 1)),
    "loading_since": unknown_or(st.floats(-20, 5)),
    "frees_at": unknown_or(st.floats(0, 30)),
    "context_tokens": unknown_or(st.integers(500, 4000)),
    "is_soft": st.booleans(),
    "loaded_for": unknown_or(st.sampled_from([4096, 32768])),
    "unable": st.sampled_from([frozenset(), frozenset({"vision"})]),
}

requests = st.builds(
    RouteRequest,
    st.integers(0, 5000),
    st.integers(0, 2**32),
    matched=st.dictionaries(st.just(0), st.integers(1, 3000), max_size=1).map(lambda held: tuple(held.items())),
    needs=st.sampled_from([frozenset(), frozenset({"vision"})]),
    context_tokens=unknown_or(st.sampled_from([4096, 32768])),
    now=st.floats(0, 40),
)
"""Requests of all kinds; what they match is at the first candidate, as there is always one."""


@st.composite
def fleets(draw: st.DrawFn, least: int = 1) -> list[Candidate]:
    """Mixed candidates, each unknown in whatever it likes."""
    count = draw(st.integers(least, 4))
    drawn = [candidate(i, **{name: draw(values) for name, values in FIELDS.items()}) for i in range(count)]
    return [c if c.ours else msgspec.structs.replace(c, frees_at=None) for c in drawn]  # it tells of ours only
