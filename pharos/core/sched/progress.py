"""How far the requests in front have come: when the first of ours on a full queue will probably end.

# ops: begin at the grant, first_end for a full queue · goal: nothing per token, one small tuple per request
# plan: per lease, when it began and how long it was expected to take; what an overdue one takes is guessed anew, longer
# warning: the answer of `first_end` holds until that moment has come, so whoever keeps it must look again then

`revise` is for a relay that knows better. Forbidden here: changing anything but what is expected.
"""

from collections.abc import Mapping

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Slots, Target
from pharos.core.policy import Decision

OVERDUE = ASSUMPTIONS["overdue_reply"].value
LEAST_S = 0.05
"""No request is expected to take less: guessing anew ends soon for one that is long overdue."""


def begin(lease_id: int, target: Target, decision: Decision, place: int, now: float) -> None:
    """Note how long a request that takes a slot now will take in all, as far as its length can be told.

    What was decided at `place` holds load and prefill; the rest is the reply, at the speed the target showed.
    """
    # Asked with every request: a call each for the two times would cost as much as all the rest.
    its, stats, tokens = decision.crowd.standings[place], target.stats, decision.req.expected_tokens
    wait_s, load_s = its.at(decision.req.now) if its.moves else (its.wait_s, its.load_s)
    decode_s = stats.decode_s_per_token.value
    if decode_s is not None and tokens is not None:
        whole_s = max(decision.totals[place] - wait_s, 0.0) + tokens * decode_s
    elif stats.service_s.value is not None:
        whole_s = stats.service_s.value + load_s
    else:
        return
    target.slots.progress[lease_id] = (now, whole_s)


def first_end(progress: Mapping[int, tuple[float, float]], now: float) -> float | None:
    """When the first of these requests will probably end, after `now`; `None` when nothing is expected of any.

    One that should have ended is expected to take half as long again as was last thought, as often as that is over.
    """
    first: float | None = None
    for began, expected in progress.values():
        length = max(expected, LEAST_S)
        end = began + length
        while end <= now:
            length *= OVERDUE
            end = began + length
        if first is None or end < first:
            first = end
    return first


def revise(slots: Slots, lease_id: int, whole_s: float) -> None:
    """Expect a running request to take so many seconds from its grant to its end, whatever was expected before.

    For a relay that counts tokens coarsely: elapsed + tokens still to come x seconds per token. One that has ended is
    left alone.
    """
    held = slots.progress.get(lease_id)
    if held is not None:
        slots.progress[lease_id] = (held[0], whole_s)
        slots.turns += 1
