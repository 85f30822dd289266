"""What `hack/calibrate.py` makes of an engine's chats."""

import asyncio
import random
import threading

import pytest

from hack.calibrate import COMPARED, REPEATS, CannotMeasure, Chat, Figures, assumed, figures, line_through, shown
from pharos.sim.spec import EngineSpec, ModelSpec
from tests.fakes.http import Reply
from tests.fakes.llamacpp import FakeLlamaCpp

CHANCE = random.Random(1)


def chat(tokens: int, first_s: float, decode_s: float = 0.01, cached: int = 0) -> Chat:
    one = Chat("http://x", "m", 1, CHANCE)
    one.prompt_tokens, one.cached_tokens, one.reply_tokens = tokens, cached, 11
    one.first_s, one.whole_s = first_s, first_s + 10 * decode_s
    return one


def alone(*lengths: int, base_s: float = 0.05, per_token: float = 0.002, noise_s: float = 0.0) -> list[Chat]:
    return [
        chat(length, base_s + length * per_token + noise_s * repeat) for length in lengths for repeat in range(REPEATS)
    ]


def test_speed_and_fixed_part_are_the_line_through_prompts_of_several_lengths() -> None:
    found = figures(chat(10, 1.0), alone(100, 500), [], 1, unloaded=False)
    assert found.prefill_s_per_token == pytest.approx(0.002)
    assert found.base_s == pytest.approx(0.05)
    assert found.decode_s_per_token == pytest.approx(0.01)
    assert (found.slowdown, found.load_s) == (None, None)


def test_what_else_ran_on_the_machine_does_not_count() -> None:
    assert figures(chat(10, 1.0), alone(100, 500, noise_s=3.0), [], 1, unloaded=False).base_s == pytest.approx(0.05)


def test_company_makes_each_slower_and_a_first_chat_shows_a_load() -> None:
    company = [chat(100, 0.3, decode_s=0.016) for _ in range(4)]
    found = figures(chat(100, 7.25), alone(100, 500), company, 4, unloaded=True)
    assert found.slowdown == pytest.approx(0.2)
    assert found.load_s == pytest.approx(7.0)


def test_cached_tokens_are_no_work() -> None:
    chats = [chat(tokens + 50, 0.05 + tokens * 0.002, cached=50) for tokens in (100, 500) for _ in range(REPEATS)]
    assert figures(chat(10, 1.0), chats, [], 1, unloaded=False).prefill_s_per_token == pytest.approx(0.002)


def test_a_line_never_falls_and_prompts_of_one_length_make_none() -> None:
    assert line_through([(1, 5.0), (2, 1.0)])[0] == 0.0
    with pytest.raises(CannotMeasure, match="same length"):
        line_through([(1, 1.0), (1, 2.0)])


def test_a_chat_that_failed_is_said_and_nothing_is_measured() -> None:
    bad = chat(100, 0.1)
    bad.fault = "503 Loading model"
    with pytest.raises(CannotMeasure, match="Loading"):
        figures(chat(10, 1.0), [*alone(100), bad], [], 1, unloaded=False)


def test_what_is_printed_is_what_a_fleet_file_takes() -> None:
    found = shown(Figures(2, 0.001, 0.01, 0.02, 0.15, 3.0))
    assert EngineSpec(name="e", kind="llamacpp", models=(ModelSpec("m"),), **found).load_s == 3.0  # type: ignore[arg-type]
    assert set(found) == {"slots", *COMPARED}
    assert "load_s" not in shown(Figures(2, 0.001, 0.01, 0.02, None, None))


def test_every_figure_has_an_assumption_that_stands_for_it() -> None:
    assert all(assumed(field) is not None for field in COMPARED)
    assert assumed("slots") is None


@pytest.mark.parametrize(("answer", "fault"), [(None, None), (Reply(503, b"Loading model"), "503")])
async def test_a_chat_is_read_from_an_engines_stream(answer: Reply | None, fault: str | None) -> None:
    async with FakeLlamaCpp() as engine:
        if answer is not None:
            engine.answers["/v1/chat/completions"] = answer
        one = Chat(engine.url, "smollm2:135m", 20, CHANCE)
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        thread = threading.Thread(target=lambda: (one.run(), loop.call_soon_threadsafe(done.set)))
        thread.start()
        await done.wait()
        thread.join()
        assert (fault is None) == (one.fault is None)
        if fault is None:
            assert one.prompt_tokens == engine.prompted
            assert one.reply_tokens == 48
            assert 0 < one.first_s <= one.whole_s
        else:
            assert fault in str(one.fault)
