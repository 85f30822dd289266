"""Clients that leave: wherever it happens, the engine is stopped, and nothing of the request is left."""

import asyncio
import collections
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from tests.kill.mortal import Play, reset
from tests.kill.replies import FRAMINGS, KINDS, Recorded, Wire, recorded, request, wire
from tests.kill.stand import WAIT_S, Lane, Stand, stand
from tests.proxy.harness import RawClient

PHASES: Final = ("upload", "queue", "head", "reply", "between", "pipelined")
"""Within its request; while it waits for a slot; before the head; within the reply; after it, on a kept connection; and
within the reply with a second request behind it."""
SHARE: Final = {"upload": 4, "queue": 4, "head": 4, "between": 4, "pipelined": 4}
HOW: Final = ("close", "reset", "half")
"""`half`: it closes its sending side only, and counts as gone."""
TURNS: Final = 100
"""Turns of the loop in which everything must be over, engine and client being on the same one: about a millisecond.
Five are usual: the hang-up is seen, and the engine's connection closed, in one; the others belong to the two ends."""


class Leaver(NamedTuple):
    """One client."""

    number: int
    protocol: str
    streamed: bool
    phase: str
    how: str
    reply: Recorded
    framing: str
    at: int
    """Bytes of the request that it sends (`upload`), or that the engine has sent of its reply."""

    @property
    def wire(self) -> Wire:
        """The reply as the engine sends it."""
        return wire(self.reply, self.framing)


class Left(NamedTuple):
    """How it went."""

    leaver: Leaver
    turns: int
    fault: str
    seconds: float


