"""Asking a port of this machine whether anybody listens."""

import asyncio
import contextlib
import random
import socket

BELOW_OUTGOING = (20_000, 32_000)
"""Ports that Linux gives nobody who did not ask for them."""


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (ConnectionRefusedError, ConnectionResetError):  # reset: the listener closed while it was being asked
        return True
    writer.close()
    return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that the system gives no outgoing connection meanwhile.

    Somebody else may take it all the same before it is used: see `reserve`.
    """
    while True:
        port = random.randrange(*BELOW_OUTGOING)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def reserve() -> socket.socket:
    """Keep a port of 127.0.0.1 as long as this is open: nobody is given it by chance, and nobody is answered there.

    A server that asks for this very port gets it all the same, as servers set `SO_REUSEADDR` and this does not listen.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


def port_of(kept: socket.socket) -> int:
    return int(kept.getsockname()[1])
