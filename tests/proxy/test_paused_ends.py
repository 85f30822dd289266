"""A reply whose last bytes fill its client's transport must not leave the engine's kept connection unread."""

import asyncio

from pharos.proxy.upstream import Connection, Lost, Pool
from tests.proxy.engine_script import WAIT_S, ScriptedEngine, Turn


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


class Full:
    """Takes a reply whose last write is more than its client takes at once."""

    def __init__(self, up: Connection) -> None:
        self.up = up
        self.ended = asyncio.Event()

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        del status, headers, length

    def on_read(self, body: bytes, *, complete: bool) -> None:
        del body
        self.up.pause_reading()
        if complete:
            self.ended.set()

    def on_lost(self, why: Lost) -> None:
        raise AssertionError(why)


async def test_a_kept_connection_is_read_again_though_the_last_bytes_paused_it() -> None:
    engine = ScriptedEngine(ok)
    await engine.start()
    loop = asyncio.get_running_loop()
    pool = Pool(5.0, loop.time)
    up = await pool.fresh(engine.url, engine.url, None)
    try:
        for _ in range(3):
            exchange = Full(up)
            up.begin(exchange, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"{}")
            async with asyncio.timeout(WAIT_S):
                await exchange.ended.wait()
            assert pool.take(engine.url) is up
        assert engine.connections == 1
    finally:
        up.abort()
        await engine.stop()
