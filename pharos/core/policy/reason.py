"""Why a request went where it did, for people. Names the winner and the best other one only."""

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.policy.types import Candidate, Score, Why

KILO, MILLI = 1000, 0.001


TIE_S = ASSUMPTIONS["tie_s"].value


def why_it_won(score: Score, other: Score | None, matched_tokens: int) -> Why:
    """Which part of the cost made the difference to the best other candidate."""
    if other is None:
        return "only_choice"
    warm = other.load_s - score.load_s
    prefill = other.prefill_s + other.kv_s - score.prefill_s - score.kv_s
    least_loaded = other.wait_s - score.wait_s
    if max(warm, prefill, least_loaded) <= TIE_S:
        return "least_loaded" if score.occupancy < other.occupancy else "tied"
    if warm > 0 and warm >= prefill and warm >= least_loaded:
        return "warm"
    if prefill > least_loaded:
        return "cache" if matched_tokens else "fastest"
    return "least_loaded"


def sentence(
    score: Score, candidate: Candidate, matched: int, other: Score | None, other_candidate: Candidate | None
) -> str:
    """Like "warm, 1.2k cached tokens, est 40 ms vs 3.1 s on gpu-2 (cold)". `matched`: cached tokens of the winner."""
    cached = f", {_count(matched)} cached tokens" if matched else ""
    versus = ""
    if other is not None and other_candidate is not None:
        tail = f", {other.why_not}" if other.why_not else ""
        versus = f" vs {seconds(other.total_s)} on {other.name} ({state(other_candidate)}{tail})"
        if abs(other.total_s - score.total_s) <= TIE_S:
            versus += "; less busy" if score.occupancy < other.occupancy else "; equal, by chance"
    anew = ", loaded anew for another context" if candidate.warm and score.load_s > 0 else ""
    return f"{state(candidate)}{anew}{cached}, est {seconds(score.total_s)}{versus}"


def seconds(value: float) -> str:
    """A duration for people."""
    if value < MILLI:
        return "under 1 ms"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def state(candidate: Candidate) -> str:
    """Where the model is, in a word or two."""
    if candidate.loading and not candidate.warm:
        return "loading"
    if candidate.warm is None:
        return "residency unknown" if candidate.reports_residency else "always loaded"
    return "warm" if candidate.warm else "cold"


def _count(tokens: int) -> str:
    return str(tokens) if tokens < KILO else f"{tokens / KILO:.1f}k"
