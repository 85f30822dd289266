from collections.abc import Callable

from pharos.obs.pulse import BACKENDS, BUCKET_S, BUCKETS, SAMPLES, WINDOW, Pulse
from pharos.proxy.done import Done

AT = 1_800_000_000.0


def test_requests_are_counted_in_ten_second_steps_with_the_median_of_their_first_tokens(
    finished: Callable[..., Done],
) -> None:
    pulse = Pulse()
    for ttft_s in (0.1, 0.3, 0.9):
        pulse.note(finished(at_wall=AT, ttft_s=ttft_s))
    pulse.note(finished(at_wall=AT + BUCKET_S, ttft_s=None, status=503))
    told = pulse.described(AT + BUCKET_S)
    assert (told["requests"][-2:], told["failed"][-2:], told["ttft_s"][-2:]) == ([3, 1], [0, 1], [0.3, None])
    assert len(told["requests"]) == BUCKETS
    assert told["median_ttft_s"] == 0.3
    assert pulse.of("gpu-1") == [0.1, 0.3, 0.9]
    assert repr(pulse) == "<Pulse 2 buckets, 1 backends>"


def test_a_request_counts_when_it_ends(finished: Callable[..., Done]) -> None:
    pulse = Pulse()
    pulse.note(finished(at_wall=AT, duration_s=BUCKET_S * 2.0))
    assert pulse.described(AT + BUCKET_S * 2)["requests"][-1] == 1


def test_ten_minutes_are_kept_and_a_bounded_number_of_samples(finished: Callable[..., Done]) -> None:
    pulse = Pulse()
    for number in range(BUCKETS * 3):
        pulse.note(finished(at_wall=AT + number * BUCKET_S))
    assert repr(pulse) == f"<Pulse {BUCKETS} buckets, 1 backends>"
    assert len(pulse.of("gpu-1")) == WINDOW
    for _ in range(SAMPLES * 2):
        pulse.note(finished(at_wall=AT + BUCKETS * 3 * BUCKET_S))
    assert max(len(bucket.ttft_s) for bucket in pulse._buckets.values()) == SAMPLES


def test_a_clock_that_is_set_back_or_a_long_silence_begins_anew(finished: Callable[..., Done]) -> None:
    pulse = Pulse()
    pulse.note(finished(at_wall=AT))
    pulse.note(finished(at_wall=AT - 10 * BUCKETS * BUCKET_S))
    assert sum(pulse.described(AT - 10 * BUCKETS * BUCKET_S)["requests"]) == 1
    pulse.note(finished(at_wall=AT))
    assert sum(pulse.described(AT)["requests"]) == 1
    assert pulse.described(AT + 10 * BUCKETS * BUCKET_S)["median_ttft_s"] is None


def test_backends_that_are_gone_are_forgotten_and_there_are_never_too_many(finished: Callable[..., Done]) -> None:
    pulse = Pulse()
    for number in range(BACKENDS + 10):
        pulse.note(finished(backend=f"gpu-{number}"))
    pulse.note(finished(backend=None))
    assert repr(pulse) == f"<Pulse 1 buckets, {BACKENDS} backends>"
    pulse.keep({"gpu-20": 1, "gpu-21": 1})
    assert (pulse.of("gpu-20"), pulse.of("gpu-22")) == ([0.3], [])
