"""Kinds of which there are only hand-made bodies, from detection to a scrape: a plan made in one state reads all."""

import pytest

from pharos.core.engine import plan
from pharos.core.engine.plan import Plan
from pharos.core.engine.probe import SideEffect
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Signal
from tests.core.engine.pages import NOW, fetched, values
from tests.core.engine.replay.worlds import Visit, World, all_states

KINDS = ("koboldcpp", "lemonade", "lmstudio", "localai", "model-runner")
ROWS = [row for row in all_states() if row[0] in KINDS]
PAIRS = [(row, other) for row in ROWS for other in ROWS if row[0] == other[0]]


def planned(world: World) -> tuple[Plan, dict[tuple[str, str], object]]:
    visit = Visit(world.get)
    recipe = by_kind(world.kind)
    got = fetched(lambda pages: plan.next_paths(recipe, (), pages), world.pages, visit.pages)
    made, first = plan.resolve(recipe, (), got, kind_source="detected", logs=False, now=NOW)
    return made, values(first)


@pytest.mark.parametrize(("row", "other"), PAIRS, ids="/".join)
def test_a_plan_made_in_one_state_reads_another_just_as_one_made_there(
    row: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    made, _ = planned(World(*row))
    there = World(*other)
    scraped = plan.scrape(made, there.pages, NOW)
    assert values(scraped) == planned(there)[1]
    assert scraped.failed == ()
    assert not plan.needs_resolve(made, scraped)


@pytest.mark.parametrize("kind", KINDS)
def test_none_of_their_reads_does_anything_to_the_engine(kind: str) -> None:
    assert {probe.feed.side_effect for probe in by_kind(kind).probes} == {SideEffect.NONE}
    assert not by_kind(kind).harmless_once


@pytest.mark.parametrize("kind", KINDS)
def test_what_they_cannot_tell_is_hinted_at(kind: str) -> None:
    recipe = by_kind(kind)
    told = {probe.signal for probe in recipe.probes}
    assert {Signal.RUNNING, Signal.WAITING} - told <= set(recipe.hints)
