"""What other instances and earlier runs learned of speeds, lengths and estimates: used where nothing was learned here.

# ops: export, take, retry · goal: a restarted instance estimates as well as before; what it learns itself counts more
# plan: of each thing the newest word of anybody is kept; it is put to use until a first sample of our own changes it
# warning: taking is idempotent and free of order: of two words the later one counts, of two of one time the greater

Forbidden here: mixing what was learned here with what was learned elsewhere.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from pharos.core.fleet.backend import Target
from pharos.core.fleet.calibration import WINDOW
from pharos.core.fleet.registry import Fleet
from pharos.core.fleet.stats import Ewma, Stats

MOST: Final = 50_000
"""Things of which a word is kept; more are left out."""
LONGEST: Final = 1024
"""Characters of a name."""

Value = float | list[float]
Key = tuple[str | int | None, ...]
Thing = tuple[str, Key]
"""A kind and a key: `speed` of backend, model and field; `bytes` of a model; `length` of key, model, route and class of
limit; `starts` and `waits` of model and backend; `errors` of a model."""
SPEEDS: Final = tuple(field for field in Stats.__struct_fields__ if isinstance(getattr(Stats(), field), Ewma))


class Inheritance:
    """Words of others, beside what the fleet knows itself."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._told: dict[Thing, tuple[float, Value]] = {}
        self._used: dict[Thing, Value] = {}
        """What stands in the fleet because others said so."""
        self._waiting: set[Thing] = set()
        """What is about targets that are not known here, yet."""

    def __repr__(self) -> str:
        return f"<Inheritance {len(self._told)} told, {len(self._used)} used>"

    def export(self, now: float) -> Iterator[list[Any]]:
        """All that is known, each as kind, key, time and value. `now`: seconds on a clock that instances share.

        What others said keeps their time; what was learned here is as of now.
        """
        for kind, key, value in [*self._own()]:
            told = self._told.get((kind, key))
            at = told[0] if told is not None and self._used.get((kind, key)) == value else now
            yield [kind, list(key), at, value]

    def take(self, kind: str, key: Key, at: float, value: Value, now: float) -> bool:
        """Keep a word if it is newer than what was said before, and use it if it can be used; whether it was newer.

        A time that lies ahead counts as now: no clock that is off may be right for ever.
        """
        at = min(at, now)
        if not _is_sound(kind, key, at, value):
            return False
        thing = kind, key
        before = self._told.get(thing)
        if before is not None and (at, value) <= before:
            return False
        if before is None and len(self._told) >= MOST:
            return False
        self._told[thing] = at, value
        self._use(thing, value)
        return True

    def retry(self) -> None:
        """Use what was about a target that was not known: it may have come."""
        for thing in [*self._waiting]:
            self._use(thing, self._told[thing][1])

    # --- inside

    def _use(self, thing: Thing, value: Value) -> None:
        """Put a word to use, unless the fleet has learned better itself."""
        self._waiting.discard(thing)
        current = self._read(thing)
        if current is not None and current != self._used.get(thing):
            return
        if self._write(thing, value):
            self._used[thing] = value
        else:
            self._waiting.add(thing)

    def _own(self) -> Iterator[tuple[str, Key, Value]]:
        fleet = self._fleet
        for backend in fleet.backends.values():
            for target in backend.targets.values():
                for field in SPEEDS:
                    speed = getattr(target.stats, field).value
                    if speed is not None:
                        yield "speed", (backend.name, target.model, field), speed
        ratios = [(model, average.value) for model, average in fleet.tokens.learned.items()]
        yield from (("bytes", (model,), ratio) for model, ratio in ratios if ratio is not None)
        for kind, windows in zip(("starts", "waits"), fleet.calibration.windows, strict=True):
            for model, by_backend in windows.items():
                for name, window in by_backend.items():
                    yield kind, (model, name), list(window)
        for model, errors in fleet.calibration.errors.items():
            yield "errors", (model,), list(errors)
        for which, length in reversed(fleet.lengths.averages.items()):
            yield "length", which, length

    def _target(self, name: object, model: object) -> Target | None:
        backend = self._fleet.backends.get(str(name))
        return backend.targets.get(str(model)) if backend is not None else None

    def _read(self, thing: Thing) -> Value | None:
        """What the fleet has there now; `None`: nothing."""
        kind, key = thing
        fleet = self._fleet
        if kind == "speed":
            target = self._target(key[0], key[1])
            return getattr(target.stats, str(key[2])).value if target is not None else None
        if kind == "bytes":
            average = fleet.tokens.learned.get(str(key[0]))
            return average.value if average is not None else None
        if kind == "length":
            return fleet.lengths.averages.get(_length_key(key))
        window = fleet.calibration.errors.get(str(key[0])) if kind == "errors" else self._window(kind, key)
        return list(window) if window is not None else None

    def _window(self, kind: str, key: Key) -> deque[float] | None:
        windows = self._fleet.calibration.windows[kind == "waits"]
        return windows.get(str(key[0]), {}).get(str(key[1]))

    def _write(self, thing: Thing, value: Value) -> bool:
        """Set it; whether what it is about is there."""
        kind, key = thing
        fleet = self._fleet
        if isinstance(value, list):
            window = deque(value, maxlen=WINDOW)
            if kind == "errors":
                fleet.calibration.errors[str(key[0])] = window
                fleet.calibration.judge(str(key[0]))
            else:
                fleet.calibration.windows[kind == "waits"].setdefault(str(key[0]), {})[str(key[1])] = window
        elif kind == "speed":
            target = self._target(key[0], key[1])
            if target is None:
                return False
            getattr(target.stats, str(key[2])).value = value
            target.backend.stamp += 1
        elif kind == "bytes":
            fleet.tokens.learned[str(key[0])] = Ewma(value)
        else:
            averages = fleet.lengths.averages
            averages[_length_key(key)] = value
            averages.move_to_end(_length_key(key), last=False)  # what was used here goes last
        return True


def _length_key(key: Key) -> tuple[str | None, str, str, int]:
    whose, model, route, bits = key
    return None if whose is None else str(whose), str(model), str(route), int(bits if bits is not None else 0)


def _is_sound(kind: str, key: Key, at: float, value: Value) -> bool:
    """Whether it can have been said by an instance."""
    if not math.isfinite(at) or any(isinstance(part, str) and len(part) > LONGEST for part in key):
        return False
    if isinstance(value, list):
        is_window = 0 < len(value) <= WINDOW and all(isinstance(one, float) and math.isfinite(one) for one in value)
        parts = {"starts": 2, "waits": 2, "errors": 1}.get(kind)
        return is_window and len(key) == parts and all(isinstance(part, str) for part in key)
    if not (isinstance(value, float) and math.isfinite(value) and value >= 0):
        return False
    shapes = {"length": _LENGTH, "speed": _SPEED, "bytes": _BYTES}
    shape = shapes.get(kind)
    if shape is None or len(shape) != len(key):
        return False
    is_known = kind != "speed" or key[2] in SPEEDS
    return is_known and all(isinstance(part, types) for part, types in zip(key, shape, strict=True))


_LENGTH: Final = ((str, type(None)), (str,), (str,), (int,))
_SPEED: Final = ((str,), (str,), (str,))
_BYTES: Final = ((str,),)
