"""What the prefix index foretells of real llama.cpp engines, against what they say of their caches."""

import pytest

from tests.live.real import RealEngine, Running, pharos

pytestmark = [pytest.mark.live, pytest.mark.slow]

BEGINNING = "the signal drifts over the reef while the bell rolls and the hull hails a gull in the mist. " * 8


async def ask(running: Running, *said: str) -> tuple[str | None, str, int]:
    """Which backend answered, how the prediction turned out, and how much of the prompt came from the cache."""
    done = running.app.reporting.recent
    before = len(list(done))
    messages = [{"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(said)]
    body = {"model": "tiny", "stream": True, "max_tokens": 4, "messages": messages}
    async with running.http.post(running.url + "/v1/chat/completions", json=body) as response:
        assert response.status == 200
        await response.read()
    await running.until(lambda: len(list(done)) > before)
    last = max(done, key=lambda one: one.at_wall)
    [said_of_it] = [outcome for stage, outcome in last.stages if stage == "prefix"]
    assert last.usage is not None
    return last.backend, said_of_it, last.usage.cached_tokens or 0


async def test_the_next_turn_goes_to_the_engine_that_has_the_one_before_as_was_foretold(
    pair: tuple[RealEngine, RealEngine],
) -> None:
    async with pharos(*(engine.url for engine in pair)) as running:
        first, _, _ = await ask(running, f"One. {BEGINNING}")
        await ask(running, f"Two. {BEGINNING}")
        backend, outcome, cached = await ask(running, f"One. {BEGINNING}", "yes", "and on")
        assert (backend, outcome) == (first, "predicted_hit")
        assert cached > 100
        async with running.http.get(running.url + "/metrics") as response:
            page = await response.text()
        assert 'pharos_prefix_predictions_total{source="local",outcome="predicted_hit"} 1' in page
