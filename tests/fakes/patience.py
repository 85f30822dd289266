"""A fetcher for tests on a busy machine: gives up soon where the double hangs on purpose, and nowhere else."""

from typing import Any

import aiohttp

from pharos.clock import Clock
from pharos.control.fetch import MAX_BYTES, Fetcher
from pharos.core.engine.probe import Page
from tests.fakes.http import Hang, HttpDouble


class Patient(Fetcher):
    """The real fetcher, whose time-outs come only from doubles that hang."""

    def __init__(self, session: aiohttp.ClientSession, *doubles: HttpDouble, clock: Clock) -> None:
        super().__init__(session, clock=clock)
        self._doubles = doubles

    async def get(self, url: str, path: str, timeout_s: float, max_bytes: int = MAX_BYTES, **rest: Any) -> Page:
        del timeout_s
        hangs = any(
            isinstance(double.every if double.every is not None else double.answers.get(path), Hang)
            for double in self._doubles
            if double.url == url
        )
        return await super().get(url, path, 0.05 if hangs else 20.0, max_bytes, **rest)
