"""Names are looked up once at a time, and a dead one is nobody else's trouble."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections import Counter

import pytest

from pharos.names import REMEMBER_S, SLOW_S, Address, Names, is_address, lookup, with_port
from tests.fakes.steps import Steps

HERE: list[Address] = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))]


class Server:
    """A name server that keeps silent about some names until it is let go."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.gate = threading.Event()

    def find(self, host: str) -> list[Address]:
        self.asked[host] += 1
        if host.startswith("dead"):
            self.gate.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        if host.startswith("bad"):
            raise ValueError(host)
        return HERE


async def test_a_dead_name_is_looked_up_once_however_many_ask_and_holds_up_no_other() -> None:
    server, steps = Server(), Steps()
    names = Names(server.find, threads=2, clock=steps.clock)
    waiting = [asyncio.create_task(names.addresses("dead")) for _ in range(40)]
    await asyncio.sleep(0)
    for _ in range(20):
        assert await names.addresses("good") == HERE
    assert repr(names) == "<Names 1 looked up by 1 threads, 0 failed>"
    for one in waiting[:20]:
        one.cancel()
    await asyncio.gather(*waiting[:20], return_exceptions=True)
    steps.now += SLOW_S
    with pytest.raises(socket.gaierror, match="does not answer"):
        await names.addresses("dead")  # long since asked: nobody waits for as long again
    server.gate.set()
    for error in await asyncio.gather(*waiting[20:], return_exceptions=True):
        assert isinstance(error, socket.gaierror)
    assert server.asked == {"dead": 1, "good": 20}


async def test_a_name_that_failed_is_asked_for_again_only_after_a_while() -> None:
    server, steps = Server(), Steps()
    server.gate.set()
    names = Names(server.find, clock=steps.clock)
    for _ in range(3):
        with pytest.raises(socket.gaierror):
            await names.addresses("dead")
    assert server.asked["dead"] == 1
    steps.now += REMEMBER_S
    with pytest.raises(socket.gaierror):
        await names.addresses("dead")
    assert server.asked["dead"] == 2


async def test_more_names_than_threads_wait_their_turn_and_any_fault_reaches_those_who_wait() -> None:
    server = Server()
    names = Names(server.find, threads=1)
    first = asyncio.create_task(names.addresses("dead"))
    await asyncio.sleep(0)
    second, third = (asyncio.create_task(names.addresses(name)) for name in ("good", "bad"))
    await asyncio.sleep(0)
    assert server.asked == {"dead": 1}
    server.gate.set()
    assert await second == HERE
    with pytest.raises(OSError, match="ValueError"):
        await third
    with pytest.raises(socket.gaierror):
        await first


async def test_addresses_and_names_of_this_machine_resolve_and_take_a_port() -> None:
    (only,) = await lookup("127.0.0.1")
    assert with_port(only, 80)[4] == ("127.0.0.1", 80)
    assert "127.0.0.1" in {found[4][0] for found in await lookup("localhost")}
    assert (is_address("::1"), is_address("fe80::1%eth0"), is_address("gpu1")) == (True, True, False)
    with pytest.raises((OSError, UnicodeError)):
        await lookup("a..b")


def test_the_program_ends_while_a_name_is_still_looked_up() -> None:
    program = (
        "import asyncio, threading\n"
        "from pharos.names import Names\n"
        "names = Names(lambda host: threading.Event().wait() and [])\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.01): await names.addresses('dead')\n"
        "    except TimeoutError: pass\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0
