"""What finished requests teach about a target's speed: moving averages, unknown until the first sample.

Forbidden here: learning from anything but a finished request (scrapes say what is, not how fast it was).
"""

import msgspec

from pharos.core.assumptions import ASSUMPTIONS

EWMA_WEIGHT = ASSUMPTIONS["ewma_weight"].value
MIN_UNCACHED_TOKENS = ASSUMPTIONS["min_uncached_tokens"].value
LOADED_NOTHING_S = ASSUMPTIONS["loaded_nothing_s"].value
BASE_S = ASSUMPTIONS["base_s"].value
LEAST_REPLY = 8
"""Tokens; the time of a shorter reply is that of its first token and its end."""


class Ewma(msgspec.Struct, gc=False):
    """Exponentially weighted moving average. `None` until the first sample."""

    value: float | None = None

    def add(self, sample: float) -> None:
        """Take one sample in; the first one is taken as it is."""
        self.value = sample if self.value is None else self.value + EWMA_WEIGHT * (sample - self.value)


class Stats(msgspec.Struct):
    """Speed of one target as its own finished requests show it."""

    prefill_s_per_token: Ewma = msgspec.field(default_factory=Ewma)
    """Seconds of prompt processing per prompt token that was not cached."""
    load_s: Ewma = msgspec.field(default_factory=Ewma)
    """Seconds a cold dispatch took to bring the model into memory."""
    service_s: Ewma = msgspec.field(default_factory=Ewma)
    """Seconds from dispatch to the end of the reply, on a loaded model, whatever was asked: for those of whom nothing
    more is known."""
    base_s: Ewma = msgspec.field(default_factory=Ewma)
    """Seconds to the first token that prefill does not explain, on a loaded model."""
    decode_s_per_token: Ewma = msgspec.field(default_factory=Ewma)
    """Seconds per token of the reply after the first."""

    def expect_s(self, uncached_tokens: float, output_tokens: float) -> float | None:
        """Seconds from dispatch to the end of a reply of so many tokens on a loaded model; `None`: not learned yet."""
        base_s, prefill, decode = self.base_s.value, self.prefill_s_per_token.value, self.decode_s_per_token.value
        if prefill is None or decode is None:
            return None
        return (base_s if base_s is not None else BASE_S) + uncached_tokens * prefill + output_tokens * decode


class Feedback(msgspec.Struct, frozen=True, gc=False):
    """What one finished request showed. `None`: not known."""

    ok: bool
    """The reply ended as its protocol says; nothing is learned otherwise."""
    cold: bool
    """It was dispatched to a model that was not in memory."""
    ttft_s: float | None = None
    """Seconds from dispatch to the first token."""
    duration_s: float | None = None
    """Seconds from dispatch to the end of the reply."""
    prefill_s: float | None = None
    """The engine's own figure for processing the prompt."""
    load_s: float | None = None
    """The engine's own figure for loading the model."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    bytes_prompt: int | None = None
    """Bytes of prompt text in the request, for the learned tokens per byte."""
    decode_s: float | None = None
    """The engine's own figure for producing the reply."""


def learn(stats: Stats, feedback: Feedback) -> None:
    """Take one finished request into a target's averages; a failed one teaches nothing."""
    if not feedback.ok:
        return
    # An engine that loaded for less than this loaded nothing: what we knew of its memory was a scrape behind.
    warm = not feedback.cold or (feedback.load_s is not None and feedback.load_s < LOADED_NOTHING_S)
    prefill = _prefill_sample(feedback, warm=warm)
    if prefill is not None:
        stats.prefill_s_per_token.add(prefill)
    if warm:
        _learn_parts(stats, feedback)
    if not warm:
        load_s = feedback.load_s if feedback.load_s is not None else feedback.ttft_s
        if load_s is not None:
            stats.load_s.add(load_s)
    elif feedback.duration_s is not None:
        stats.service_s.add(feedback.duration_s)


def _prefill_sample(feedback: Feedback, *, warm: bool) -> float | None:
    """Seconds per uncached token, or `None` when this request cannot tell."""
    if feedback.prompt_tokens is None or feedback.cached_tokens is None:
        return None
    uncached = feedback.prompt_tokens - feedback.cached_tokens
    if uncached < MIN_UNCACHED_TOKENS:
        return None  # measures the engine's fixed overhead, not its speed
    if feedback.prefill_s is not None:
        return feedback.prefill_s / uncached
    return feedback.ttft_s / uncached if warm and feedback.ttft_s is not None else None


def _learn_parts(stats: Stats, feedback: Feedback) -> None:
    """Take in what of a warm request was neither prefill nor load: its fixed part, and the time per token."""
    tokens = feedback.completion_tokens
    if tokens is not None and tokens >= LEAST_REPLY:
        if feedback.decode_s is not None:
            stats.decode_s_per_token.add(feedback.decode_s / tokens)
        elif feedback.ttft_s is not None and feedback.duration_s is not None:
            stats.decode_s_per_token.add(max(feedback.duration_s - feedback.ttft_s, 0.0) / (tokens - 1))
    rate = stats.prefill_s_per_token.value
    if feedback.ttft_s is None or feedback.prompt_tokens is None or feedback.cached_tokens is None or rate is None:
        return
    uncached = max(feedback.prompt_tokens - feedback.cached_tokens, 0)
    if uncached < MIN_UNCACHED_TOKENS:  # of a longer one the error of the rate would count for more than the rest
        stats.base_s.add(max(feedback.ttft_s - uncached * rate, 0.0))
