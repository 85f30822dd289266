"""How good the estimates are, for `/metrics` and `/status`: predicted against actual, per target, and who goes without.

Forbidden here: judging (`core/fleet/calibration.py` does), and taking an unknown value for 1 or 0.
"""

from collections.abc import Iterator
from typing import Any

from pharos.core.fleet import Fleet, Target
from pharos.obs.exposition import OTHER, Gauge, Labels
from pharos.obs.moment import Moment


def described(fleet: Fleet, target: Target) -> dict[str, Any]:
    """Of one target: ratios of predicted to actual (1 is right, 2 twice too high), how far starts spread, how many."""
    calibration, model, backend = fleet.calibration, target.model, target.backend.name
    return {
        "ratio": calibration.ratio(model, backend),
        "spread": calibration.spread(model, backend),
        "seen": calibration.seen(model, backend),
        "wait_ratio": calibration.wait_ratio(model, backend),
        "fallen": model in calibration.fallen,
    }


class EstimateGauges:
    """What `/metrics` shows of them. Models beyond the bound are left out: ratios of different ones have no sum."""

    def __init__(self) -> None:
        labels = ("backend", "model")
        self._starts = Gauge(
            "pharos_ttft_prediction_ratio",
            "Predicted load and prefill over dispatch to first token, the median of the last requests; 1 is right",
            labels,
        )
        self._spread = Gauge(
            "pharos_ttft_prediction_spread",
            "Median of how far that ratio is off, either way, as a logarithm; 0 is right",
            labels,
        )
        self._waits = Gauge(
            "pharos_wait_prediction_ratio",
            "Predicted time in the queue over the time that it took, the median of the last that waited",
            labels,
        )
        self._fallen = Gauge(
            "pharos_model_fallen_back",
            "1 while least-load chooses for the model because its estimates mislead",
            ("model",),
        )

        who = ("key", "model")
        self._position = Gauge(
            "pharos_prompt_changes_at_bytes",
            "Where bodies of a key change that are alike but for that, so that no cache ever holds their prompts",
            who,
        )
        self._size = Gauge("pharos_prompt_changes_bytes", "How many bytes change there, at most", who)

    @property
    def families(self) -> tuple[Gauge, ...]:
        """All of them."""
        return self._starts, self._spread, self._waits, self._fallen, self._position, self._size

    def pieces(self, moment: Moment) -> Iterator[bytes]:
        """All of them as text."""
        fleet, models, keys = moment.fleet, moment.models, moment.keys
        changes = {(keys.admit(one.key), models.admit(one.model)): one for one in moment.busted}
        starts: dict[Labels, float] = {}
        spread: dict[Labels, float] = {}
        waits: dict[Labels, float] = {}
        fallen: dict[Labels, float] = {}
        for backend in list(fleet.backends.values()):
            for target in backend.targets.values():
                model = models.admit(target.model) if target.listed else OTHER
                if model == OTHER:
                    continue
                said = described(fleet, target)
                fallen[(model,)] = said["fallen"]
                for values, value in ((starts, said["ratio"]), (spread, said["spread"]), (waits, said["wait_ratio"])):
                    if value is not None:
                        values[backend.name, model] = value
            yield b""
        yield self._starts.piece(starts)
        yield self._spread.piece(spread)
        yield self._waits.piece(waits)
        yield self._fallen.piece(fallen)
        yield self._position.piece({who: one.position for who, one in changes.items()})
        yield self._size.piece({who: one.size for who, one in changes.items()})
