"""A double of mlx-lm's server: recorded bodies; one model is in memory at a time, and its list is what the disk has.

Nothing tells what runs or what is loaded: `running`, `waiting` and `model` are for tests. A request for another model
on the disk unloads the one in memory, once nothing runs there.
"""

import json
from collections.abc import Sequence
from typing import Any

from pharos.clock import Clock, monotonic
from pharos.core.assumptions import ASSUMPTIONS
from tests.fakes import captures
from tests.fakes.caches import SlotCache
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Raw, Reply, Seen
from tests.fakes.replies import Exchange, Style, book
from tests.fakes.sending import Sending
from tests.fakes.slots import Slots

ENGINE, VERSION = "mlx-lm", "0.32.2"
DEFAULT = "default_model"
"""Stands for the model that it was started with."""
GENERATING = frozenset({"/v1/chat/completions", "/v1/completions"})
CONCURRENCY = 32
"""Requests of one model that are decoded together, unless told otherwise."""
LOAD_S = ASSUMPTIONS["load_s"].value
STYLE = Style()


class FakeMlxLm(EngineDouble):
    """One `mlx_lm.server`.

    `disk`: models in its folder, the first of which it was started with; `None`: there is no such folder, and it closes
    the connection of who asks for the list.
    """

    def __init__(
        self,
        *,
        disk: Sequence[str] | None = ("/models/tiny",),
        concurrency: int = CONCURRENCY,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.disk = tuple(disk) if disk is not None else None
        self.concurrency = concurrency
        self.model: str | None = None
        """The model in memory; `None`: none yet."""
        self.loads: list[str] = []
        self._places = Slots(concurrency, self.changed)
        self._cache = SlotCache(concurrency)
        self._turns: list[object] = []
        self._book = book(ENGINE, VERSION)

    @property
    def prompts(self) -> list[Seen]:
        return [request for request in self.seen if request.path in GENERATING]

    @property
    def running(self) -> int:
        return self._places.taken

    @property
    def waiting(self) -> int:
        """Requests that wait for a place, or for their model."""
        return self._places.waiting + len(self._turns)

    @property
    def is_idle(self) -> bool:
        return self.running == 0 and not self._turns

    def reset(self) -> None:
        self.model = None
        self._cache.clear()

    async def respond(self, request: Seen, connection: Connection) -> None:
        path = request.path.partition("?")[0]
        if request.method == "GET" and path == "/v1/models" and self.disk is None:
            await connection.send(Raw(b""))
        elif request.method == "POST" and path in GENERATING:
            await self._post(request, path, connection)
        else:
            await connection.send(self._page(request.method, path))

    def _page(self, method: str, path: str) -> Reply:
        recorded = captures.state(ENGINE, VERSION, "idle").get(path)
        if method != "GET" or recorded is None:
            return self._book.named("err_unknown_route").whole
        body = recorded.body
        if path == "/v1/models":
            listed = json.loads(body)
            listed["data"] = [{**listed["data"][0], "id": name} for name in self.disk or ()]
            body = json.dumps(listed).encode()
        return Reply(recorded.status, body, recorded.headers)

    async def _post(self, request: Seen, path: str, connection: Connection) -> None:
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict) or not isinstance(asked.get("messages", []), list):
            await connection.send(self._book.named("err_bad_json_field").whole)
            return
        on_disk = self.disk if self.disk is not None else ("/models/tiny",)
        wanted = asked.get("model", DEFAULT)
        name = on_disk[0] if wanted == DEFAULT else wanted
        if name not in on_disk:
            await connection.send(self._book.named("err_unknown_model").whole)
        elif self.refusals:
            await connection.send(self.refusals.popleft())
        else:
            exchange = self._book.exact("POST", path, asked) or self._book.like(
                path, asked, streams=asked.get("stream") is True
            )
            assert exchange is not None, path
            await self.counted(self._generate(name, wanted, exchange, asked, connection))

    async def _generate(
        self, name: str, wanted: str, exchange: Exchange, asked: dict[str, Any], connection: Connection
    ) -> None:
        await self._bring(name)
        sending = Sending(self, exchange, asked, model=wanted, cache=self._cache, style=STYLE)
        await self._places.enter()
        try:
            await sending.run(connection)
        finally:
            self._places.leave()

    async def _bring(self, name: str) -> None:
        """Load a model in place of the one that is there, once that one is idle; in order of arrival."""
        if self.model == name and not self._turns:
            return
        turn = object()
        self._turns.append(turn)
        try:
            await self.until(lambda: self._turns[0] is turn and (self.model == name or self.running == 0))
            if self.model != name:
                self._cache.clear()
                self.loads.append(name)
                self.model = None
                await self.load_time(LOAD_S)
                self.model = name
        finally:
            self._turns.remove(turn)
            self.changed()
