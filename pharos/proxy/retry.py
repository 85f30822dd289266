"""When a request may be sent elsewhere, and how often in all. Pure: no I/O, time is an argument."""

from collections import deque

WINDOW_S = 60.0
BUSY = frozenset({409, 429, 503})
"""Answers that say "not now"; another engine may be idle."""
LACKS_ROUTE = frozenset({404, 405})
"""Answers of an engine without the route or the model; 501 is among the 5xx."""
FIELD_REFUSED = frozenset({400, 422})
"""Answers that may be about the field that Pharos added."""
LONGEST_PASS_OVER_S = 60.0
FAILURES_IN_A_ROW = 3
"""Errors without a good answer between, from which on a target is passed over: 1 s, then twice as long each time."""
SERVER_ERRORS = range(500, 600)


def is_retriable(status: int) -> bool:
    """Whether another engine may answer what this one refused. Never for the client's own mistakes."""
    return status in SERVER_ERRORS or status in BUSY or status in LACKS_ROUTE


def names_usage_field(body: bytes) -> bool:
    """Whether a refusal speaks of the usage option that Pharos added."""
    return b"include_usage" in body or b"stream_options" in body


def retry_after_s(value: bytes | None) -> float | None:
    """Seconds of a `Retry-After` header, bounded; `None` for a date, nonsense or no header."""
    if value is None or not value.isdigit() or len(value) > len("999999"):
        return None
    return min(float(value), LONGEST_PASS_OVER_S)


class RetryBudget:
    """Retries as a share of the requests of the last minute, so that retries cannot multiply an overload."""

    def __init__(self, ratio: float, floor: int = 10) -> None:
        self._ratio = ratio
        self._floor = floor
        self._requests: deque[list[float]] = deque()
        self._retries: deque[float] = deque()

    def __repr__(self) -> str:
        return f"<RetryBudget {len(self._retries)} of {self._allowed()} used>"

    def seen(self, now: float) -> None:
        """One request came in."""
        second = now // 1.0
        if self._requests and self._requests[-1][0] == second:
            self._requests[-1][1] += 1
        else:
            self._requests.append([second, 1])
            self._forget(now)

    def take(self, now: float) -> bool:
        """Use one retry if there is one left."""
        self._forget(now)
        if len(self._retries) >= self._allowed():
            return False
        self._retries.append(now)
        return True

    def _allowed(self) -> int:
        return max(self._floor, int(self._ratio * sum(count for _, count in self._requests)))

    def _forget(self, now: float) -> None:
        while self._requests and self._requests[0][0] < now - WINDOW_S:
            self._requests.popleft()
        while self._retries and self._retries[0] < now - WINDOW_S:
            self._retries.popleft()


class PassedOver:
    """Targets that are left alone for a while as long as others serve the model, by target id.

    They asked for it (`Retry-After`), or they failed several times in a row: a target that fails fast looks idle, and
    would draw most requests.
    """

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._failures: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<PassedOver {sorted(self._until)}>"

    def note(self, target_id: int, until: float) -> None:
        """Leave this target alone until then."""
        self._until[target_id] = until

    def failed(self, target_id: int, now: float) -> None:
        """It answered with an error of its own. One that refuses only some requests answers others well in between."""
        count = self._failures[target_id] = self._failures.get(target_id, 0) + 1
        if count >= FAILURES_IN_A_ROW:
            self.note(target_id, now + min(2.0 ** (count - FAILURES_IN_A_ROW), LONGEST_PASS_OVER_S))

    def served(self, target_id: int) -> None:
        """It answered well."""
        if self._failures:
            self._failures.pop(target_id, None)

    def now(self, now: float) -> frozenset[int]:
        """The targets to leave alone at `now`."""
        if not self._until:
            return frozenset()
        self._until = {target: until for target, until in self._until.items() if until > now}
        return frozenset(self._until)
