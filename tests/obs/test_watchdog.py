import asyncio
import re
import sys
import threading

import pytest

from pharos.clock import cpu, monotonic
from pharos.obs.watchdog import QUIET_S, Watchdog, place
from pharos.proxy.incoming import Steps, in_steps

WAIT_S = 30.0
SECRET = "a prompt that nobody may see"


def hold(until: threading.Event, secret: str) -> bool:
    """Stands for a function that keeps the loop from everything else; `secret` is data of its frame."""
    return until.wait(WAIT_S) and bool(secret)


async def test_a_loop_that_stands_still_is_told_while_it_does_with_the_place_and_no_data() -> None:
    told: list[str] = []
    lags: list[float] = []
    seen = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        seen.set()

    watching = asyncio.create_task(Watchdog(lags.append, clock=monotonic, cpu=cpu, tell=tell).run())
    await asyncio.sleep(0)  # it runs
    assert hold(seen, SECRET), "the loop was blocked, and the watchdog said so meanwhile"
    async with asyncio.timeout(WAIT_S):
        while not lags:
            await asyncio.sleep(0.001)
    watching.cancel()
    await asyncio.wait([watching])
    assert "threading.py" in told[0]
    assert SECRET not in told[0]
    assert max(lags) > 0.05, "and the timer saw how late it was"


@pytest.mark.parametrize(("computed", "within_s"), [(9.0, (0.1, 0.3)), (1.0, (0.3, 0.7))])
def test_of_a_watch_that_comes_late_itself_only_what_was_computed_meanwhile_is_told_at_once(
    computed: float, within_s: tuple[float, float]
) -> None:
    now = began = 10.0  # ten seconds after the last timer
    told: list[float] = []
    over = threading.Event()

    def tell(_line: str) -> None:
        told.append(now - began)
        over.set()

    def clock() -> float:
        nonlocal now
        now += 0.1
        return now

    dog = Watchdog(lambda _: None, clock=clock, cpu=lambda: computed, tell=tell)
    dog._watch(threading.get_ident(), over)
    assert within_s[0] <= told[0] < within_s[1], "else it looks again: is the loop still there?"


async def test_a_loop_that_is_on_time_is_not_told() -> None:
    told: list[str] = []
    lags: list[float] = []
    now = 0.0  # a clock that stands still: nothing is ever late

    watching = asyncio.create_task(Watchdog(lags.append, clock=lambda: now, cpu=lambda: now, tell=told.append).run())
    async with asyncio.timeout(WAIT_S):
        while len(lags) < 3:
            await asyncio.sleep(0.001)
    watching.cancel()
    await asyncio.wait([watching])
    assert set(lags) == {0.0}
    assert not told


async def test_its_thread_ends_with_it() -> None:
    watching = asyncio.create_task(Watchdog(lambda _: None, clock=monotonic, cpu=cpu).run())
    await asyncio.sleep(0)
    threads = [one for one in threading.enumerate() if one.name == "watchdog"]
    assert threads
    watching.cancel()
    await asyncio.wait([watching])
    for thread in threads:
        await asyncio.to_thread(thread.join, WAIT_S)
        assert not thread.is_alive()


def test_a_loop_that_is_late_all_the_time_gets_a_line_a_minute() -> None:
    told: list[str] = []
    dog = Watchdog(lambda _: None, clock=monotonic, cpu=cpu, tell=told.append)
    for at in (0.0, 1.0, 2.0, QUIET_S):
        dog.stalled("pharos/x.py:1:y", at)
    assert told == [
        "nothing moved for 100 ms: the event loop is held up in pharos/x.py:1:y",
        "nothing moved for 100 ms: the event loop is held up in pharos/x.py:1:y (2 more of these since the last line)",
    ]


async def test_a_place_in_a_library_names_who_called_it() -> None:
    def steps() -> Steps:
        yield
        return 200, place(sys._getframe()), b""

    _, where, _ = await in_steps(steps())
    assert re.search(r":\d+:steps, called from pharos/proxy/incoming.py:\d+:in_steps$", where)


@pytest.mark.parametrize("name", ["pharos.obs.words", "pharos"])
def test_of_a_path_only_the_part_that_stands_for_the_module_is_told(name: str) -> None:
    scope: dict[str, object] = {"__name__": name, "place": place, "sys": sys}
    code = compile("def f(): return place(sys._getframe())", "/opt/somebody/lib/pharos/obs/words.py", "exec")
    exec(code, scope)  # noqa: S102 - a function with a path of our choice
    told = scope["f"]()  # type: ignore[operator]
    assert told == ("pharos/obs/words.py:1:f" if name == "pharos.obs.words" else "words.py:1:f")


def test_a_place_that_cannot_be_seen_is_said_so() -> None:
    assert place(None) == "a place that cannot be seen"


def test_a_loop_that_waits_for_something_to_do_is_in_no_place() -> None:
    scope: dict[str, object] = {"__name__": "asyncio.runners", "place": place, "sys": sys}
    code = compile("def run(): return place(sys._getframe())", "/usr/lib/python3/asyncio/runners.py", "exec")
    exec(code, scope)  # noqa: S102 - a function with a path of our choice
    assert scope["run"]() == ""  # type: ignore[operator]
