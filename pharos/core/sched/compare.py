"""What a lease's decision foretold against what its request met, handed to the calibration.

Forbidden here: judging (`fleet.calibration` does) and learning speeds (`fleet.stats` does).
"""

from pharos.core.fleet import Event, Feedback, Fleet
from pharos.core.sched.lease import Lease


def compare(fleet: Fleet, lease: Lease, feedback: Feedback | None) -> list[Event]:
    """Hold the predicted load and prefill of a request that ended against its dispatch to first token.

    Call it once per lease that took a slot, beside its release. Failures, replies that were not streamed and times that
    tell nothing of the target (see `Lease.is_speed_sample`) are left out.
    """
    if feedback is None or not feedback.ok or not lease.is_speed_sample:
        return []
    predicted_s, actual_s = lease.decision.predicted_start_s, feedback.ttft_s
    if predicted_s is None or actual_s is None:
        return []
    # While no target of the model has told how fast it reads prompts, an assumption is held against them, not what the
    # estimates make of what they know: that is shown, and judges nothing.
    told = any(it.prefill_s_per_token is not None for it in lease.decision.candidates)
    return fleet.calibration.note(lease.model, lease.backend, predicted_s, actual_s, judges=told)
