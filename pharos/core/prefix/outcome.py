"""How a prediction turned out, once the engine has told how much of the prompt came from its cache.

Forbidden here: state, and changing anything.
"""

from typing import Final, Literal

Outcome = Literal["predicted_hit", "wrong_prediction", "unpredicted_hit", "miss", "unknown"]

WRONG_BELOW: Final = 0.5
"""Share of the predicted tokens below which a prediction was wrong; bytes tell tokens to within 1.5 times."""


def outcome(predicted_tokens: float, cached_tokens: int | None) -> Outcome:
    """Compare the tokens that the index promised (0: none) with those that the engine reports (`None`: it does not)."""
    if cached_tokens is None:
        return "unknown"
    if predicted_tokens > 0:
        return "predicted_hit" if cached_tokens >= predicted_tokens * WRONG_BELOW else "wrong_prediction"
    return "unpredicted_hit" if cached_tokens > 0 else "miss"
