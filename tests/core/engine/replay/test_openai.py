"""mlx-lm's recorded states: the generic kind reads its list, and nothing tells busy from idle."""

import pytest

from pharos.core.engine import plan
from pharos.core.engine.recipes import by_kind
from tests.core.engine.pages import NOW
from tests.core.engine.replay.replaying import check, pages_of, resolved, rows

VALUES: dict[str, dict[tuple[str, str], object]] = {"mlx-lm": {("models", ""): ("/models/tiny",)}}


@pytest.mark.parametrize("row", rows("mlx-lm"), ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    made, _ = check("openai", row, VALUES)
    assert made.version is None  # only its replies tell it
    assert made.dropped == ()


def test_its_list_is_read_rarely_because_each_read_searches_the_disk() -> None:
    made, _, _ = resolved("openai", pages_of(("mlx-lm", "0.32.2", "idle")))
    assert plan.intervals_of(made.active) == {"/v1/models": 15.0}
    assert plan.due_paths(made, {"/v1/models": NOW - 5}, NOW) == ()
    assert plan.due_paths(made, {"/v1/models": NOW - 15}, NOW) == ("/v1/models",)


def test_the_generic_kind_believes_nothing_but_a_list() -> None:
    recipe = by_kind("openai")
    assert [probe.signal.value for probe in recipe.probes] == ["models"]
    assert recipe.record_paths == ()
