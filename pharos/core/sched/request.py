"""What the policy is told of a request, for the targets at hand. Forbidden here: state."""

from collections.abc import Sequence

from pharos.core.fleet import Target
from pharos.core.policy import RouteRequest
from pharos.core.sched.lease import Submit


def route_request(sub: Submit, targets: Sequence[Target], seed: int, now: float) -> RouteRequest:
    """The request as the policy sees it. `targets`: the candidates, in their order."""
    held = sub.matched
    matched = tuple([(i, held[t.id]) for i, t in enumerate(targets) if t.id in held]) if held else ()
    return RouteRequest(
        sub.prompt_tokens, seed, matched, sub.max_tokens, sub.expected_tokens, sub.needs, sub.context_tokens, now
    )
