"""Candidates for tests: one that knows everything and is warm and idle, changed by the field."""

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
    "matched_tokens": 0,
    "prefill_s_per_token": 0.001,
    "load_s": 8.0,
    "service_s": 4.0,
    "fits_if_cold": True,
}


def candidate(target_id: int = 0, **changed: object) -> Candidate:
    return Candidate(target_id=target_id, name=f"gpu-{target_id}", **(KNOWN | changed))  # type: ignore[arg-type]


def pick(*candidates: Candidate, prompt: int = 1000, seed: int = 0, policy: str = "cost") -> Decision:
    return POLICIES[policy](RouteRequest(prompt, seed), candidates, PARAMS)


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
    "matched_tokens": st.integers(0, 3000),
    "prefill_s_per_token": unknown_or(st.floats(0, 0.02)),
    "load_s": unknown_or(st.floats(0, 30)),
    "service_s": unknown_or(st.floats(0, 30)),
    "fits_if_cold": unknown_or(st.booleans()),
}


@st.composite
def fleets(draw: st.DrawFn, least: int = 1) -> list[Candidate]:
    """Mixed candidates, each unknown in whatever it likes."""
    count = draw(st.integers(least, 4))
    return [candidate(i, **{name: draw(values) for name, values in FIELDS.items()}) for i in range(count)]
