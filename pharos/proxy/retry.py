"""When a request may be sent elsewhere, and how often in all. Pure: no I/O, time is an argument."""

from collections import deque

from pharos.core.engine import recipes
from pharos.core.fleet import Target

WINDOW_S = 60.0
BUSY = frozenset({409, 429, 503})
"""Answers that say "not now"; another engine may be idle."""
LACKS_ROUTE = frozenset({404, 405})
"""Answers of an engine without the route or the model; so is 501."""
NOT_IMPLEMENTED = 501
REFUSES_US = frozenset({401, 403, 407})
"""Answers about credentials. A client's key never gets to an engine: it is the engine that wants one of Pharos."""
NEVER_AS_IT_IS = LACKS_ROUTE | REFUSES_US | {NOT_IMPLEMENTED}
"""Answers that, read by a client, would speak of its model or its key."""
BAD_REQUEST = 400
FIELD_REFUSED = frozenset({400, 422})
"""Answers that may be about the field that Pharos added."""
LONGEST_PASS_OVER_S = 60.0
FAILURES_IN_A_ROW = 3
"""Errors without a good answer between, from which on a target is passed over: 1 s, then twice as long each time."""
TRIAL_EVERY_S = 1.0
"""How often a target that failed so often is tried when its time is over."""
MOST_DOUBLINGS = 10
SERVER_ERRORS = range(500, 600)


def is_retriable(status: int) -> bool:
    """Whether another engine may answer what this one refused. Never for the client's own mistakes."""
    return status in SERVER_ERRORS or status in BUSY or status in LACKS_ROUTE or status in REFUSES_US


def may_refuse_model(status: int, target: Target) -> bool:
    """Whether a status may be how this kind of engine says that it does not have the model."""
    plan = target.backend.plan
    return status == BAD_REQUEST and plan is not None and bool(recipes.by_kind(plan.kind).refuses_model)


def refuses_model(status: int, body: bytes, target: Target) -> bool:
    """Whether it says so: another engine may have it."""
    plan = target.backend.plan
    if plan is None or not may_refuse_model(status, target):
        return False
    return any(text in body for text in recipes.by_kind(plan.kind).refuses_model)


def is_about_route(status: int) -> bool:
    """Whether the refusal is about this route only: the engine may serve the others."""
    return status in LACKS_ROUTE or status == NOT_IMPLEMENTED


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
        self.ratio = ratio
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
        return max(self._floor, int(self.ratio * sum(count for _, count in self._requests)))

    def _forget(self, now: float) -> None:
        while self._requests and self._requests[0][0] < now - WINDOW_S:
            self._requests.popleft()
        while self._retries and self._retries[0] < now - WINDOW_S:
            self._retries.popleft()


class PassedOver:
    """Targets that are left alone for a while as long as others serve the model, by target id.

    They asked for it (`Retry-After`), or they failed several times in a row: a target that fails fast looks idle, and
    would draw most requests. When the while of such a one is over, one request a second tries it, until one succeeds.
    """

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._on_trial: set[int] = set()

    def __repr__(self) -> str:
        return f"<PassedOver {sorted(self._until)}>"

    def note(self, target_id: int, until: float) -> None:
        """Leave this target alone until then, or longer if that was said before."""
        self._until[target_id] = max(until, self._until.get(target_id, until))

    def failed(self, target_id: int, now: float) -> None:
        """It failed by itself. One that cannot take only some requests answers others well in between."""
        if self._until.get(target_id, now) > now and target_id not in self._on_trial:
            return  # sent before it was passed over
        self._on_trial.discard(target_id)
        count = self._failures[target_id] = self._failures.get(target_id, 0) + 1
        if count >= FAILURES_IN_A_ROW:
            pause = 2.0 ** min(count - FAILURES_IN_A_ROW, MOST_DOUBLINGS)
            self.note(target_id, now + min(pause, LONGEST_PASS_OVER_S))

    def served(self, target_id: int) -> None:
        """It answered well."""
        if self._failures and self._failures.pop(target_id, 0) >= FAILURES_IN_A_ROW:
            self._until.pop(target_id, None)
            self._on_trial.discard(target_id)

    def among(self, target_ids: frozenset[int], now: float, *, may_try: bool) -> frozenset[int]:
        """Which of these to leave alone at `now`.

        `may_try`: the request may be the one that tries a target whose while is over.
        """
        return frozenset(t for t in target_ids if t in self._until and self._is_avoided(t, now, may_try=may_try))

    def _is_avoided(self, target_id: int, now: float, *, may_try: bool) -> bool:
        if self._until[target_id] > now:
            return True
        if self._failures.get(target_id, 0) < FAILURES_IN_A_ROW:
            del self._until[target_id]
            return False
        if may_try:
            self._on_trial.add(target_id)
            self._until[target_id] = now + TRIAL_EVERY_S
        return not may_try

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._until)


class Standing:
    """How far targets can be relied on: in all, and per route, because an engine may lack one and serve the others."""

    def __init__(self) -> None:
        self._in_all = PassedOver()
        self._by_path: dict[str, PassedOver] = {}

    def __repr__(self) -> str:
        return f"<Standing {self._in_all} {self._by_path}>"

    def asked(self, target_id: int, until: float) -> None:
        """The engine asked to be left alone until then."""
        self._in_all.note(target_id, until)

    def failed(self, target_id: int, path: str, status: int, now: float) -> None:
        """It failed by itself, perhaps with this status (0: none)."""
        if is_about_route(status):
            self._by_path.setdefault(path, PassedOver()).failed(target_id, now)
        else:
            self._in_all.failed(target_id, now)

    def served(self, target_id: int, path: str) -> None:
        """It answered well on this path."""
        self._in_all.served(target_id)
        if path in self._by_path:
            self._by_path[path].served(target_id)

    def is_clear(self, path: str) -> bool:
        """Whether nobody is to be left alone: the common case, to be told fast."""
        return not self._in_all and not (self._by_path and self._by_path.get(path))

    def among(self, target_ids: frozenset[int], path: str, now: float, *, may_try: bool) -> frozenset[int]:
        """Which of these to leave alone at `now`, see `PassedOver.among`."""
        avoided = self._in_all.among(target_ids, now, may_try=may_try)
        if path in self._by_path:
            avoided |= self._by_path[path].among(target_ids - avoided, now, may_try=may_try)
        return avoided
