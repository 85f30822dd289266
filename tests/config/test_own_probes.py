"""Own probes in the configuration: what makes one, and every way in which one can be wrong."""

import pytest

from pharos.config.load import backend_specs, parse
from pharos.config.problems import ConfigError
from pharos.core.engine.own import OwnProbeSpec
from pharos.core.engine.recipes import RECIPES
from pharos.core.signals import Signal

PROM = "prom: {metric: app_running}"
LINE = r"log: {match: 'load (?P<model>\S+)', value: loaded}"


def backends(*probes: str) -> str:
    return f"backends: [{{url: http://a, probes: [{', '.join(f'{{{probe}}}' for probe in probes)}]}}]"


def test_own_probes_reach_the_fleet_in_their_order() -> None:
    (spec,) = backend_specs(
        parse(
            backends(
                "name: mine, signal: running, prom: {metric: 'app:running', path: '/m?x=1', per_model: model}",
                r"name: log 1, signal: capacity, log: {match: 'slots=(?P<value>\d+)'}",
                f"name: log 2, signal: residency, {LINE}",
            ),
            {},
        )
    )
    assert spec.probes == (
        OwnProbeSpec("mine", Signal.RUNNING, metric="app:running", path="/m?x=1", per_model="model"),
        OwnProbeSpec("log 1", Signal.CAPACITY, pattern=r"slots=(?P<value>\d+)"),
        OwnProbeSpec("log 2", Signal.RESIDENCY, pattern=r"load (?P<model>\S+)", value="loaded"),
    )
    assert hash(spec) == hash(spec)


def test_several_backends_may_share_a_probe() -> None:
    text = f"x-p: &p [{{name: mine, signal: running, {PROM}}}]\n"
    one, two = backend_specs(parse(text + "backends: [{url: http://a, probes: *p}, {url: http://b, probes: *p}]", {}))
    assert one.probes == two.probes != ()


LIBRARY = next(probe.name for recipe in RECIPES.values() for probe in recipe.probes)


@pytest.mark.parametrize(
    ("probe", "path", "told"),
    [
        (f"signal: running, {PROM}", ".name", "is missing"),
        (f"name: '', signal: running, {PROM}", ".name", "1 to 128 characters"),
        (f"name: {LIBRARY}, signal: running, {PROM}", ".name", f"{LIBRARY} is the name of a built-in probe"),
        (f"name: a, {PROM}", ".signal", "is missing"),
        (f"name: a, signal: runing, {PROM}", ".signal", "no such signal; did you mean running?"),
        (f"name: a, signal: zzz, {PROM}", ".signal", "no such signal; there are cached_tokens, capacity, "),
        (f"name: a, signal: residency, {PROM}", ".signal", "is no number, as a series is"),
        (f"name: a, signal: models, {LINE}", ".signal", "cannot be read from a line"),
        ("name: a, signal: running", "", "names no source: write prom or log"),
        (f"name: a, signal: running, {PROM}, {LINE}", "", "has prom and log: keep one"),
        ("name: a, signal: running, prom: {metric: 'a{b=\"c\"}'}", ".prom.metric", "write it without labels"),
        ("name: a, signal: running, prom: {metric: a, path: metrics}", ".prom.path", "from the first slash on"),
        ("name: a, signal: running, prom: {metric: a, path: //a}", ".prom.path", "leave out //"),
        ("name: a, signal: running, prom: {metric: a, path: /a b}", ".prom.path", "from the first slash on"),
        ("name: a, signal: running, prom: {metric: a, per_model: a-b}", ".prom.per_model", "is no name of a label"),
        ("name: a, signal: running, log: {match: '('}", ".log.match", "is no regular expression: missing )"),
        ("name: a, signal: running, log: {match: 'a{99999999999}'}", ".log.match", "is no regular expression"),
        ("name: a, signal: running, log: {match: '(a+)+(?P<value>1)'}", ".log.match", "has a repeat inside a repeat"),
        ("name: a, signal: running, log: {match: a}", ".log.match", "has no group named value"),
        ("name: a, signal: running, log: {match: '(?P<value>a)', value: 1}", ".log.value", "keep one of both"),
        ("name: a, signal: residency, log: {match: a, value: lodaed}", ".log.value", "'lodaed' is no residency"),
        ("name: a, signal: running, log: {match: a, value: '-1'}", ".log.value", "'-1' cannot be running"),
        ("name: a, signal: capacity, log: {match: a, value: '0'}", ".log.value", "capacity 0 means"),
    ],
)
def test_an_own_probe_that_cannot_be_right_is_refused_at_its_place(probe: str, path: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(backends(probe), {})
    (found,) = caught.value.problems
    assert found.path == f"backends[0].probes[0]{path}"
    assert told in found.message
    assert found.where == "line 1"


def test_two_own_probes_of_a_backend_have_two_names() -> None:
    with pytest.raises(ConfigError, match=r"probes\[1\].name: a is the name of probes\[0\] too"):
        parse(backends(f"name: a, signal: running, {PROM}", f"name: a, signal: waiting, {PROM}"), {})


def test_all_that_is_wrong_with_a_probe_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(backends("name: a, signal: models, prom: {metric: 5.5, path: m, per_model: ' '}"), {})
    assert [one.path.rpartition("]")[2] for one in caught.value.problems] == [
        ".prom.metric", ".prom.path", ".prom.per_model", ".signal",
    ]  # fmt: skip
