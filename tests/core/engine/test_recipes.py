import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.attempt import MOST_MODELS
from pharos.core.engine.follow import Follow, followed_feeds
from pharos.core.engine.hints import HINTS, hint_for
from pharos.core.engine.probe import FeedKind, SideEffect
from pharos.core.engine.recipe import ENGINES_FROM, Recipe, Verdict
from pharos.core.engine.recipes import RECIPES, by_kind
from pharos.core.signals import Signal
from tests.core.engine.pages import ok, resolved

TEXT = st.text(st.characters(), max_size=5) | st.sampled_from(("snapshot", "upsert", "stopped", "loaded", "\ud800", ""))
FIELD = TEXT | st.sampled_from(("type", "data", "model", "status", "id", "aliases", "state", "operation", "requests"))
INNER = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(FIELD, deeper, max_size=4),
    max_leaves=8,
)
ANYTHING = INNER | st.fixed_dictionaries(
    {"type": st.sampled_from(("modelStatus", "inflight")), "data": st.builds(json.dumps, INNER) | TEXT}
)
"""What a stream may hold, half characters included."""


def test_every_recipe_is_found_under_its_kind_and_in_the_order_of_its_fingerprint() -> None:
    ranks = [recipe.rank for recipe in RECIPES.values()]
    assert ranks == sorted(set(ranks))
    fronts = ["llama-swap", "model-runner", "lemonade", "localai", "koboldcpp", "lmstudio", "llamacpp-router"]
    engines = ["llamacpp", "vllm", "sglang", "trtllm", "lmdeploy", "tgi", "ollama"]
    assert list(RECIPES) == [*fronts, *engines, "openai"]
    assert [recipe.kind for recipe in RECIPES.values() if recipe.rank < ENGINES_FROM] == fronts
    assert all(by_kind(kind).kind == kind for kind in RECIPES)


def test_an_unknown_kind_has_no_recipe() -> None:
    with pytest.raises(KeyError):
        by_kind("abacus")


def test_exactly_one_recipe_is_the_generic_one() -> None:
    assert [kind for kind, recipe in RECIPES.items() if recipe.fingerprint is None] == ["openai"]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_probe_names_are_unique_and_say_their_kind(recipe: Recipe) -> None:
    names = [probe.name for probe in recipe.probes]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"{recipe.kind}-") for name in names)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_nothing_is_ever_asked_that_loads_or_drains(recipe: Recipe) -> None:
    assert not {SideEffect.LOADS, SideEffect.DRAINS} & {probe.feed.side_effect for probe in recipe.probes}
    assert all(probe.feed.path.startswith("/") for probe in recipe.probes if probe.feed.kind is FeedKind.GET)


def test_a_fingerprint_of_nothing_is_undecided() -> None:
    fingerprint = by_kind("llamacpp").fingerprint
    assert fingerprint is not None
    assert fingerprint.judge({}) == Verdict(matches=None, text="/props has not been asked")


def test_every_signal_has_a_hint_and_a_recipe_may_know_better() -> None:
    assert set(HINTS) == set(Signal)
    own = by_kind("llamacpp").hints
    assert "--metrics" in hint_for(Signal.RUNNING, own).fix
    assert hint_for(Signal.CAPACITY, own) is HINTS[Signal.CAPACITY]


def test_a_list_of_more_models_than_can_be_worked_through_is_unknown_with_the_reason() -> None:
    body = {"data": [{"id": f"m{number}"} for number in range(MOST_MODELS + 1)]}
    made, read = resolved(by_kind("openai"), {"/v1/models": ok(body)})
    assert not read.readings
    assert [one.detail for one in made.dropped if one.signal is Signal.MODELS] == [f"more than {MOST_MODELS} models"]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@given(data=st.binary(max_size=80) | st.builds(json.dumps, ANYTHING).map(str.encode))
def test_any_line_or_event_is_read_or_refused_and_nothing_else_happens(recipe: Recipe, data: bytes) -> None:
    for feed in followed_feeds(recipe.probes):
        follow = Follow(recipe.probes, feed, ("a",))
        told = [follow.line(data, 1.0), follow.event("", data, 2.0), follow.event("status", data, 3.0)]
        assert all(model for one in told for _, model in one.readings)
