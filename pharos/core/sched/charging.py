"""What keys owe each other: engine-seconds that they were given while they waited, by weight.

# ops: enter, charge, settle · goal: a look-up each; nothing at all for a key that never waits
# plan: per key the seconds that are settled, and those out on requests that still run; who owes least is next
# warning: one that comes is lifted to the least settled of those that wait: nobody saves up by being away

Forbidden here: choosing who is next (the fair queue does).
"""

from collections.abc import Iterable

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Feedback, Target
from pharos.core.policy import Params
from pharos.core.sched.lease import Lease, Submit

DECODE_S_PER_TOKEN = ASSUMPTIONS["decode_s_per_token"].value
LEAST_S = 0.01
"""No request is charged less: a key that floods with what is said to cost nothing must not have its turn for good."""


class Account(msgspec.Struct):
    """What one key was given, in engine-seconds."""

    weight: int
    settled_s: float = 0.0
    """Of requests that have ended: what they took."""
    out_s: float = 0.0
    """Of requests that still run: what they are expected to take."""
    running: int = 0
    """How many these are."""

    @property
    def owed(self) -> float:
        """All of it, per weight: the key with the least is next."""
        return (self.settled_s + self.out_s) / self.weight


class Accounts:
    """One account per key that waits or has charged requests running."""

    def __init__(self) -> None:
        self._of: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return f"<Accounts of {len(self)} keys>"

    def enter(self, key: str, weight: int, waiting: Iterable[Account]) -> Account:
        """The account of a key that begins to wait. `waiting`: those of the others that wait."""
        account = self._of.get(key)
        if account is None:
            account = self._of[key] = Account(weight)
        reweigh(account, weight)
        least = min([other.settled_s / other.weight for other in waiting], default=0.0)
        account.settled_s = max(account.settled_s, least * weight)
        return account

    def charge(self, key: str, seconds: float) -> None:
        """A request of the key that waited gets a slot."""
        account = self._of[key]
        account.out_s += seconds
        account.running += 1

    def settle(self, key: str, charged_s: float, actual_s: float) -> None:
        """It ended: what it took counts, and no longer what was expected."""
        account = self._of[key]
        account.running -= 1
        account.out_s = account.out_s - charged_s if account.running else 0.0
        account.settled_s += actual_s

    def rest(self) -> None:
        """Nobody waits: everybody got what they asked for, so nobody owes but for what still runs."""
        self._of = {key: account for key, account in self._of.items() if account.running}
        for account in self._of.values():
            account.settled_s = 0.0


def reweigh(account: Account, weight: int) -> None:
    """Another weight counts from now on: what the key owes per weight stays."""
    if weight != account.weight:
        account.settled_s *= weight / account.weight
        account.weight = weight


def work_s(sub: Submit, target: Target | None, params: Params) -> float:
    """Engine-seconds that a request probably takes: prefill of what is not cached, and the reply.

    `target`: whose speed counts, and whose cache; `None`: nobody's is known.
    """
    cached = sub.matched.get(target.id, 0) if target is not None and sub.matched else 0
    uncached, tokens = max(sub.prompt_tokens - cached, 0), sub.expected_tokens
    if target is not None:
        stats = target.stats
        expected = stats.expect_s(uncached, tokens) if tokens is not None else None
        if expected is None:
            expected = stats.service_s.value
        if expected is not None:
            return max(expected, LEAST_S)
    if tokens is None:
        return params.service_s
    return params.base_s + uncached * params.prefill_s_per_token + tokens * DECODE_S_PER_TOKEN


def charge_running(accounts: Accounts, leases: Iterable[Lease], key: str, now: float, params: Params) -> None:
    """A key begins to wait: what still runs of it counts from now on, though it did not wait for that.

    Else one that holds all slots would owe no more than one that holds none.
    """
    for lease in leases:
        if lease.key == key and not lease.charged_s:
            began, whole_s = lease.slots.progress.get(lease.id, (now, params.service_s))
            lease.charged_s, lease.charged_from = max(began + whole_s - now, LEAST_S), now
            accounts.charge(key, lease.charged_s)


def actual_s(lease: Lease, feedback: Feedback | None, now: float) -> float:
    """Engine-seconds that a lease took. A load is left out: all who come later gain by it, not its key alone."""
    if lease.charged_from > lease.at:
        return max(now - lease.charged_from, LEAST_S)
    load_s = 0.0
    place = lease.decision.chosen
    if feedback is not None and feedback.load_s is not None:
        load_s = feedback.load_s
    elif place is not None and (lease.cold or lease.decision.candidates[place].loading):
        load_s = lease.decision.crowd.score(place, lease.decision.req).load_s
    return max(now - lease.at - load_s, LEAST_S)
