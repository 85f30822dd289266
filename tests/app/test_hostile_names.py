"""10,000 names of models and 10,000 keys that a client makes up, sent to a whole Pharos: what it keeps of them."""

import asyncio
import gc
import json
import sys

from tests.app.running import AUTH, KEYS, Running, pharos
from tests.fakes.llamacpp import FakeLlamaCpp

AT_ONCE = 100
WARM = 3000
"""Requests after which everything that remembers the last ones is full."""
ALL = WARM + 10_000
PER_REQUEST = 0.2
"""Blocks of memory that may be left of one; one that is remembered leaves several."""


def _request(number: int) -> bytes:
    """Every second one names a model that nobody has; the others show a key that nobody gave out."""
    body = json.dumps({"model": f"made-up-{number}", "messages": [{"role": "user", "content": "x"}]}).encode()
    key = AUTH["Authorization"] if number % 2 else f"Bearer phk-made-up-{number}"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: {key}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


async def _send(running: Running, first: int, last: int) -> None:
    """As many at once as one connection takes; each is answered with a refusal before the next ones go out."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.app.proxy.port)
    for start in range(first, last, AT_ONCE):
        writer.write(b"".join(_request(number) for number in range(start, start + AT_ONCE)))
        for number in range(start, start + AT_ONCE):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split(b" ", 2)[1] == (b"404" if number % 2 else b"401")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
    writer.close()
    await writer.wait_closed()


async def _kept(running: Running) -> tuple[int, int]:
    """Blocks of memory in use, and lines of `/metrics`."""
    lines = len((await running.get("/metrics"))[1].splitlines())
    gc.collect()
    return sys.getallocatedblocks(), lines


async def test_b53_ten_thousand_models_and_keys_that_a_client_makes_up_leave_neither_memory_nor_series() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=KEYS) as running:
        await _send(running, 0, WARM)
        before, lines = await _kept(running)
        await _send(running, WARM, ALL)
        after, lines_then = await _kept(running)
        assert lines_then == lines
        assert after - before < (ALL - WARM) * PER_REQUEST
