"""The operator's own probes: what the configuration says of one, and the probe that this declares.

Forbidden here: anything that a library probe cannot do. Both are made by the same constructors.
"""

from collections.abc import Sequence

import msgspec

from pharos.core.engine.asking import effects_of, strongest
from pharos.core.engine.logline import log_line
from pharos.core.engine.probe import Probe, SideEffect
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import Recipe
from pharos.core.signals import Signal


class OwnProbeSpec(msgspec.Struct, frozen=True):
    """One signal read the operator's way: by `metric` from a Prometheus text, or by `pattern` from a log."""

    name: str
    """Unlike that of any other probe of the backend."""
    signal: Signal
    metric: str | None = None
    """Name of the series; `None`: it is read from the log."""
    path: str = "/metrics"
    """Where on the engine the Prometheus text is."""
    per_model: str | None = None
    """Label that names the model; `None`: the number speaks of the whole engine."""
    pattern: str | None = None
    """Regular expression for a line; `None`: it is read from a Prometheus text."""
    value: str | None = None
    """What a matching line says; `None`: the pattern's group `value` holds it."""


def path_fault(path: str) -> str | None:
    """Say why a path may not be asked; `None` when it may.

    One path has one spelling, so that what the engine is known to do when it is asked cannot be gone around.
    """
    if any(mark in path for mark in "#%;\\"):
        return "has a character that may stand for another one: write it without # % ; and \\"
    if any(part in {"", ".", ".."} for part in path.partition("?")[0].removesuffix("/").split("/")[1:]):
        return "is not in its plain form: leave out // and parts that are dots"
    return None


def own_probe(spec: OwnProbeSpec) -> Probe:
    """Make the probe. Raises `ValueError`, with a sentence, for a declaration that cannot be right."""
    if (spec.metric is None) == (spec.pattern is None):
        raise ValueError(f"{spec.name}: either a metric or a pattern")
    if spec.pattern is not None:
        return log_line(spec.name, spec.signal, spec.pattern, spec.value, own=True)
    assert spec.metric is not None  # noqa: S101 - one of both is there
    fault = path_fault(spec.path)
    if fault is not None:
        raise ValueError(f"{spec.name}: the path {fault}")
    return prom(spec.name, spec.signal, spec.metric, path=spec.path, per_model=spec.per_model, own=True)


def own_probes(specs: tuple[OwnProbeSpec, ...]) -> tuple[Probe, ...]:
    """Make the probes of a backend, in the order of the list: in a plan they go before the recipe's."""
    return tuple(own_probe(spec) for spec in specs)


def as_minded(own: Sequence[Probe], recipe: Recipe) -> tuple[Probe, ...]:
    """Give own probes the side effect that asking their paths has on this kind of engine, read by its recipe or not."""
    read = effects_of(recipe.probes)
    # A path that the recipe asks with a query does something else with another one.
    known = [(_plain(path), SideEffect.LOADS if "?" in path else effect) for path, effect in read.items()]
    known += [(_plain(path), effect) for path, effect in recipe.minds.items()]
    made = []
    for probe in own:
        asked = _plain(probe.feed.path)
        effects = [effect for path, effect in known if asked == path or asked.startswith(f"{path}/")]
        effect = strongest((probe.feed.side_effect, *effects))
        made.append(msgspec.structs.replace(probe, feed=msgspec.structs.replace(probe.feed, side_effect=effect)))
    return tuple(made)


def _plain(path: str) -> str:
    """A path without its query; some engines leave case and a last slash aside."""
    return path.partition("?")[0].lower().removesuffix("/")
