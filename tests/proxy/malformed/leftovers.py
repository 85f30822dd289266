"""What a connection must not leave behind in the proxy."""

import asyncio
from pathlib import Path

import pharos
from tests.proxy.engine_script import WAIT_S
from tests.proxy.harness import Front

HOME = str(Path(pharos.__file__).parent)


def tasks() -> list[str]:
    """Tasks of the proxy that still run."""
    running = (task.get_coro() for task in asyncio.all_tasks())
    return [coro.cr_code.co_name for coro in running if coro is not None and coro.cr_code.co_filename.startswith(HOME)]


def leftovers(front: Front) -> dict[str, object]:
    """Everything that is not as it was, by its name."""
    found = {
        "slots": front.inflight,
        "leases": front.ledger.leased,
        "waiting": front.ledger.waiting,
        "requests": front.proxy.inflight,
        "buffered bytes": front.proxy.routes.buffers.used,
        "connections": front.proxy.connections,
        "tasks": tasks(),
    }
    return {name: what for name, what in found.items() if what}


async def until_nothing_is_left(front: Front) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while leftovers(front):
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"left behind: {leftovers(front)}") from None
