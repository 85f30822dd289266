import pytest

from pharos.core.engine.hints import HINTS, hint_for
from pharos.core.engine.probe import FeedKind, SideEffect
from pharos.core.engine.recipe import Recipe, Verdict
from pharos.core.engine.recipes import RECIPES, by_kind
from pharos.core.signals import Signal


def test_every_recipe_is_found_under_its_kind_and_in_the_order_of_its_fingerprint() -> None:
    assert list(RECIPES) == ["llamacpp", "openai"]
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
