"""How quickly replies began of late, for the curves of the status page: the last minutes, and each backend's last ones.

# ops: note · goal: a division and two appends per ended request
# plan: buckets of ten seconds by number, each with a few samples; per backend a window of its last first tokens
# warning: buckets go by the wall clock, which may jump: what is too old for the newest begins anew

Forbidden here: more memory than `BACKENDS` windows and `BUCKETS` buckets. Nothing decides by it.
"""

from collections import deque
from collections.abc import Container
from statistics import median
from typing import Any, Final

import msgspec

from pharos.proxy.done import Done

BUCKET_S: Final = 10
"""Seconds in one bucket."""
BUCKETS: Final = 60
"""Buckets kept: ten minutes."""
SAMPLES: Final = 32
"""First tokens kept of one bucket: enough for a median to draw."""
WINDOW: Final = 40
"""First tokens kept of one backend."""
BACKENDS: Final = 500
FAILED_FROM: Final = 500
"""Statuses from which on a request failed by no fault of its client."""


class Bucket(msgspec.Struct):
    """Ten seconds."""

    requests: int = 0
    failed: int = 0
    ttft_s: list[float] = []


class Pulse:
    """First tokens of the last minutes."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._newest = 0
        self._backends: dict[str, deque[float]] = {}

    def __repr__(self) -> str:
        return f"<Pulse {len(self._buckets)} buckets, {len(self._backends)} backends>"

    def note(self, done: Done) -> None:
        """Take in a request that ended."""
        number = int((done.at_wall + done.duration_s) // BUCKET_S)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._open(number)
        bucket.requests += 1
        bucket.failed += done.status >= FAILED_FROM
        ttft_s = done.ttft_s
        if ttft_s is None:
            return
        if len(bucket.ttft_s) < SAMPLES:
            bucket.ttft_s.append(ttft_s)
        if done.backend is not None:
            window = self._backends.get(done.backend)
            if window is None:
                window = self._backends[done.backend] = deque(maxlen=WINDOW)
                if len(self._backends) > BACKENDS:
                    del self._backends[next(iter(self._backends))]
            window.append(ttft_s)

    def _open(self, number: int) -> Bucket:
        if not self._newest - BUCKETS < number < self._newest + BUCKETS:
            self._buckets.clear()  # a long silence, or a clock that was set
            self._newest = number
        self._newest = max(self._newest, number)
        for old in [one for one in self._buckets if one <= self._newest - BUCKETS]:
            del self._buckets[old]
        bucket = self._buckets[number] = Bucket()
        return bucket

    def keep(self, names: Container[str]) -> None:
        """Forget all backends but these."""
        for name in [name for name in self._backends if name not in names]:
            del self._backends[name]

    def described(self, wall_s: float) -> dict[str, Any]:
        """The last ten minutes, oldest first. `ttft_s` is a median of each ten seconds; `None`: none came."""
        last = int(wall_s // BUCKET_S)
        buckets = [self._buckets.get(number) for number in range(last - BUCKETS + 1, last + 1)]
        samples = [one for bucket in buckets if bucket is not None for one in bucket.ttft_s]
        return {
            "bucket_s": BUCKET_S,
            "requests": [bucket.requests if bucket is not None else 0 for bucket in buckets],
            "failed": [bucket.failed if bucket is not None else 0 for bucket in buckets],
            "ttft_s": [median(bucket.ttft_s) if bucket is not None and bucket.ttft_s else None for bucket in buckets],
            "median_ttft_s": median(samples) if samples else None,
        }

    def of(self, backend: str) -> list[float]:
        """A backend's last first tokens, oldest first."""
        return list(self._backends.get(backend, ()))