def leavers(seed: int, places: int, protocols: Sequence[str] = tuple(KINDS)) -> Iterator[Leaver]:
    """All clients of a seed: `places` of each protocol within replies, and a share of that elsewhere."""
    number = 0
    for protocol in protocols:
        for streamed in (True, False):
            for phase in PHASES:
                chance = random.Random(f"{seed}/{protocol}/{streamed}/{phase}")
                for _ in range(max(1, places // SHARE.get(phase, 1))):
                    number += 1
                    reply = chance.choice(recorded(protocol, streamed))
                    framing = chance.choice(FRAMINGS[:2] if phase == "between" else FRAMINGS)
                    whole = wire(reply, framing)
                    asked = len(_request(protocol, "model", streamed=streamed))
                    bounds = {"upload": (0, asked), "head": (0, whole.head - 1), "queue": (0, whole.head - 1)}
                    first, last = bounds.get(phase, (whole.head, whole.enough - 1))
                    at = chance.randint(first, last)
                    yield Leaver(number, protocol, streamed, phase, chance.choice(HOW), reply, framing, at)


def _request(protocol: str, model: str, *, streamed: bool) -> bytes:
    body = request(protocol, model, streamed=streamed, wants_usage=False)
    top = f"POST {KINDS[protocol].path} HTTP/1.1\r\nHost: pharos\r\nContent-Length: {len(body)}\r\n\r\n"
    return top.encode() + body


def _cut(whole: Wire, at: int, way: str) -> Play:
    pieces, left = [], at
    for piece in whole.pieces:
        part, left = piece[:left], left - min(left, len(piece))
        if part:
            pieces.append(part)
    return Play(tuple(pieces), way)


def hang_up(client: RawClient, how: str) -> None:
    """Leave."""
    if how == "half":
        client.writer.write_eof()
    elif how == "reset":
        reset(client.writer.transport)
    else:
        client.writer.transport.abort()


async def run(wanted: Sequence[Leaver], told: Callable[[Left], None]) -> None:
    """One client after the other, so that what is left over is surely its own; after a fault the next begins anew."""
    remaining = collections.deque(wanted)
    while remaining:
        async with stand({"openai": 1, "ollama": 1}, capacity=1) as found:
            is_clean = True
            while remaining and is_clean:
                leaver = remaining.popleft()
                (lane,) = found.lanes["ollama" if leaver.reply.kind.is_ollama else "openai"]
                one = await leave(found, lane, leaver)
                is_clean = not one.fault
                told(one)


async def leave(found: Stand, lane: Lane, leaver: Leaver) -> Left:
    """Let one client come and leave; says what it left behind."""
    began, before = time.monotonic(), asyncio.all_tasks()
    asked = lane.mortal.asked
    try:
        clients = await come(found, lane, leaver)
    except TimeoutError:
        return Left(leaver, 0, f"it never came to leave: {_standing(found, lane)}", time.monotonic() - began)
    took = len(lane.mortal.busy)
    for client in reversed(clients):
        hang_up(client, leaver.how)
    turns = 0
    while (faults := left_behind(found, lane, before)) and turns < TURNS:
        await asyncio.sleep(0)
        turns += 1
    if not faults and (expected := _requests(leaver)) != lane.mortal.asked - asked:
        faults = [f"{lane.mortal.asked - asked} requests at the engine, not {expected}"]
    if leaver.phase in ("head", "reply", "pipelined", "queue") and took != 1:
        faults.append("the engine was not at work: the case is wrong")
    for client in clients:
        client.writer.transport.abort()
    return Left(leaver, turns, "; ".join(faults), time.monotonic() - began)


def _requests(leaver: Leaver) -> int:
    """How many requests the engine must have seen, whatever else the client sent."""
    return 0 if leaver.phase == "upload" else 1


def left_behind(found: Stand, lane: Lane, before: set[asyncio.Task[Any]]) -> list[str]:
    """What is still there of a request, in words; `before`: the tasks that were there ahead of it."""
    front = found.front
    states = {
        "the engine still works": len(lane.mortal.busy),
        "a slot is taken": front.inflight,
        "a lease is out": front.ledger.leased,
        "a place in the queue is taken": front.ledger.waiting,
        "a request is in work": front.proxy.inflight,
        "bytes are kept": front.proxy.routes.buffers.used,
        "a client's connection is open": len(front.proxy.connections),
        "a task is left": len(asyncio.all_tasks() - before),
    }
    return [f"{what} ({count})" for what, count in states.items() if count]


def _standing(found: Stand, lane: Lane) -> str:
    """How far the last requests have come, for people."""
    stages = [done.stages for done in found.front.done[-2:]]
    return f"asked {lane.mortal.asked}, said {lane.mortal.said}, busy {len(lane.mortal.busy)}, last requests {stages}"


async def _until(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0)


async def come(found: Stand, lane: Lane, leaver: Leaver) -> list[RawClient]:
    """Give clients at the point where they leave, the one that matters last."""
    asking = _request(leaver.protocol, lane.model, streamed=leaver.streamed)
    asked, said = lane.mortal.asked, lane.mortal.said
    is_whole = leaver.phase == "between"
    lane.ready(Play(leaver.wire.pieces, "stay") if is_whole else _cut(leaver.wire, leaver.at, "silence"))
    client = await _client(found)
    if leaver.phase == "upload":
        client.send(asking[: leaver.at])
        for _ in range(4):
            await asyncio.sleep(0)
        return [client]
    if leaver.phase == "between":
        client.send(asking)
        await client.reply()
        return [client]
    client.send(asking * 2 if leaver.phase == "pipelined" else asking)
    await _until(lambda: lane.mortal.asked > asked and lane.mortal.said > said)
    if leaver.phase != "queue":
        for _ in range(leaver.number % 6):  # it may leave before and after it has got the last of what was sent
            await asyncio.sleep(0)
        return [client]
    second = await _client(found)
    second.send(asking)
    await _until(lambda: found.front.ledger.waiting)
    hang_up(second, leaver.how)
    for _ in range(TURNS):
        if not found.front.ledger.waiting:
            break
        await asyncio.sleep(0)
    assert not found.front.ledger.waiting, "it left the queue and kept its place"
    second.writer.transport.abort()
    return [client]


async def _client(found: Stand) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", found.front.proxy.port, limit=2**20))
