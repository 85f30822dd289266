"""Two programs behind one address, or one exchanged for another while it is looked at: never a kind that it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine import detect
from pharos.core.engine.probe import Page
from pharos.core.engine.recipe import ENGINES_FROM, LIST_PATH, all_owned, owners_of
from pharos.core.engine.recipes import RECIPES
from tests.core.engine.replay.test_detection import FORBIDDEN, MOST_GETS, MOST_ROUNDS
from tests.core.engine.replay.worlds import Visit, World, all_states

WORLDS = {row: World(*row) for row in all_states()}
PATHS = sorted({path for world in WORLDS.values() for path in world.pages})
worlds = st.sampled_from(sorted(WORLDS)).map(WORLDS.__getitem__)


def check(visit: Visit, first: World, second: World) -> None:
    """What holds of every visit to two engines mixed."""
    assert len(visit.pages) <= MOST_GETS
    assert len(visit.rounds) <= MOST_ROUNDS
    assert not [path for path in visit.pages if FORBIDDEN.search(path)]
    assert visit.found.kind in {first.kind, second.kind, "openai", None}
    fitting = [kind for kind, one in RECIPES.items() if one.fingerprint and one.fingerprint.judge(visit.pages).matches]
    if visit.found.kind == "openai":
        assert fitting == []
    elif visit.found.kind is not None and RECIPES[visit.found.kind].rank >= ENGINES_FROM:
        others = {word for kind, one in RECIPES.items() if kind != visit.found.kind for word in one.owners}
        words = others - set(RECIPES[visit.found.kind].owners)
        assert not all_owned(visit.pages, *words), "an engine with the list of another"


@given(first=worlds, second=worlds, of_second=st.sets(st.sampled_from(PATHS)))
def test_two_engines_behind_one_address_are_one_of_them_or_unknown(
    first: World, second: World, of_second: set[str]
) -> None:
    check(Visit(lambda path: (second if path in of_second else first).get(path)), first, second)


@given(first=worlds, second=worlds, after=st.integers(1, 3))
def test_an_engine_exchanged_while_it_is_looked_at_is_one_of_them_or_unknown(
    first: World, second: World, after: int
) -> None:
    asked: list[str] = []

    def get(path: str) -> Page:
        asked.append(path)
        return (first if len(asked) <= after else second).get(path)

    check(Visit(get), first, second)


@given(first=worlds, second=worlds)
def test_what_stood_at_an_address_before_does_not_matter(first: World, second: World) -> None:
    fresh = Visit(second.get).found
    Visit(first.get)
    assert Visit(second.get).found == fresh


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "ollama"])
def test_a_front_before_an_engine_is_the_front(kind: str) -> None:
    """Each front answers its own paths and passes all others on, as a proxy that knows no better would."""
    engine = next(world for row, world in sorted(WORLDS.items()) if row[0] == kind and not world.is_starting)
    for row, front in sorted(WORLDS.items()):
        if RECIPES[front.kind].rank < ENGINES_FROM and front.kind != "llamacpp-router":
            own = {path for path, page in front.pages.items() if page.status == 200 and b'"error"' not in page.body}
            found = Visit(lambda path, front=front, own=own: (front if path in own else engine).get(path)).found
            assert found.kind == front.kind, (row, found)


def test_a_list_of_one_engine_over_the_pages_of_another_is_unknown() -> None:
    vllm = next(world for row, world in sorted(WORLDS.items()) if row[0] == "vllm" and not world.is_starting)
    ollama = next(world for row, world in sorted(WORLDS.items()) if row[0] == "ollama")
    found = Visit(lambda path: (vllm if path == LIST_PATH else ollama).get(path)).found
    assert found.kind is None
    assert "owned by vllm" in str(found.pending)
    assert owners_of({LIST_PATH: vllm.get(LIST_PATH)}) == {"vllm"}
    assert detect.judge({LIST_PATH: vllm.get(LIST_PATH)}).kind is None
