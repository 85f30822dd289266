"""The matrix: every protocol, streamed and not, every way to die, at random places; several readers for each."""

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.kill import raw, readers
from tests.kill.cases import Case
from tests.kill.readers import Ask, Read, Reader
from tests.kill.stand import WAIT_S, Doomed, Lane, Stand, doomed, stand
from tests.proxy.harness import RawClient

LANES: Final = 8
DRAINED: Final = 50
"""Streams that one end of Pharos cuts."""
RAW: Final = {"raw": "1.1", "raw 1.0": "1.0"}
"""Readers without an SDK, and their version of HTTP."""
OPENAI: Final = ("chat", "completions", "responses")


class Verdict(NamedTuple):
    """What one reader made of one case."""

    case: Case
    reader: str
    outcome: str
    """`cut`, `error event`, `complete`, or a fault: `short success`, `false alarm`, `hung`, `wrong`."""
    detail: str
    seconds: float


TIMEOUTS: Final = ("Timeout", "APITimeoutError", "APIConnectionTimeoutError", "ReadTimeout", "ConnectTimeout")
"""What readers say that had to give up: nobody told them anything."""
FAULTS: Final = ("short success", "false alarm", "hung", "wrong")


def judged(case: Case, read: Read) -> tuple[str, str]:
    """The outcome of a case for one reader, and what is known about it."""
    whole = case.wire
    if read.outcome in ("wrong", "fault"):
        return "wrong", read.detail
    if read.detail in TIMEOUTS:
        return "hung", read.detail
    if read.outcome == "answer":
        return ("complete" if case.at >= case.enough else "short success"), read.detail
    if case.at == len(whole.data) and case.way == "close":
        return "false alarm", read.detail
    return ("error event" if read.outcome == "error event" else "cut"), read.detail


@contextlib.asynccontextmanager
async def open_readers(*, node: bool) -> AsyncIterator[Mapping[str, Reader]]:
    """Every reader that is here, by the name in the table."""
    found_node = readers.find_node() if node else ""
    async with contextlib.AsyncExitStack() as stack:
        opened = {
            "openai": await stack.enter_async_context(readers.openai_reader()),
            "anthropic": await stack.enter_async_context(readers.anthropic_reader()),
            "ollama": await stack.enter_async_context(readers.ollama_reader()),
        }
        if not isinstance(found_node, str):
            opened["openai node"] = await stack.enter_async_context(readers.node_reader(found_node))
        yield opened


def readers_of(case: Case, opened: Mapping[str, Reader]) -> list[str]:
    """Who reads it: one reader without an SDK, and each SDK of its protocol."""
    plain = "raw 1.0" if case.number % 3 == 0 else "raw"
    if case.protocol in OPENAI:
        return [plain, *(name for name in ("openai", "openai node") if name in opened)]
    return [plain, "anthropic" if case.protocol == "messages" else "ollama"]


async def read_case(found: Stand, lane: Lane, case: Case, reader: str, opened: Mapping[str, Reader]) -> Verdict:
    """Let one reader read one case."""
    began = time.monotonic()
    if reader in RAW:
        streams = await asyncio.open_connection("127.0.0.1", found.front.proxy.port, limit=2**20)
        try:
            read = await raw.read_raw(RawClient(*streams), case, lane.model, version=RAW[reader])
        except TimeoutError:
            read = Read("raised", "Timeout")
    else:
        number = 0 if case.way == "drain" else case.number
        ask = Ask(found.url, case.protocol, lane.model, case.streamed, case.wants_usage, number)
        read = await opened[reader](ask)
    outcome, detail = judged(case, read)
    return Verdict(case, reader, outcome, detail, time.monotonic() - began)


Told = Callable[[Verdict], None]


async def run_way(way: str, wanted: Sequence[Case], told: Told, opened: Mapping[str, Reader]) -> None:
    """Run all cases of one way to die, some at a time."""
    if way == "drain":
        for start in range(0, len(wanted), DRAINED):
            await _drained(wanted[start : start + DRAINED], told, opened)
        return
    async with contextlib.AsyncExitStack() as stack:
        process = await stack.enter_async_context(doomed()) if way == "killed" else None
        lanes = LANES if process is None else 1
        found = await stack.enter_async_context(
            stand(
                dict.fromkeys({case.kind for case in wanted}, lanes),
                silent=way == "silence",
                url=None if process is None else process.url,
            )
        )
        left = collections.deque(wanted)
        async with asyncio.TaskGroup() as group:
            for number in range(lanes):
                group.create_task(_lane(found, number, left, opened, process, told))
        await found.until_clean()


async def _lane(
    found: Stand, number: int, left: collections.deque[Case], opened: Mapping[str, Reader], process: Doomed | None,
    told: Told,
) -> None:  # fmt: skip
    while left:
        case = left.popleft()
        lane = found.lanes[case.kind][number]
        for reader in readers_of(case, opened):
            play = case.play()
            if process is not None:
                process.say(b"".join(play.pieces))
            asked = lane.mortal.asked
            await lane.settled()
            lane.ready(play)
            verdict = await read_case(found, lane, case, reader, opened)
            told(verdict if process is not None else _asked_once(verdict, lane.mortal.asked - asked))


def _asked_once(verdict: Verdict, times: int) -> Verdict:
    """A reply of an engine that was not asked proves nothing; one that has begun must not have been asked for again."""
    if times == 1 or (times and verdict.case.at < verdict.case.wire.head):
        return verdict
    return verdict._replace(outcome="wrong", detail=f"the engine was asked {times} times")


async def _drained(batch: Sequence[Case], told: Told, opened: Mapping[str, Reader]) -> None:
    """One end of Pharos with all these replies under way."""
    async with stand(collections.Counter(case.kind for case in batch)) as found:
        tasks, lanes = [], []
        free = {kind: iter(some) for kind, some in found.lanes.items()}
        for case in batch:
            lane = next(free[case.kind])
            lane.ready(case.play())
            names = readers_of(case, opened)
            reader = names[len(tasks) % len(names)]
            tasks.append(asyncio.create_task(read_case(found, lane, case, reader, opened)))
            lanes.append(lane)
        began = time.monotonic()
        while time.monotonic() < began + WAIT_S and not all(
            lane.mortal.said or task.done() for lane, task in zip(lanes, tasks, strict=True)
        ):
            await asyncio.sleep(0.001)
        asked = [lane.mortal.asked for lane in lanes]
        for _ in range(50):  # Pharos reads what was sent
            await asyncio.sleep(0)
        await found.front.proxy.drain(0, 0)
        for task, times in zip(tasks, asked, strict=True):
            told(_asked_once(await task, times))
        assert found.is_clean()


async def run(wanted: Sequence[Case], told: Told, *, node: bool) -> None:
    """Run cases, one way after the other."""
    by_way: dict[str, list[Case]] = {}
    for case in wanted:
        by_way.setdefault(case.way, []).append(case)
    async with open_readers(node=node) as opened:
        for way, some in by_way.items():
            await run_way(way, some, told, opened)
