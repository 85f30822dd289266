"""Why a request went where it did, for people. Built for the winner and one other only: a pick has 100 µs."""

from pharos.core.policy.types import Candidate, RouteRequest, Score, Why

KILO = 1000


def why_it_won(score: Score, other: Score | None) -> Why:
    """Which part of the cost made the difference to the best other candidate."""
    if other is None:
        return "only_choice"
    saved = {
        "warm": other.load_s - score.load_s,
        "cache": other.prefill_s + other.kv_s - score.prefill_s - score.kv_s,
        "least_loaded": other.wait_s - score.wait_s,
    }
    if saved["warm"] > 0 and saved["warm"] >= max(saved["cache"], saved["least_loaded"]):
        return "warm"
    return "cache" if saved["cache"] > max(saved["least_loaded"], 0) else "least_loaded"


def sentence(
    req: RouteRequest, score: Score, candidate: Candidate, other: Score | None, other_candidate: Candidate | None
) -> str:
    """Like "warm, 1.2k cached tokens, est 0.4 s vs 3.1 s on gpu-2 (cold)"."""
    parts = [state(candidate)]
    cached = min(candidate.matched_tokens, req.prompt_tokens)
    if cached:
        parts.append(f"{_count(cached)} cached tokens")
    estimate = f"est {score.total_s:.1f} s"
    if other is not None and other_candidate is not None:
        tail = f", {other.why_not}" if other.why_not else ""
        estimate += f" vs {other.total_s:.1f} s on {other.name} ({state(other_candidate)}{tail})"
    parts.append(estimate)
    return ", ".join(parts)


def state(candidate: Candidate) -> str:
    """Where the model is, in a word or two."""
    if candidate.loading and not candidate.warm:
        return "loading"
    if candidate.warm is None:
        return "residency unknown" if candidate.reports_residency else "always loaded"
    return "warm" if candidate.warm else "cold"


def _count(tokens: int) -> str:
    return str(tokens) if tokens < KILO else f"{tokens / KILO:.1f}k"
