"""The clients of a benchmark run, a program of its own: `python -m hack.bench.routing.clients PLAN`, PLAN as JSON.

They are those of the simulator (`pharos/sim/workload.py`), with texts of the lengths that it says, in real time. Each
asks again only after its reply. Prints one line of JSON per request. Forbidden here: judging what came.
"""

import asyncio
import sys
import time
from typing import Any, Final

import aiohttp
import msgspec
import uvloop

from hack.bench.routing import text
from hack.bench.routing.chat import Chat, chat
from pharos.sim import workload
from pharos.sim.asks import Ask, Session

TIMEOUT_S: Final = 300.0


class Plan(msgspec.Struct, frozen=True):
    """What clients do."""

    urls: dict[str, str]
    """Model to where it is asked for."""
    users: int
    seed: int
    duration_s: float
    """No request is made after that."""
    drain_s: float = 15.0
    """What has not ended so long after that is called off."""
    pause: float = 1.0
    """Of the simulator's pauses."""
    length: float = 1.0
    """Of its messages."""
    reply: float = 1.0
    """Of its replies."""


class Sample(msgspec.Struct, frozen=True):
    """One request."""

    kind: str
    model: str
    at_s: float
    chat: Chat
    is_whole: bool = True
    """Whether it came to an end before the run's."""


def body(ask: Ask, plan: Plan) -> dict[str, Any]:
    """The request.

    How long its reply becomes is told to the engine in a field of llama.cpp's own, which no router reads: people do not
    say it. Only who wants a single token does.
    """
    reply = max(round(ask.output_tokens * plan.reply), 1)
    asked: dict[str, Any] = {
        "model": ask.model,
        "stream": True,
        "messages": text.messages(ask, plan.length),
        "n_predict": reply,
        "ignore_eos": True,
        "temperature": 0,
    }
    if ask.max_tokens == ask.output_tokens:
        asked["max_tokens"] = reply
    return asked


class Clients:
    """All clients of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: list[Sample] = []
        self._began = 0.0

    async def run(self) -> None:
        """From the first request to the last reply."""
        plan = self.plan
        made = workload.sessions(workload.Mix(plan.users, tuple(plan.urls)), plan.seed)
        self._began = time.perf_counter()
        limits = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=limits, read_bufsize=1 << 18) as session:
            tasks = [asyncio.create_task(self._client(one, session)) for one in made]
            await asyncio.wait(tasks, timeout=plan.duration_s + plan.drain_s)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _client(self, asking: Session, session: aiohttp.ClientSession) -> None:
        while (turn := asking.next()) is not None:
            pause_s = turn.pause_s * self.plan.pause
            if self._now + pause_s > self.plan.duration_s:
                return
            await asyncio.sleep(pause_s)
            await self._ask(turn.ask, session)

    async def _ask(self, ask: Ask, session: aiohttp.ClientSession) -> None:
        at_s, found = self._now, Chat()
        try:
            await chat(session, self.plan.urls[ask.model], msgspec.json.encode(body(ask, self.plan)), found)
            self.samples.append(Sample(ask.kind, ask.model, at_s, found))
        except asyncio.CancelledError:
            found.whole_s = self._now - at_s
            self.samples.append(Sample(ask.kind, ask.model, at_s, found, is_whole=False))
            raise
        if found.error is not None:
            await asyncio.sleep(0.2)  # as clients do before they ask again

    @property
    def _now(self) -> float:
        return time.perf_counter() - self._began


def main() -> int:
    """Run a plan."""
    clients = Clients(msgspec.json.decode(sys.argv[1], type=Plan))
    uvloop.run(clients.run())
    sys.stdout.buffer.write(msgspec.json.Encoder().encode_lines(clients.samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
