"""How many requests one engine gets from us at most. Only arithmetic: time is an argument, and nothing waits here."""


class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst` saved up. One owner, one engine."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def available(self, now: float) -> int:
        """Whole tokens that can be taken at `now`; 0 while a debt is paid off."""
        self._fill(now)
        return max(0, int(self._tokens + 1e-9))  # a second at rate 2 must give 2, whatever the floats say

    def take(self, count: int, now: float) -> None:
        """Take tokens for requests that are sent anyway; more than there are leaves a debt."""
        self._fill(now)
        self._tokens -= count

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + self._rate * max(0.0, now - self._at))
        self._at = max(self._at, now)

    def __repr__(self) -> str:
        return f"<Bucket {self._tokens:.1f} of {self._burst:g}, {self._rate:g}/s>"
