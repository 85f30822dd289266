"""How good the estimates are: what was predicted against what came, per target, and whose estimates mislead.

# ops: note, note_wait, ratio, fallen · goal: per finished request one logarithm and one median of a small window
# plan: per target a bounded window of log ratios, to be shown; per model one of its last requests, to be judged by
# warning: the fallback must not feed on itself: predictions are made and judged while least-load chooses, too

Forbidden here: choosing. The ledger asks `fallen`; who wants to be told gets an event once per change.
"""

import math
from collections import deque
from statistics import median

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet.events import Event, short

WINDOW = int(ASSUMPTIONS["calibration_window"].value)
LEAST = int(ASSUMPTIONS["calibration_least"].value)
FLOOR_S = ASSUMPTIONS["calibration_floor_s"].value
FALLS_AT = ASSUMPTIONS["calibration_falls_at"].value
RECOVERS_AT = ASSUMPTIONS["calibration_recovers_at"].value
SMALL_S = ASSUMPTIONS["calibration_small_s"].value
_FALLS_AT, _RECOVERS_AT = math.log(FALLS_AT), math.log(RECOVERS_AT)

_Windows = dict[str, dict[str, deque[float]]]
"""Model -> backend -> log of predicted/actual of the last requests."""


class Calibration:
    """Predictions held against the truth."""

    def __init__(self) -> None:
        self.steers = True
        """Whether estimates choose at all; false where least-load is configured, so that nobody can fall back to it."""
        self.fallen: set[str] = set()
        """Models for which least-load chooses until their estimates are good again."""
        self._errors: dict[str, deque[float]] = {}
        """By model, how far off the last predictions were, either way, as logarithms; 0 for by a few milliseconds."""
        self._starts: _Windows = {}
        self._waits: _Windows = {}

    def __repr__(self) -> str:
        return f"<Calibration {sum(map(len, self._starts.values()))} targets, {len(self.fallen)} models fallen>"

    def note(
        self, model: str, backend: str, predicted_s: float, actual_s: float, *, judges: bool = True
    ) -> list[Event]:
        """Hold predicted load and prefill against dispatch to first token. The event says that a model changed sides.

        Not for requests whose times tell nothing of a target, such as one that met an unknown residency. Without
        `judges` it is shown only.
        """
        off = _add(self._starts, model, backend, predicted_s, actual_s)
        if not judges:
            return []
        errors = self._errors.get(model)
        if errors is None:
            errors = self._errors[model] = deque(maxlen=WINDOW)
        # What nobody would notice misleads nobody: 5 ms that turn out to be 15 are no reason to choose otherwise.
        errors.append(abs(off) if abs(predicted_s - actual_s) > SMALL_S else 0.0)
        if len(errors) < LEAST or not self.steers:
            return []
        middle = median(errors)
        error = math.exp(middle)
        if model not in self.fallen and middle >= _FALLS_AT:
            self.fallen.add(model)
            text = (
                f"estimates for {short(model)} are off by {error:.1f} times (median of its last requests): least-load "
                f"chooses for it until that is below {RECOVERS_AT:g}"
            )
            return [Event("calibration", "fell_back", "", "warning", text)]
        if model in self.fallen and middle < _RECOVERS_AT:
            self.fallen.discard(model)
            text = f"estimates for {short(model)} are off by {error:.1f} times only: they choose for it again"
            return [Event("calibration", "recovered", "", "info", text)]
        return []

    def note_wait(self, model: str, backend: str, predicted_s: float, actual_s: float) -> None:
        """Hold the wait that was predicted when a request came against the one it had."""
        _add(self._waits, model, backend, predicted_s, actual_s)

    def error(self, model: str) -> float | None:
        """How many times too high or too low the model's estimates are, the median; `None` while too few are known."""
        errors = self._errors.get(model, ())
        return math.exp(median(errors)) if len(errors) >= LEAST else None

    def ratio(self, model: str, backend: str) -> float | None:
        """Predicted / actual of a target's starts, the median; `None`: none was seen. 1 is right, 2 twice too high."""
        return _ratio(self._starts, model, backend)

    def wait_ratio(self, model: str, backend: str) -> float | None:
        """The same of the waits."""
        return _ratio(self._waits, model, backend)

    def spread(self, model: str, backend: str) -> float | None:
        """Median of |log(predicted/actual)| of a target's starts; `None`: none was seen."""
        window = self._starts.get(model, {}).get(backend)
        return median([abs(one) for one in window]) if window else None

    def seen(self, model: str, backend: str) -> int:
        """How many of a target's starts are in its window."""
        return len(self._starts.get(model, {}).get(backend, ()))

    @property
    def windows(self) -> tuple[_Windows, _Windows]:
        """Of starts and of waits; changed from outside by `inherit` only."""
        return self._starts, self._waits

    @property
    def errors(self) -> dict[str, deque[float]]:
        """By model; changed from outside by `inherit` only."""
        return self._errors

    def judge(self, model: str) -> None:
        """See from its errors alone whether a model has fallen: for what was learned elsewhere."""
        errors = self._errors.get(model, ())
        if self.steers and len(errors) >= LEAST and median(errors) >= _FALLS_AT:
            self.fallen.add(model)

    def keep(self, targets: set[tuple[str, str]]) -> None:
        """Forget all but these, by model and backend."""
        for windows in (self._starts, self._waits):
            for model in list(windows):
                kept = {name: window for name, window in windows[model].items() if (model, name) in targets}
                if kept:
                    windows[model] = kept
                else:
                    del windows[model]
        models = {model for model, _ in targets}
        self._errors = {model: errors for model, errors in self._errors.items() if model in models}
        self.fallen &= models


def _add(windows: _Windows, model: str, backend: str, predicted_s: float, actual_s: float) -> float:
    by_backend = windows.setdefault(model, {})
    window = by_backend.get(backend)
    if window is None:
        window = by_backend[backend] = deque(maxlen=WINDOW)
    off = math.log(max(predicted_s, FLOOR_S) / max(actual_s, FLOOR_S))
    window.append(off)
    return off


def _ratio(windows: _Windows, model: str, backend: str) -> float | None:
    window = windows.get(model, {}).get(backend)
    return math.exp(median(window)) if window else None
