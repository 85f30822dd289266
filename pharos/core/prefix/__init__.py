"""Which prompts the engines' caches probably hold: hashes of prompts' beginnings, and who was last asked with them.

Forbidden here: the text of a prompt, engines, and waiting. What a request's prompt is, the data plane finds out
(`proxy/prompt.py`); what a match is worth, the policy.
"""

from pharos.core.prefix.chain import Chain, ChainBuilder, Match, PrefixOp, Source
from pharos.core.prefix.index import PrefixIndex
from pharos.core.prefix.known import Known
from pharos.core.prefix.outcome import Outcome, outcome
from pharos.core.prefix.pending import PendingOps

__all__ = [
    "Chain",
    "ChainBuilder",
    "Known",
    "Match",
    "Outcome",
    "PendingOps",
    "PrefixIndex",
    "PrefixOp",
    "Source",
    "outcome",
]
