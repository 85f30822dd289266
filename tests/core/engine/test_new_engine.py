"""A new kind of engine is one recipe module and one folder of captures: all that reads engines works with it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pharos.config import checks
from pharos.core.engine import plan, recipes
from pharos.core.engine.recipe import Recipe
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.obs import describe
from tests.core.engine.pages import NOW, fetched, values
from tests.core.engine.replay.worlds import Visit, World
from tests.fakes import captures

MODULE = '''"""An engine that nobody has written."""

from pharos.core.engine.jsonfeed import json_number, json_probe, member, model_names, of_type
from pharos.core.engine.probe import Feed, FeedKind
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import Fingerprint, Recipe, all_owned, confirm
from pharos.core.signals import BACKEND, Signal

FRAME = Feed(FeedKind.GET, "/abacus/frame")


def _version(document):
    return {BACKEND: of_type(member(document, "made_in"), str, "made_in")}


def _evidence(document):
    return f"was made in {of_type(member(document, 'made_in'), str, 'made_in')}"


def _judge(pages):
    return confirm(pages, FRAME.path, _evidence, claimed=all_owned(pages, "abacus"))


RECIPE = Recipe(
    kind="abacus",
    rank=350,
    probes=(
        json_probe("abacus-version", Signal.VERSION, FRAME, _version),
        json_probe("abacus-models", Signal.MODELS, Feed(FeedKind.GET, "/v1/models"), model_names),
        json_number("abacus-capacity", Signal.CAPACITY, FRAME, "rods"),
        prom("abacus-running", Signal.RUNNING, "abacus:beads_moving", path="/abacus/metrics"),
    ),
    fingerprint=Fingerprint(paths=(FRAME.path,), judge=_judge),
    owners=("abacus",),
)
'''
CAPTURE = {
    "/v1/models": '{"object":"list","data":[{"id":"soroban","object":"model","owned_by":"abacus"}]}',
    "/abacus/frame": '{"made_in":"1930","rods":13}',
    "/abacus/metrics": "# TYPE abacus:beads_moving gauge\nabacus:beads_moving 2\n",
}
NAME = "pharos.core.engine.recipes.abacus"


@pytest.fixture
def abacus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipe]:
    """A module in the recipes' package and a folder beside the other captures; then the program starts."""
    package, testdata = tmp_path / "recipes", tmp_path / "testdata"
    state = testdata / "abacus" / "1930" / "busy"
    state.mkdir(parents=True)
    package.mkdir()
    (package / "abacus.py").write_text(MODULE, encoding="utf-8")
    lines = []
    for number, (path, body) in enumerate(CAPTURE.items()):
        (state / str(number)).write_text(body, encoding="utf-8")
        lines.append(f"{path}\t200\tapplication/json\t{number}\n")
    (state / "paths.tsv").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(captures, "TESTDATA", testdata)
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(package)])
    found = recipes.collect()
    assert found.keys() - recipes.RECIPES.keys() == {"abacus"}
    monkeypatch.setitem(recipes.RECIPES, "abacus", found["abacus"])
    yield found["abacus"]
    del sys.modules[NAME], recipes.__dict__["abacus"]


def test_it_is_detected_planned_scraped_and_described(abacus: Recipe) -> None:
    world = World("abacus", "1930", "busy")
    visit = Visit(world.get)
    assert (visit.found.kind, visit.found.evidence) == ("abacus", "/abacus/frame was made in 1930")
    assert len(visit.pages) == 2

    got = fetched(lambda pages: plan.next_paths(abacus, (), pages), world.pages, visit.pages)
    made, first = plan.resolve(abacus, (), got, kind_source="detected", logs=False, now=NOW)
    read = {
        ("version", ""): "1930",
        ("models", ""): ("soroban",),
        ("capacity", ""): 13,
        ("running", ""): 2,
    }
    assert values(first) == values(plan.scrape(made, got, NOW)) == read

    fleet = Fleet()
    (backend,) = fleet.set_backends([BackendSpec(name="shop", url="http://127.0.0.1:9")], NOW).added
    fleet.publish(backend, made, first, NOW, full=True, started_at=NOW)
    described = describe.backend(backend, NOW)
    assert (described["kind"], described["version"], described["up"]) == ("abacus", "1930", True)
    assert {row["signal"]: row["value"] for row in described["plan"]}["capacity"] == 13
    assert {row["signal"]: row["expected"] for row in described["unknown"]}[
        "waiting"
    ] is True  # as it must: no probe reads it


def test_its_kind_can_be_named_in_the_configuration(abacus: Recipe) -> None:
    assert checks._unknown_kind(abacus.kind) is None
    assert recipes.by_kind("abacus") is abacus


def test_two_modules_of_one_kind_or_no_generic_one_are_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipes.RECIPES
    module = sys.modules["pharos.core.engine.recipes.openai"]
    for recipe, why in ((before["llamacpp"], "two recipes of one kind"), (before["vllm"], "two recipes")):
        monkeypatch.setattr(module, "RECIPE", recipe)
        with pytest.raises(ValueError, match=why):
            recipes.collect()
    other = Recipe(kind="other", rank=1, probes=(), fingerprint=before["vllm"].fingerprint)
    monkeypatch.setattr(module, "RECIPE", other)
    with pytest.raises(ValueError, match="exactly one recipe is the generic one"):
        recipes.collect()
