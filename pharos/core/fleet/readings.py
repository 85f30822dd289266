"""What is known of one backend: of every signal and model the reading that counts, and those of lesser trust behind it.

Forbidden here: judging values, and time of its own.
"""

from collections.abc import Callable, Mapping

from pharos.core.signals import Key, Reading


class Readings:
    """Readings by signal and model. Several probes may tell one thing; the more trusted fresh one counts."""

    __slots__ = ("_behind", "best")

    def __init__(self) -> None:
        self.best: dict[Key, Reading] = {}
        """The readings that count, stale ones included."""
        self._behind: dict[Key, dict[str, Reading]] = {}
        """Those of other probes, by probe: they count when the best one is taken back."""

    def take(self, readings: Mapping[Key, Reading], now: float) -> None:
        """Take new readings in; `now` in seconds on the clock of their times."""
        for key, new in readings.items():
            old = self.best.get(key)
            if old is None or old.probe == new.probe:
                self._set(key, new)
            elif new.rank < old.rank or (new.rank == old.rank and new.at >= old.at):
                self._behind.setdefault(key, {})[old.probe] = old
                self._set(key, new)
            elif old.is_fresh(now):
                self._behind.setdefault(key, {})[new.probe] = new
            else:
                self._set(key, new)

    def forget(self, is_gone: Callable[[Key, Reading], bool]) -> None:
        """Take readings back; what another probe told of the same thing counts from now on."""
        for key, others in tuple(self._behind.items()):
            kept = {probe: one for probe, one in others.items() if not is_gone(key, one)}
            if kept:
                self._behind[key] = kept
            else:
                del self._behind[key]
        for key in [key for key, one in self.best.items() if is_gone(key, one)]:
            others = self._behind.get(key, {})
            if others:
                self._set(key, min(others.values(), key=lambda one: (one.rank, -one.at)))
            else:
                del self.best[key]

    def clear(self) -> None:
        """Forget all: another process answers."""
        self.best.clear()
        self._behind.clear()

    def _set(self, key: Key, reading: Reading) -> None:
        self.best[key] = reading
        others = self._behind.get(key)
        if others is not None and others.pop(reading.probe, None) is not None and not others:
            del self._behind[key]

    def __repr__(self) -> str:
        return f"<Readings {len(self.best)}, {len(self._behind)} with others behind>"
