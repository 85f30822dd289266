import aiohttp

from pharos.control.discovery import loopback
from pharos.control.fetch import Fetcher
from tests.fakes.http import HttpDouble, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase


async def test_engines_on_the_ports_are_found_with_what_shows_them(session: aiohttp.ClientSession) -> None:
    async with (
        FakeLlamaCpp() as ready,
        FakeLlamaCpp(phase=Phase.LOADING) as loading,
        HttpDouble() as web,
        HttpDouble() as gone,
    ):
        web.every = Reply(200, b"<html>hello</html>", {"Content-Type": "text/html"})
        gone.kill()
        ports = (web.port, ready.port, gone.port, loading.port)
        found = await loopback.find(ports, fetcher=Fetcher(session))
    assert [(one.url, one.kind) for one in found] == [(ready.url, "llamacpp"), (loading.url, None)]
    assert "build_info" in found[0].evidence
    assert "starting" in found[1].evidence


async def test_it_brings_its_own_session_when_given_none() -> None:
    async with FakeLlamaCpp() as engine:
        assert [one.kind for one in await loopback.find((engine.port,))] == ["llamacpp"]
