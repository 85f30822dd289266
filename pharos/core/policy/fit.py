"""Whether a request fits a target at all: its length, what it needs, and the context size that it asks for.

These depend on the request, but nearly all requests fit everywhere: `is_plain` tells those apart by one comparison.
Forbidden here: anything that passes by itself, like a full engine.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.policy.types import Candidate, RouteRequest

CONTEXT_MARGIN = ASSUMPTIONS["context_margin"].value
"""A prompt is an estimate from its bytes: it does not fit where it is estimated above so many times the limit."""
IN_USE = "loading it with the context asked for would evict it while it is in use"


class Fit(msgspec.Struct, frozen=True, gc=False):
    """What stands between one request and one target; one that fits has none."""

    why_not: str = ""
    """Why it cannot go there, for people; empty: it can."""
    lasts: bool = False
    """Waiting does not help."""
    reloads: bool = False
    """The model must be loaded anew first, for the context that the request asks for."""


def longest_everywhere(candidates: Iterable[Candidate]) -> float:
    """Estimated tokens of the longest prompt that fits each candidate; infinite when none tells a limit."""
    least: float = math.inf
    for c in candidates:
        limit = c.context_tokens
        if limit is not None and limit < least:
            least = limit
    return least * CONTEXT_MARGIN


def is_plain(req: RouteRequest, longest: float) -> bool:
    """Whether the request fits any candidate as it is. `longest`: what `longest_everywhere` says of them."""
    return req.prompt_tokens <= longest and not req.needs and req.context_tokens is None


def fits_of(req: RouteRequest, candidates: Sequence[Candidate]) -> dict[int, Fit]:
    """By place, the candidates that a request does not simply fit.

    An engine that loads a model for a context size cuts longer prompts instead of refusing them: where the request
    would fit nowhere, its length does not count there.
    """
    found = {i: fit for i, c in enumerate(candidates) if (fit := _fit(req, c, is_soft=False)) is not None}
    if len(found) == len(candidates) and all(fit.lasts for fit in found.values()):
        return {i: fit for i, c in enumerate(candidates) if (fit := _fit(req, c, is_soft=True)) is not None}
    return found


def _fit(req: RouteRequest, c: Candidate, *, is_soft: bool) -> Fit | None:
    """`is_soft`: the context of an engine that loads for it is no limit."""
    lacking = req.needs & c.unable
    if lacking:
        return Fit(f"cannot do {', '.join(sorted(lacking))}", lasts=True)
    limit, asked = c.context_tokens, req.context_tokens
    if asked is not None and c.is_soft:
        if c.loaded_for is None or c.loaded_for == asked or not (c.warm or c.loading):
            return None  # it gets as much as it asks for
        return Fit(IN_USE) if c.ours > 0 else Fit(reloads=True)
    if limit is None or req.prompt_tokens <= limit * CONTEXT_MARGIN or (is_soft and c.is_soft):
        return None
    return Fit(f"its context holds {limit} tokens", lasts=True)
