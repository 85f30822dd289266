"""Requests are run by callbacks, and become tasks only where they must."""

import asyncio

import pytest

from pharos.proxy.turn import Mark, Turn, as_task


class Log(list[str]):
    """What happened, in order."""

    def over(self) -> None:
        self.append("over")


def outside(call: object) -> None:
    """Run a callback of the loop: no task is current there."""
    asyncio.get_running_loop().call_soon(call)  # type: ignore[arg-type]


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_what_waits_for_nothing_is_over_within_the_call() -> None:
    log = Log()

    async def work() -> None:
        log.append("work")

    outside(lambda: (Turn(work(), log.over).begin(), log.append("after")))
    await settled()
    assert log == ["work", "over", "after"]


async def test_who_waits_for_a_mark_goes_on_in_the_next_turn() -> None:
    log, marks = Log(), [Mark(), Mark()]

    async def work() -> None:
        assert asyncio.current_task() is None
        await marks[0]
        log.append("first")
        await marks[1]
        await marks[1]  # nothing to wait for any more
        log.append("second")

    outside(Turn(work(), log.over).begin)
    await settled()
    marks[0].set()
    assert log == []
    await settled()
    marks[1].set()
    assert log == ["first"]
    await settled()
    assert log == ["first", "second", "over"]


async def test_whatever_else_is_awaited_makes_it_a_task() -> None:
    log, mark = Log(), Mark()
    future = asyncio.get_running_loop().create_future()

    async def work() -> None:
        log.append(await future)
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)
        await mark
        log.append("done")

    outside(Turn(work(), log.over).begin)
    await settled()
    future.set_result("result")
    await settled()
    mark.set()
    await settled()
    assert log == ["result", "done", "over"]


async def test_an_error_of_what_is_awaited_is_raised_where_it_is_awaited() -> None:
    log = Log()
    future = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await future
        except LookupError:
            log.append("error")

    outside(Turn(work(), log.over).begin)
    await settled()
    future.set_exception(LookupError())
    await settled()
    assert log == ["error", "over"]


async def test_timeouts_need_a_task_and_get_one() -> None:
    log = Log()

    async def work() -> None:
        await as_task()
        await as_task()  # it is one
        async with asyncio.timeout(1):
            log.append("inside")
            await asyncio.sleep(0)

    outside(Turn(work(), log.over).begin)
    await settled()
    assert log == ["inside", "over"]


async def test_a_task_s_own_task_is_enough() -> None:
    mark = Mark()
    asyncio.get_running_loop().call_soon(mark.set)
    await as_task()
    await mark
    assert mark.is_set


async def cancelled(waits_for: object) -> tuple[list[str], Log]:
    """What is left of a coroutine that is cancelled while it waits."""
    log = Log()

    async def work() -> None:
        try:
            await waits_for  # type: ignore[misc]
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        finally:
            log.append("clean")

    turn = Turn(work(), log.over)
    outside(turn.begin)
    await asyncio.sleep(0)
    turn.cancel()
    at_once = list(log)
    await settled()
    return at_once, log


async def test_what_waits_for_a_mark_is_cancelled_within_the_call() -> None:
    at_once, log = await cancelled(Mark())
    assert at_once == log == ["cancelled", "clean", "over"]


async def test_a_task_is_cancelled_as_tasks_are() -> None:
    at_once, log = await cancelled(asyncio.sleep(10))
    assert at_once == []
    assert log == ["cancelled", "clean", "over"]


async def test_a_task_that_is_cancelled_before_its_first_step_cleans_up_all_the_same() -> None:
    log = Log()

    async def work() -> None:
        try:
            await as_task()
        finally:
            log.append("clean")

    turn = Turn(work(), log.over)
    outside(lambda: (turn.begin(), turn.cancel()))
    await settled()
    assert log == ["clean", "over"]


async def test_a_mark_that_was_set_in_the_same_turn_counts_once() -> None:
    log, mark = Log(), Mark()

    async def work() -> None:
        try:
            await mark
        except asyncio.CancelledError:
            log.append("cancelled, yet set" if mark.is_set else "cancelled")

    turn = Turn(work(), log.over)
    outside(turn.begin)
    await settled()
    mark.set()
    turn.cancel()
    turn.cancel()
    await settled()
    assert log == ["cancelled, yet set", "over"]


async def test_an_error_that_it_did_not_catch_ends_it_too() -> None:
    log = Log()

    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        Turn(work(), log.over).begin()
    assert log == ["over"]
