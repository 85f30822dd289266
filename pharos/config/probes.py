"""The operator's own probes: what can be wrong with one, and what the core makes a probe of.

Forbidden here: knowing what can be read from where. The core's constructors do; what they refuse is told at its place.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pharos.config.forms import short
from pharos.config.meant import meant
from pharos.config.problems import Problem
from pharos.config.schema import Backend, LogProbe, OwnProbe, PromProbe
from pharos.core.engine import recipes
from pharos.core.engine.logline import MAX_OWN_LINE, READABLE
from pharos.core.engine.own import OwnProbeSpec, own_probe, path_fault
from pharos.core.engine.patterns import TooMuchError
from pharos.core.engine.patterns import check as check_pattern
from pharos.core.engine.values import NUMBERS
from pharos.core.signals import Signal

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PATH = re.compile(r"/[!-~]*")


def specs(probes: Sequence[OwnProbe]) -> tuple[OwnProbeSpec, ...]:
    """Own probes that are right, as the fleet takes them."""
    return tuple(map(_spec, probes))


def check(backends: Sequence[Backend]) -> Iterator[Problem]:
    """Everything wrong with the own probes of all backends."""
    library = {probe.name for recipe in recipes.RECIPES.values() for probe in recipe.probes}
    for index, backend in enumerate(backends):
        first: dict[str, int] = {}
        for number, probe in enumerate(backend.probes):
            path = f"backends[{index}].probes[{number}]"
            if probe.name in library:
                yield Problem(f"{path}.name", f"{short(probe.name)} is the name of a built-in probe: choose another")
            if probe.name in first:
                yield Problem(f"{path}.name", f"{short(probe.name)} is the name of probes[{first[probe.name]}] too")
            first.setdefault(probe.name, number)
            yield from _check(path, probe)


def _check(path: str, probe: OwnProbe) -> Iterator[Problem]:
    if (probe.prom is None) == (probe.log is None):
        both = "has prom and log: keep one" if probe.prom is not None else "names no source: write prom or log"
        yield Problem(path, both)
        return
    found = [*(_prom(f"{path}.prom", probe.prom) if probe.prom is not None else ())]
    found += _log(f"{path}.log", probe.log) if probe.log is not None else ()
    wrong = _signal_fault(probe)
    if wrong is not None:
        found.append(Problem(f"{path}.signal", wrong))
    yield from found
    if not found:
        try:
            own_probe(_spec(probe))
        except ValueError as fault:  # what is left: a fixed value that the signal cannot have
            yield Problem(f"{path}.log.value", str(fault).removeprefix(f"{probe.name}: "))


def _signal_fault(probe: OwnProbe) -> str | None:
    readable = {signal.value for signal in (NUMBERS if probe.prom is not None else READABLE)}
    if probe.signal in readable:
        return None
    if probe.signal in [signal.value for signal in Signal]:
        return "is no number, as a series is" if probe.prom is not None else "cannot be read from a line"
    close = meant(probe.signal.lower(), readable)
    other = f"did you mean {close}?" if close is not None else f"there are {', '.join(sorted(readable))}"
    return f"no such signal; {other}"


def _prom(path: str, prom: PromProbe) -> Iterator[Problem]:
    if not _METRIC.fullmatch(prom.metric):
        yield Problem(f"{path}.metric", "is no name of a series: write it without labels, as in app:running")
    if not _PATH.fullmatch(prom.path):
        yield Problem(f"{path}.path", "is no path: write it from the first slash on, as in /metrics")
    elif (fault := path_fault(prom.path)) is not None:
        yield Problem(f"{path}.path", fault)
    if prom.per_model is not None and not _LABEL.fullmatch(prom.per_model):
        yield Problem(f"{path}.per_model", "is no name of a label, as in model_name")


def _log(path: str, log: LogProbe) -> Iterator[Problem]:
    try:
        groups = re.compile(log.match).groupindex
    except (re.error, OverflowError, RecursionError) as fault:
        yield Problem(f"{path}.match", f"is no regular expression: {fault}")
        return
    try:
        check_pattern(log.match, MAX_OWN_LINE)
    except TooMuchError as fault:
        yield Problem(f"{path}.match", str(fault))
        return
    if "value" in groups and log.value is not None:
        yield Problem(f"{path}.value", "the pattern has a group named value already: keep one of both")
    elif "value" not in groups and log.value is None:
        yield Problem(f"{path}.match", r"has no group named value, as in (?P<value>\d+): add it, or write `value`")


def _spec(probe: OwnProbe) -> OwnProbeSpec:
    prom, log = probe.prom, probe.log
    spec = OwnProbeSpec(name=probe.name, signal=Signal(probe.signal))
    if prom is not None:
        return replace(spec, metric=prom.metric, path=prom.path, per_model=prom.per_model)
    return spec if log is None else replace(spec, pattern=log.match, value=log.value)
