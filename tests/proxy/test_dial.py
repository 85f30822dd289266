import asyncio
import socket

import pytest

from pharos import names
from pharos.names import Address
from pharos.proxy.dial import DialError, dial, endpoint


class Kept(asyncio.Protocol):
    """Keeps its transport, so that it can be closed."""

    transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]


async def test_the_next_address_is_tried_when_one_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def both(name: str) -> list[Address]:
        assert name == "engine.example"
        kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [
            (socket.AF_INET6, *kind, ("::1", 0, 0, 0)),
            (socket.AF_INET, *kind, ("127.0.0.9", 0)),
            (socket.AF_INET, *kind, ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(names, "lookup", both)
    made = await dial(f"http://engine.example:{port}", Kept, 5.0)
    assert not made.transport.is_closing()
    made.transport.abort()
    server.close()
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("url", "address", "host"),
    [
        ("http://[2001:db8::7]:8000", "2001:db8::7", b"[2001:db8::7]:8000"),
        ("http://[2001:DB8::7]", "2001:db8::7", b"[2001:DB8::7]"),
        ("http://[fe80::1%25eth0]:8000/v", "fe80::1%eth0", b"[fe80::1]:8000"),
        ("http://[fe80::1%25eth0]", "fe80::1%eth0", b"[fe80::1]"),
    ],
)
def test_an_address_of_ipv6_has_brackets_and_its_interface_stays_here(url: str, address: str, host: bytes) -> None:
    where = endpoint(url)
    assert (where.address, where.host) == (address, host)


async def test_failures_say_what_happened_and_name_no_address() -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(DialError, match=r"^connection refused$"):
        await dial(f"http://127.0.0.1:{port}", asyncio.Protocol, 5.0)
    with pytest.raises(DialError, match="resolved"):
        await dial(f"http://{'a' * 70}.example", asyncio.Protocol, 5.0)
