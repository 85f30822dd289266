"""Which routes a target was found not to serve, for a while. Forbidden here: telling that from a refusal."""

from pharos.core.assumptions import ASSUMPTIONS

LACKING_FOR_S = ASSUMPTIONS["lacking_for_s"].value


class Lacking:
    """Of one target, as long as its engine's process is the same."""

    __slots__ = ("_doubted", "_process", "_until")

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """Routes that it lacks, and until when that is believed."""
        self._doubted: dict[str, int] = {}
        """Routes that it refused once in words that may be about the request, and what tells that from others."""
        self._process: object = None

    def __repr__(self) -> str:
        return f"<Lacking {sorted(self._until)}>"

    def note(self, route: str, process: object, now: float, request: int | None) -> bool:
        """It refused a route; see `Target.note_lacking`. Whether that it lacks the route is new."""
        if process != self._process:
            self._until, self._doubted, self._process = {}, {}, process
        if request is not None and self._doubted.setdefault(route, request) == request:
            return False
        self._doubted.pop(route, None)
        is_new = route not in self._until
        self._until[route] = now + LACKING_FOR_S
        return is_new

    def has(self, route: str, process: object, now: float) -> bool:
        """Whether it is known to lack a route."""
        until = self._until.get(route)
        return until is not None and now < until and process == self._process
