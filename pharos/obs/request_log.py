"""The log line of one request, at debug. Forbidden here: anything of what was said, and keys themselves."""

from pharos.proxy.done import Done


def request_fields(done: Done) -> dict[str, object]:
    """What is logged of an ended request: names, times, counts and decisions, nothing of what was said."""
    usage = done.usage
    return {
        "request_id": done.request_id,
        "route": done.path,
        "key": done.key,
        "model": done.model,
        "target": done.target,
        "status": done.status,
        "reason": done.reason or None,
        "stages": " ".join(f"{stage}={outcome}" for stage, outcome in done.stages),
        "stream": done.streamed,
        "predicted_s": done.predicted_s,
        "ttft_s": done.ttft_s,
        "first_byte_s": done.first_byte_s,
        "overhead_s": done.overhead_s,
        "queue_wait_s": done.queue_wait_s,
        "duration_s": done.duration_s,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "cached_tokens": None if usage is None else usage.cached_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
    }
