import msgspec
import pytest

from pharos.core.engine.own import OwnProbeSpec, as_minded, own_probe, own_probes
from pharos.core.engine.plan import next_paths, resolve
from pharos.core.engine.probe import FeedKind, Page, SideEffect
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency, Signal

SERIES = OwnProbeSpec("mine", Signal.RUNNING, metric="app_running", path="/stats", per_model="model")
LINE = OwnProbeSpec("cold", Signal.RESIDENCY, pattern=r"unload (?P<model>\S+)", value="cold")


def test_a_metric_makes_a_probe_of_a_prometheus_text() -> None:
    probe = own_probe(SERIES)
    assert (probe.name, probe.signal, probe.own) == ("mine", Signal.RUNNING, True)
    assert (probe.feed.kind, probe.feed.path) == (FeedKind.GET, "/stats")
    assert probe.parse(Page(200, body=b'app_running{model="a"} 3\n')) == {"a": 3}


def test_a_pattern_makes_a_probe_of_a_log() -> None:
    probe = own_probe(LINE)
    assert (probe.name, probe.signal, probe.own, probe.feed.kind) == ("cold", Signal.RESIDENCY, True, FeedKind.LOG)
    assert probe.parse(Page(200, body=b"unload qwen")) == {"qwen": Residency.COLD}


def test_own_probes_keep_the_order_of_the_list() -> None:
    assert [probe.name for probe in own_probes((LINE, SERIES))] == ["cold", "mine"]
    assert own_probes(()) == ()


@pytest.mark.parametrize(
    "spec",
    [
        OwnProbeSpec("neither", Signal.RUNNING),
        OwnProbeSpec("both", Signal.RUNNING, metric="m", pattern="p", value="1"),
        OwnProbeSpec("no number", Signal.MODELS, metric="m"),
        OwnProbeSpec("no pattern", Signal.RUNNING, pattern="(", value="1"),
        OwnProbeSpec("no value", Signal.RUNNING, pattern="p", value="many"),
    ],
    ids=lambda spec: spec.name,
)
def test_what_cannot_be_right_is_refused_with_its_name(spec: OwnProbeSpec) -> None:
    with pytest.raises(ValueError, match=f"^{spec.name}: "):
        own_probe(spec)


@pytest.mark.parametrize(
    "path", ["//metrics", "/metrics/../slots", "/./metrics", "/a//b", "/%6detrics", "/m;x", "/m#x"]
)
def test_a_path_that_may_be_another_path_in_disguise_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"^mine: the path "):
        own_probe(msgspec.structs.replace(SERIES, path=path))


@pytest.mark.parametrize(
    ("kind", "path", "effect"),
    [
        ("openai", "/metrics", SideEffect.NONE),
        ("openai", "/stats/?x=1", SideEffect.NONE),
        ("llamacpp", "/metrics", SideEffect.WAKES),
        ("llamacpp", "/metrics/", SideEffect.WAKES),
        ("llamacpp", "/Metrics?x", SideEffect.WAKES),
        ("llamacpp-router", "/metrics?model=X", SideEffect.LOADS),
        ("llama-swap", "/upstream/x/metrics", SideEffect.LOADS),
        ("trtllm", "/metrics", SideEffect.DRAINS),
        ("trtllm", "/prometheus/metrics", SideEffect.NONE),
    ],
)
def test_an_own_probe_does_to_an_engine_what_asking_its_path_does(kind: str, path: str, effect: SideEffect) -> None:
    own = own_probes((msgspec.structs.replace(SERIES, path=path), LINE))
    asked, followed = as_minded(own, by_kind(kind))
    assert asked.feed.side_effect is effect
    assert followed.feed == own[1].feed


def test_an_own_probe_that_would_drain_the_engine_is_never_asked() -> None:
    own = own_probes((msgspec.structs.replace(SERIES, path="/metrics"),))
    wanted = next_paths(by_kind("trtllm"), own, {})
    assert "/metrics" not in wanted
    made, _ = resolve(by_kind("trtllm"), own, {}, kind_source="config", logs=False, now=1.0)
    assert [one.detail for one in made.dropped if one.probe == "mine"] == ["a read drains"]
