"""What engines' caches hold of a prompt: looked up before each choice, learned from what became of the request.

# ops: known, token_came, ended · goal: one look-up per choice, one record per request
# plan: the index names targets and bytes; the model's tokens per byte make tokens of them, as the policy wants them
# warning: a request is recorded once; what comes twice counts as a prompt that comes again (see `PrefixIndex`)

Forbidden here: making chains (the data plane does), and saying what a match is worth (the policy does).
"""

import math
from typing import Final

from msgspec.structs import replace

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine import recipes
from pharos.core.fleet import Feedback, Fleet, Target
from pharos.core.prefix import Chain, Outcome, PrefixIndex, outcome
from pharos.core.prefix.buster import Busters
from pharos.core.sched.copies import slots_of
from pharos.core.sched.held import Held
from pharos.core.sched.lease import Lease, Submit

LEAST_TOKENS: Final = int(ASSUMPTIONS["cache_block_tokens"].value)
"""A shorter match is worth nothing: engines keep whole blocks, and a greeting with which all prompts begin would tie
them all to one engine."""
LARGEST_ID: Final = 0xFFFF
"""Of a target in the index."""


class Caches:
    """The prefix index beside the fleet whose targets it names."""

    def __init__(self, fleet: Fleet, index: PrefixIndex | None = None, *, by_slot: bool = True) -> None:
        """`by_slot`: whether slots are modelled (see `held`); the simulator shows what that is worth."""
        self._by_slot = by_slot
        self._fleet = fleet
        self.index = index if index is not None else PrefixIndex()
        self.busters = Busters()
        self._held: dict[int, Held] = {}
        """By id of a target that caches by slot, what it holds of what this instance sent it."""
        fleet.tell_of_reuse(self._forget)

    def __repr__(self) -> str:
        return f"<Caches {self.index!r}>"

    def known(self, sub: Submit) -> Submit:
        """The request with what caches hold of its prompt now; as it is when it has no chain."""
        if sub.chain is None:
            return sub
        generation_of = self._fleet.generation_of
        found = self.index.lookup(sub.chain, generation_of)
        if found:
            ratio, matched = self._fleet.tokens_per_byte(sub.model), {}
            for number, its in found.items():
                text_bytes, held = its.text_bytes, self._held.get(number)
                if held is not None and its.source == "local" and held.generation == generation_of(number):
                    text_bytes = held.reach(sub.chain)
                tokens = math.ceil(text_bytes * ratio)
                if tokens >= LEAST_TOKENS:
                    matched[number] = tokens
            if matched:
                return replace(sub, found=found, matched=matched)
        return replace(sub, found={}, matched={}) if sub.found else sub

    def dispatched(self, lease: Lease, sub: Submit) -> None:
        """A request with a chain got a lease: remember what was known of its prompt, and what it takes into use."""
        target, chain = lease.target, sub.chain
        lease.chain, lease.match, lease.generation = chain, sub.found.get(target.id), target.generation
        if chain is None or lease.released or not self._by_slot or shares_cache(target):  # a visit holds no slot
            return
        held = self._held.get(target.id)
        if held is None or held.generation != target.generation:
            held = self._held[target.id] = Held(target.generation)
        held.begin(lease.id, chain)

    def released(self, lease: Lease, chain: Chain, feedback: Feedback | None, now: float) -> None:
        """It gave its slot back, which holds its prompt now. `now`: seconds on the caller's clock."""
        held = self._held.get(lease.target.id)
        if held is None or held.generation != lease.generation:
            return
        if feedback is None or not feedback.ok:
            held.end(lease.id, chain, None)
            return
        tokens, prompt, cached = feedback.completion_tokens, feedback.prompt_tokens, feedback.cached_tokens
        reply_bytes = 0 if tokens is None else math.floor(tokens / self._fleet.tokens_per_byte(lease.model))
        rank = held.end(lease.id, chain, reply_bytes)
        if cached is not None and prompt is not None:
            predicted = lease.decision.matched_tokens
            if held.teaches(predicted, cached, prompt):
                held.learn(rank, slots_of(lease.target, now), predicted, cached, prompt)

    def look_for_buster(self, lease: Lease, body: bytes) -> None:
        """Take in whether any cache holds a good part of a prompt: who never has one found may be told why."""
        req = lease.decision.req
        held = max([tokens for _, tokens in req.matched], default=0)
        share = held / req.prompt_tokens if req.prompt_tokens else 0.0
        self.busters.note(lease.key, lease.model, share, body)

    def token_came(self, lease: Lease, now: float) -> None:
        """The first token came: where requests share one cache, others find the prompt there from now on.

        `now`, here and below: seconds on a clock that instances share.
        """
        if shares_cache(lease.target):
            self._record(lease, now)

    def ended(self, lease: Lease, feedback: Feedback | None, now: float, *, streamed: bool) -> Outcome | None:
        """Learn from a request that ended, and say how its prediction turned out; `None`: nothing to say.

        `feedback`: what the fleet learns from it, `None` for nothing. `streamed`: its first token was told.
        """
        chain, target = lease.chain, lease.target
        if chain is None or feedback is None:
            return None
        if not feedback.ok:  # who fails fast must not be asked for the same prompt again, for having it in its cache
            self.index.correct(chain, target.id)
            return None
        said = outcome(lease.decision.matched_tokens, feedback.cached_tokens)
        if said == "wrong_prediction":
            # It keeps less than was thought. What it holds of this prompt now it may lose as soon.
            self.index.correct(chain, target.id, _kept_bytes(chain.ends[-1], feedback))
        elif not (streamed and shares_cache(target)):
            self._record(lease, now)
        return said

    def _forget(self, target_id: int) -> None:
        self._held.pop(target_id, None)
        self.index.forget_target(target_id)

    def _record(self, lease: Lease, now: float) -> None:
        target = lease.target
        if lease.chain is not None and target.generation == lease.generation and target.id <= LARGEST_ID:
            self.index.record(lease.chain, target.id, lease.generation, now)


def shares_cache(target: Target) -> bool:
    """Whether all requests of an engine share one cache, so that a prompt is there for others before it ends."""
    plan = target.backend.plan
    return plan is not None and recipes.by_kind(plan.kind).shares_cache


def _kept_bytes(text_bytes: int, feedback: Feedback) -> int:
    """Bytes of a prompt that came from the cache, as the tokens of this very request tell."""
    cached, prompt = feedback.cached_tokens, feedback.prompt_tokens
    if not cached or not prompt:
        return 0
    return min(math.floor(text_bytes * cached / prompt), text_bytes)
