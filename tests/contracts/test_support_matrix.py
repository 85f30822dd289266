"""The support matrix tells what the replay shows, and how each cell was verified."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pharos.core.signals import Signal

HACK = Path(__file__).resolve().parents[2] / "hack"


@pytest.fixture(scope="module")
def matrix() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HACK))
        yield importlib.import_module("support_matrix")


@pytest.fixture(scope="module")
def versions(matrix: Any) -> dict[tuple[str, str], Any]:
    return {(row.engine, row.name): row for row in matrix.versions()}


def test_each_signal_of_a_version_has_its_probes_or_a_reason(matrix: Any, versions: dict[Any, Any]) -> None:
    assert set(versions) >= {("ollama", "0.17.4"), ("llamacpp", "b11434"), ("vllm", "0.32.0"), ("mlx-lm", "0.32.2")}
    for row in versions.values():
        told = {signal for signal in row.readers if signal in matrix.SIGNALS}
        assert told | set(row.why) == set(matrix.SIGNALS)
        assert not told & set(row.why)
        assert all(row.why.values())


def test_logs_events_and_questions_about_one_model_are_part_of_it(versions: dict[Any, Any]) -> None:
    ollama, swap = versions["ollama", "0.17.4"], versions["llama-swap", "v250-5-g0bdb37"]
    assert "ollama-log-parallel" in ollama.readers[Signal.CAPACITY]
    assert "ollama-abilities" in ollama.readers[Signal.CAPABILITIES]
    assert swap.readers[Signal.RUNNING] == ("llama-swap-inflight",)
    assert "llama-swap-upstream-capacity" in swap.readers[Signal.CAPACITY]


def test_the_reason_of_an_unknown_signal_is_that_of_its_probes(versions: dict[Any, Any]) -> None:
    assert versions["ollama", "0.17.4"].why[Signal.RUNNING] == "this kind does not tell it"
    assert "several slots may share one context" in versions["llamacpp", "b11434"].why[Signal.KV_USAGE]
    assert "not in the recording" in versions["llama-swap", "synthetic-gpu"].why.values()


def row(matrix: Any, name: str, *, is_synthetic: bool = False, **readers: tuple[str, ...]) -> Any:
    told = {Signal(signal): probes for signal, probes in readers.items()}
    why = {signal: "it | does not" for signal in matrix.SIGNALS if signal not in told}
    return matrix.Version("abacus", name, is_synthetic, told, why)


def cells(page: str, name: str) -> dict[str, str]:
    """Column to cell of one row."""
    lines = page.splitlines()
    head = next(line for line in lines if line.startswith("| build |"))
    found = next(line for line in lines if line.startswith(f"| {name} |"))
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (head, found)]
    return dict(zip(*split, strict=True))


def test_what_was_seen_live_is_told_from_what_was_recorded(matrix: Any) -> None:
    recorded = row(matrix, "1930", running=("abacus-beads", "abacus-frame"), version=("abacus-version",))
    live = {
        "abacus": {
            "1930": {
                "running": "abacus-beads",
                "capacity": "abacus-one, abacus-two",
                "capacity_later": "abacus-two, abacus-three",
                "reply_prompt_tokens": "usage",
            },
            "1931": {"running": "abacus-beads"},
        }
    }
    page = matrix.rendered([recorded], live)
    assert cells(page, "1930")["running"] == "`beads` **live**<br>`frame` fixture"
    assert cells(page, "1930")["capacity"] == "`one` `two` `three` **live**"
    assert cells(page, "1930")["version"] == "`version` fixture"
    assert cells(page, "1931")["running"] == "`beads` **live**"
    assert cells(page, "1931")["version"] == "unknown (2)"
    assert "\n2. not verified, and there is no recording\n" in page
    assert "\nAlso seen live: 1930: reply_prompt_tokens\n" in page


def test_a_version_made_by_hand_is_told_from_a_recorded_one(matrix: Any) -> None:
    page = matrix.rendered([row(matrix, "made", is_synthetic=True, running=("abacus-beads",))], {})
    assert cells(page, "made")["running"] == "`beads` synthetic"
    assert cells(page, "made")["waiting"] == "unknown (1)"
    assert "\n1. it \\| does not\n" in page


def test_recorded_versions_come_first_and_in_the_order_of_their_numbers(matrix: Any) -> None:
    rows = [
        row(matrix, "hand", is_synthetic=True),
        *(row(matrix, name) for name in ("0.10", "0.9", "0.9-b10", "0.9-b2")),
    ]
    page = matrix.rendered(rows, {})
    assert [line.split(" | ")[0] for line in page.splitlines() if " | unknown" in line] == [
        "| 0.9", "| 0.9-b2", "| 0.9-b10", "| 0.10", "| hand",
    ]  # fmt: skip
