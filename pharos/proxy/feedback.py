"""How an attempt ended: its row in the decision table, and what it teaches the fleet. Pure: values in, values out."""

from pharos.core.fleet import Feedback
from pharos.proxy.relay import End, Relay
from pharos.proxy.retry import is_retriable
from pharos.proxy.tap import Ending, Tap
from pharos.proxy.verdict import FIRST_ERROR

FAILED = {
    End.NOT_CONNECTED: ("connect_failed", "no connection to it"),
    End.DIED_BEFORE: ("died_before_reply", "it closed before a reply"),
    End.DIED_MID: ("died_mid_reply", "it closed inside a reply"),
    End.EARLY: ("ended_early", "its reply had no end of its protocol"),
    End.BAD_REPLY: ("bad_reply", "it sent what is no HTTP reply, or a web page"),
    End.LATE: ("first_byte_late", "no byte of a reply came in time"),
    End.STALLED: ("stalled", "nothing more came in time"),
}
"""How an attempt failed -> (outcome, what is said of the backend)."""
OTHER = {
    End.CLIENT_LEFT: "client_left",
    End.SHUTDOWN: "cut_at_shutdown",
    End.FAULT: "pharos_error",
}
"""Endings that say nothing about the engine -> outcome."""
SETTLED = frozenset({End.WHOLE, End.DIED_MID, End.EARLY, End.STALLED, End.FAULT, End.SHUTDOWN})
"""Endings after which the client gets nothing more."""
EJECTS = frozenset({End.NOT_CONNECTED, End.DIED_BEFORE, End.DIED_MID})
"""Endings of an engine that is gone."""
QUICK_FAILURES = frozenset({
    "connect_failed", "died_before_reply", "died_mid_reply", "bad_reply", "empty_reply", "error_in_stream",
    "first_byte_late", "stalled",
})  # fmt: skip
"""Outcomes without an error status that count against a target when no token came."""


def outcome(relay: Relay) -> str:
    """The row of the decision table for this ending."""
    if relay.end is not End.WHOLE:  # nearly all end whole: the tables need not be asked for those
        if relay.end in FAILED:
            return FAILED[relay.end][0]
        if relay.end in OTHER:
            return OTHER[relay.end]
    if relay.status >= FIRST_ERROR:
        return "error_status"
    if relay.tap is not None:
        if relay.tap.ending is Ending.ERROR:
            return "error_in_stream"
        if relay.token_at is None and _is_empty(relay, relay.tap):
            return "empty_reply"
    return "ok"


def _is_empty(relay: Relay, tap: Tap) -> bool:
    """Whether an engine said that all went well and gave nothing. A model may say nothing: then usage tells so."""
    if relay.is_stream:
        return tap.usage is None
    return not tap.saw_token or tap.ending is Ending.OPEN


def counts_against(relay: Relay, ended: str) -> bool:
    """Whether this ending is the target's own failure, at once rather than after work. `ended`: its `outcome`.

    An engine that ends replies early has lost what it runs the model in, and lives on: no death ejects it.
    """
    if ended == "error_status":
        return is_retriable(relay.status)
    return relay.end is End.EARLY or (ended in QUICK_FAILURES and relay.token_at is None)


def feedback(relay: Relay, ended: str, *, cold: bool, bytes_prompt: int, now: float) -> Feedback | None:
    """What the fleet learns: only the failure when there was one, nothing when it was not the engine's doing.

    `ended` is the `outcome` of the same relay.
    """
    if ended != "ok":
        return None if relay.end in OTHER else Feedback(ok=False, cold=cold)
    usage = relay.tap.usage if relay.tap is not None else None
    return Feedback(
        ok=True,
        cold=cold,
        ttft_s=None if relay.token_at is None else relay.token_at - relay.begun_at,
        duration_s=now - relay.begun_at,
        prefill_s=None if usage is None else usage.prefill_s,
        load_s=None if usage is None else usage.load_s,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
        bytes_prompt=bytes_prompt,
        decode_s=None if usage is None else usage.predicted_s,
    )
