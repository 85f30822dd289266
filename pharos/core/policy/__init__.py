"""Which target a request should go to: pure functions of a request and its candidates, each with its reasons.

Forbidden here: state of any kind. The scheduler gathers the candidates and acts on the decision.
"""

from collections.abc import Mapping
from typing import Final

from pharos.core.policy import cost, least_load
from pharos.core.policy.crowd import Crowd
from pharos.core.policy.decision import Decision, Policy
from pharos.core.policy.types import Candidate, Params, RouteRequest, Score, Why

POLICIES: Final[Mapping[str, Policy]] = {"cost": cost.pick, "least-load": least_load.pick}
"""By the name used in configuration."""

__all__ = ["POLICIES", "Candidate", "Crowd", "Decision", "Params", "Policy", "RouteRequest", "Score", "Why"]
