"""Plays a preset: people who ask, read the reply, think, and ask on with it. Forbidden here: judging what came."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from hack.bench.routing.chat import Chat, chat
from hack.scenario.presets import Preset, Role
from hack.scenario.talk import Voice, instructions

TRIES: Final = 3
"""Times that somebody asks the same before they give up."""
AGAIN_S: Final = 1.0
TIMEOUT_S: Final = 300.0


class Asked(msgspec.Struct, frozen=True):
    """One request."""

    kind: str
    person: int
    key: str
    model: str
    turn: int
    at_s: float
    engine: str | None
    """Where it went, as far as the client knows."""
    chat: Chat


class Way(msgspec.Struct, frozen=True):
    """How requests get to the engines."""

    url: Callable[[int, int], tuple[str, str | None]]
    """Person and number of the request to the address, and the engine behind it (`None`: the reply says so)."""
    keys: dict[str, str]
    """Name of a key to the key."""


class Play:
    """One run of a preset."""

    def __init__(self, preset: Preset, models: Sequence[str], way: Way, seed: int) -> None:
        self.asked: list[Asked] = []
        self._preset = preset
        self._models = models
        self._way = way
        self._seed = seed
        self._began = time.perf_counter()
        self._sent = 0

    async def run(self, kill: Callable[[int | None], Awaitable[None]]) -> list[Asked]:
        """From the first question to the last reply. `kill` ends an engine."""
        self._began = time.perf_counter()
        people, persons = [], 0
        connector, limits = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limits) as session:
            for role in self._preset.roles:
                for number in range(role.count):
                    people.append(asyncio.create_task(self._person(role, number, persons, session)))
                    persons += 1
            killing = [asyncio.create_task(self._at(one.at_s, kill, one.engine)) for one in self._preset.kills]
            try:
                await asyncio.gather(*people)
            finally:
                for task in (*people, *killing):
                    task.cancel()
                await asyncio.gather(*people, *killing, return_exceptions=True)
        return self.asked

    async def _at(self, at_s: float, kill: Callable[[int | None], Awaitable[None]], engine: int | None) -> None:
        await asyncio.sleep(at_s)
        await kill(engine)

    async def _person(self, role: Role, number: int, person: int, session: aiohttp.ClientSession) -> None:
        voice = Voice(self._seed, role.kind, number)
        model = self._models[role.models[number % len(role.models)] % len(self._models)]
        messages: list[dict[str, Any]] = [{"role": "system", "content": instructions(role.kind, role.system)}]
        await asyncio.sleep(voice.chance.uniform(0.0, role.comes_s))
        for turn in range(role.turns):
            if turn:
                await asyncio.sleep(voice.pause(role.think_s))
            messages.append({"role": "user", "content": voice.say(role.message)})
            asked = {
                "model": model, "stream": True, "messages": messages, "max_tokens": role.reply,
                "stream_options": {"include_usage": True},
            }  # fmt: skip
            said = await self._turn(role, person, turn, model, voice.body(asked), session)
            if said is None:
                return
            messages.append({"role": "assistant", "content": said})

    async def _turn(
        self, role: Role, person: int, turn: int, model: str, body: bytes, session: aiohttp.ClientSession
    ) -> str | None:
        """Ask until there is a reply; `None`: they gave up."""
        for _ in range(TRIES):
            url, engine = self._way.url(person, self._sent)
            self._sent += 1
            found, at_s = Chat(), time.perf_counter() - self._began
            try:
                await chat(session, url, body, found, key=self._way.keys.get(role.key), keep=True)
            finally:
                where = engine if engine is not None else found.target
                self.asked.append(Asked(role.kind, person, role.key, model, turn, at_s, where, found))
            if found.error is None:
                return found.text
            if found.error.startswith("400 "):  # it will not become right by asking again
                return None
            await asyncio.sleep(AGAIN_S)
        return None
