"""A vLLM double: recorded bodies, true slots, queue and cache blocks, one prefix cache that all requests share.

Its gauges are written at each step of an engine, as vLLM does: with `freezes`, requests that are all aborted at once
leave their numbers standing until the next one comes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pharos.clock import Clock, monotonic
from tests.fakes import captures, vllm_pages
from tests.fakes.caches import BLOCK_TOKENS, BlockCache, tokens_of
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.replies import Exchange, Style, book
from tests.fakes.sending import Sending, prompt_text
from tests.fakes.slots import Slots
from tests.fakes.vllm_pages import Counters, Gauges

GENERATING = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
RECORDED_SLOTS = {"0.32.0": 2, "0.32.0-defaults": 256}
JSON = {"Content-Type": "application/json"}
RESTART_S = 100.0
"""How much younger each new process is."""


class DataParallelEngine:
    """One engine of the process: its own slots, queue and cache; its gauges as it last wrote them."""

    def __init__(self, double: "FakeVllm") -> None:
        self._double = double
        self.slots = Slots(double.max_num_seqs, double.changed)
        self.cache = BlockCache(double.kv_blocks * double.block_tokens // BLOCK_TOKENS)
        self.gauges = Gauges()
        self.counters = Counters()
        self.used: dict[object, int] = {}
        """Request to the tokens that it holds in the cache."""
        self.without_cache = 0
        """Requests in a slot that find no room in the cache: they wait."""

    @property
    def running(self) -> int:
        return self.slots.taken - self.without_cache

    @property
    def waiting(self) -> int:
        return self.slots.waiting + self.without_cache

    @property
    def blocks_used(self) -> int:
        return sum(math.ceil(tokens / self._double.block_tokens) for tokens in self.used.values())

    def step(self) -> None:
        """Write the gauges."""
        self.gauges = Gauges(self.running, self.waiting, self.blocks_used / self._double.kv_blocks)

    async def run(self, key: object, sending: Sending, connection: Connection) -> None:
        """Run a generation when there are a place and room in the cache for it."""
        if self.slots.taken >= self.slots.count:
            self.gauges = Gauges(self.running, self.waiting + 1, self.gauges.kv_usage)
        is_in = is_done = False
        try:
            await self.slots.enter()
            is_in = True
            await self._take_room(key, sending.prompt_tokens)
            await sending.run(connection)
            is_done = True
            self.counters.finished += 1
        finally:
            self.used.pop(key, None)
            if is_in:
                self.slots.leave()
            if is_done or not self._double.freezes:
                self.step()
            self._double.changed()

    async def _take_room(self, key: object, tokens: int) -> None:
        need = math.ceil(tokens / self._double.block_tokens)
        self.without_cache += 1
        self.step()
        try:
            await self._double.until(lambda: self.blocks_used + need <= self._double.kv_blocks)
        finally:
            self.without_cache -= 1
        self.used[key] = tokens
        self.step()

    def worked(self, key: object, prompt: int, decoded: int) -> None:
        """Count what a step did for a request."""
        self.counters.prompt_tokens += prompt
        self.counters.generated += decoded
        if key in self.used:
            self.used[key] += decoded
        self.step()


class FakeVllm(EngineDouble):
    """One `vllm serve`.

    `names`: served names of its model. `max_num_seqs`, `kv_blocks`, `max_model_len`: as recorded unless given;
    `engines`: data-parallel ones behind this address. `dev_mode`: it tells its settings, and can be put to sleep.
    """

    def __init__(
        self,
        *,
        version: str = "0.32.0",
        names: Sequence[str] | None = None,
        engines: int = 1,
        max_num_seqs: int | None = None,
        kv_blocks: int | None = None,
        max_model_len: int | None = None,
        dev_mode: bool = False,
        freezes: bool = False,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.version = version
        self.names = tuple(names) if names is not None else vllm_pages.recorded_names(version)
        self.max_num_seqs = max_num_seqs if max_num_seqs is not None else RECORDED_SLOTS[version]
        recorded_blocks, self.block_tokens = vllm_pages.blocks_of(version)
        self.kv_blocks = kv_blocks if kv_blocks is not None else recorded_blocks
        self.max_model_len = max_model_len
        self.dev_mode = dev_mode
        self.freezes = freezes
        self.told_version: str | None = None
        """What /version says instead; may be changed at any time, as by an upgrade."""
        self.renamed: dict[str, str] = {}
        """Series that have another name in this version."""
        self.sleep_level = 0
        self.woken = 0
        self.engines = [DataParallelEngine(self) for _ in range(engines)]
        self._restarts = 0
        self._reported: Gauges | None = None
        self._style = Style(tells_cached=version == "0.32.0")
        self._book = book("vllm", version)

    # What a test reads and sets.

    @property
    def prompts(self) -> list[Seen]:
        return [request for request in self.seen if request.path in GENERATING]

    @property
    def running(self) -> int:
        """Requests that run in any engine."""
        return sum(engine.running for engine in self.engines)

    @property
    def waiting(self) -> int:
        """Requests that wait for a place or for room in the cache of any engine."""
        return sum(engine.waiting for engine in self.engines)

    def report(self, running: int | None = None, waiting: int = 0, kv_usage: float = 0.0) -> None:
        """Let each engine's gauges say this; without arguments they are its own again."""
        self._reported = None if running is None else Gauges(running, waiting, kv_usage)

    @property
    def is_idle(self) -> bool:
        return all(engine.slots.taken == 0 for engine in self.engines)

    def sleep(self, level: int = 1) -> None:
        """Put the model to sleep: its cache is gone."""
        self.sleep_level = level
        for engine in self.engines:
            engine.cache.clear()
        self.changed()

    def wake(self) -> None:
        self.woken += self.sleep_level > 0
        self.sleep_level = 0
        self.changed()

    def reset(self) -> None:
        self.engines = [DataParallelEngine(self) for _ in self.engines]
        self._restarts += 1
        self.sleep_level = 0

    # How it answers.

    async def respond(self, request: Seen, connection: Connection) -> None:
        path = request.path.partition("?")[0]
        if request.method != "POST":
            await connection.send(self._page(request.path))
        elif path in {"/sleep", "/wake_up"} and self.dev_mode:
            self.sleep(int(request.path.partition("level=")[2] or 1)) if path == "/sleep" else self.wake()
            await connection.send(Reply(200, b"", {}))
        else:
            await self._post(request, path, connection)

    def _page(self, path: str) -> Reply:
        pages = captures.state("vllm", self.version, "idle")
        if self.dev_mode and path == "/is_sleeping":
            return Reply(200, json.dumps({"is_sleeping": self.sleep_level > 0}).encode(), JSON)
        if self.dev_mode and path == "/server_info?config_format=json":
            return Reply(200, vllm_pages.settings(self.max_num_seqs, len(self.engines)), JSON)
        recorded = pages.get(path, pages["/props"])
        body = recorded.body
        if path == "/metrics":
            body = self._metrics()
        elif path == "/v1/models":
            body = vllm_pages.cards(self.version, self.names, self.max_model_len)
        elif path == "/version" and self.told_version is not None:
            body = json.dumps({"version": self.told_version}).encode()
        return Reply(recorded.status, body, recorded.headers)

    def _metrics(self) -> bytes:
        told = [(self._reported or engine.gauges, engine.counters) for engine in self.engines]
        return vllm_pages.metrics(
            self.version,
            told,
            model=self.names[0],
            sleep_level=self.sleep_level,
            started=self._restarts * RESTART_S,
            renamed=self.renamed,
        )

    async def _post(self, request: Seen, path: str, connection: Connection) -> None:
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            asked = None
        exact = self._book.exact("POST", path, asked)
        if path not in GENERATING:
            await connection.send((exact or self._book.named("err_unknown_route")).whole)
        elif self.refusals:
            await connection.send(self.refusals.popleft())
        else:
            refusal = self._refusal(asked, exact)
            if refusal is not None:
                await connection.send(refusal)
            else:
                await self.counted(self._generate(path, asked, exact, connection))

    def _refusal(self, asked: Any, exact: Exchange | None) -> Reply | None:
        if exact is not None and exact.reply.status >= 400:
            return exact.whole
        if not isinstance(asked, dict) or not isinstance(asked.get("messages", []), list):
            return self._book.named("err_bad_json_field").whole
        if asked.get("model") not in self.names:
            unknown = self._book.named("err_unknown_model").whole
            body = unknown.body.replace(b"no-such-model", str(asked.get("model")).encode())
            aliases = [", ".join(names).encode() for names in (vllm_pages.recorded_names(self.version), self.names)]
            return Reply(unknown.status, body.replace(*aliases), unknown.headers)
        length = self.max_model_len
        if tokens_of(prompt_text(asked)) > (length if length is not None else vllm_pages.recorded_length(self.version)):
            return self._book.named("err_too_long").whole
        return None

    async def _generate(
        self, path: str, asked: Mapping[str, Any], exact: Exchange | None, connection: Connection
    ) -> None:
        exchange = exact if exact is not None else self._book.like(path, asked, streams=asked.get("stream") is True)
        assert exchange is not None, path
        await self.until(lambda: self.sleep_level == 0)
        engine = min(self.engines, key=lambda one: one.running + one.waiting)
        key = object()
        sending = Sending(
            self,
            exchange,
            asked,
            model=asked["model"],
            cache=engine.cache,
            style=self._style,
            on_tokens=lambda prompt, decoded: engine.worked(key, prompt, decoded),
        )
        await engine.run(key, sending, connection)
        engine.counters.looked_up += sending.prompt_tokens
        engine.counters.found += sending.cached
