import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from pharos import names
from pharos.control.fetch import Fetcher
from pharos.core.engine.probe import FetchFault
from pharos.core.engine.values import MAX_BODY
from tests.fakes.http import Answer, Hang, HttpDouble, Raw, Reply, Reset
from tests.fakes.steps import Steps


@pytest.fixture
async def engine() -> AsyncIterator[HttpDouble]:
    async with HttpDouble() as engine:
        yield engine


async def test_a_reply_comes_home_with_status_body_and_lower_case_headers(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    engine.answers["/props?x=1"] = Reply(200, b"{}", {"Server": "llama.cpp", "X-Two": "b"})
    page = await Fetcher(session, clock=Steps(17.0).clock).get(engine.url, "/props?x=1", 1.0)
    assert (page.status, page.body, page.fault, page.sent_at) == (200, b"{}", None, 17.0)
    assert page.headers["server"] == "llama.cpp"
    assert page.headers["x-two"] == "b"


async def test_a_request_carries_the_engines_own_host_and_nothing_of_anybody_else(
    session: aiohttp.ClientSession, engine: HttpDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    engine.answers["/a"] = Reply(200, b"", {"Set-Cookie": "who=me"})
    fetcher = Fetcher(session)
    for _ in range(2):
        assert (await fetcher.get(engine.url, "/a", 1.0)).status == 200
    assert engine.seen[1].headers == {
        "host": f"127.0.0.1:{engine.port}",
        "user-agent": "pharos",
        "accept": "*/*",
        "accept-encoding": "identity",
    }


async def test_a_redirect_is_an_answer_and_not_followed(session: aiohttp.ClientSession, engine: HttpDouble) -> None:
    engine.answers["/a"] = Reply(302, b"", {"Location": "/b"})
    page = await Fetcher(session).get(engine.url, "/a", 1.0)
    assert (page.status, engine.paths) == (302, ["/a"])


@pytest.mark.parametrize("status", [401, 404, 503])
async def test_an_error_status_is_an_answer(session: aiohttp.ClientSession, engine: HttpDouble, status: int) -> None:
    engine.answers["/a"] = Reply(status, b"no")
    page = await Fetcher(session).get(engine.url, "/a", 1.0)
    assert (page.status, page.body, page.fault) == (status, b"no", None)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        pytest.param(Hang(), FetchFault.TIMEOUT, id="silence after the request"),
        pytest.param(Hang(b"HTTP/1.1 200 OK\r\nContent-Le"), FetchFault.TIMEOUT, id="silence inside the head"),
        pytest.param(
            Hang(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), FetchFault.TIMEOUT, id="inside the body"
        ),
        pytest.param(Reset(), FetchFault.RESET, id="reset at once"),
        pytest.param(Raw(b""), FetchFault.RESET, id="closed at once"),
        pytest.param(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), FetchFault.RESET, id="cut by length"),
        pytest.param(
            Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            FetchFault.RESET,
            id="cut in chunks",
        ),
        pytest.param(
            Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc"), FetchFault.NOT_HTTP, id="bad chunk"
        ),
        pytest.param(Raw(b"SSH-2.0-OpenSSH_9.2\r\n"), FetchFault.NOT_HTTP, id="another protocol"),
        pytest.param(Raw(b"HTTP/1.1 200 OK\r\n", endless=b"X-A: b\r\n" * 99), FetchFault.NOT_HTTP, id="endless head"),
        pytest.param(Raw(b"HTTP/1.1 200 OK\r\nX: ", endless=b"a" * 9999), FetchFault.NOT_HTTP, id="endless header"),
        pytest.param(
            Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"), FetchFault.TOO_LARGE, id="1 GiB announced"
        ),
    ],
)
async def test_each_way_to_give_no_reply_has_its_fault(
    session: aiohttp.ClientSession, engine: HttpDouble, answer: Answer, fault: FetchFault
) -> None:
    engine.every = answer
    page = await Fetcher(session).get(engine.url, "/a", 0.5 if isinstance(answer, Hang) else 10.0)
    assert (page.status, page.body, page.fault) == (None, b"", fault)


async def test_a_gigabyte_is_cut_off_at_the_limit(session: aiohttp.ClientSession, engine: HttpDouble) -> None:
    engine.every = Raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", endless=b"x" * 65536)
    page = await Fetcher(session).get(engine.url, "/a", 10.0, max_bytes=1024 * 1024)
    assert page.fault is FetchFault.TOO_LARGE
    await engine.until(lambda: not engine.connections)
    assert engine.written < 32 * 1024 * 1024  # what fits into the buffers between the two


async def test_a_body_of_exactly_the_limit_is_read(session: aiohttp.ClientSession, engine: HttpDouble) -> None:
    engine.every = Reply(200, b"x" * 1000)
    assert (await Fetcher(session).get(engine.url, "/a", 1.0, max_bytes=1000)).body == b"x" * 1000
    assert (await Fetcher(session).get(engine.url, "/a", 1.0, max_bytes=999)).fault is FetchFault.TOO_LARGE


async def test_a_body_that_claims_to_be_packed_is_left_packed(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    engine.every = Reply(200, b"\x1f\x8b not gzip", {"Content-Encoding": "gzip"})
    page = await Fetcher(session).get(engine.url, "/a", 1.0)
    assert (page.status, page.body) == (200, b"\x1f\x8b not gzip")


async def test_a_closed_port_is_refused_even_after_an_answer_on_a_kept_connection(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    engine.every = Reply(200, b"ok")
    fetcher = Fetcher(session)
    assert (await fetcher.get(engine.url, "/a", 1.0)).status == 200
    engine.kill()
    assert (await fetcher.get(engine.url, "/a", 1.0)).fault is FetchFault.REFUSED


async def test_a_stale_kept_connection_is_replaced_without_a_fault(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    engine.every = Reply(200, b"ok")
    fetcher = Fetcher(session)
    assert (await fetcher.get(engine.url, "/a", 1.0)).status == 200
    await engine.restart()
    assert (await fetcher.get(engine.url, "/a", 1.0)).status == 200


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """The port of a listener whose queue is full: connections to it are neither taken nor refused."""
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.settimeout(0)
            one.connect_ex(full.getsockname())
        yield full.getsockname()[1]


async def test_a_connection_that_is_never_taken_is_no_busy_engine(session: aiohttp.ClientSession) -> None:
    with full_listener() as port:
        assert (await Fetcher(session).get(f"http://127.0.0.1:{port}", "/", 0.2)).fault is FetchFault.UNREACHABLE


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:99999", "http://", "gopher://127.0.0.1"],
)
async def test_an_address_that_leads_nowhere_is_unreachable(session: aiohttp.ClientSession, url: str) -> None:
    assert (await Fetcher(session).get(url, "/", 1.0)).fault is FetchFault.UNREACHABLE


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 70}.example", "http://\udcff.example"])
async def test_a_name_that_nobody_knows_has_its_own_fault(session: aiohttp.ClientSession, url: str) -> None:
    assert (await Fetcher(session).get(url, "/", 5.0)).fault is FetchFault.NAME


async def test_tls_before_an_engine_that_waits_for_a_line_of_http_is_no_lack_of_a_connection(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    page = await Fetcher(session).get(engine.url.replace("http:", "https:"), "/", 0.5)
    assert page.fault is FetchFault.TLS


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["answers in HTTP", "closes"])
async def test_tls_before_a_server_that_speaks_plain_http_has_its_own_fault(
    session: aiohttp.ClientSession, answer: bytes
) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        page = await Fetcher(session).get(f"https://127.0.0.1:{port}", "/", 10.0)
    assert page.fault is FetchFault.TLS


async def test_a_tls_connection_that_is_never_taken_is_no_fault_of_tls(session: aiohttp.ClientSession) -> None:
    with full_listener() as port:
        assert (await Fetcher(session).get(f"https://127.0.0.1:{port}", "/", 0.2)).fault is FetchFault.UNREACHABLE


async def test_bytes_that_are_no_text_do_no_harm(session: aiohttp.ClientSession, engine: HttpDouble) -> None:
    engine.every = Raw(b"HTTP/1.1 200 OK\r\nX-Name: \xff\xfe\r\nContent-Length: 2\r\n\r\n\xff\x00")
    page = await Fetcher(session).get(engine.url, "/a", 1.0)
    assert (page.status, page.body) == (200, b"\xff\x00")


async def test_nothing_is_read_that_is_too_long_to_be_parsed(
    session: aiohttp.ClientSession, engine: HttpDouble
) -> None:
    engine.every = Reply(404, b"x" * MAX_BODY)
    assert len((await Fetcher(session).get(engine.url, "/a", 20.0)).body) == MAX_BODY
    engine.every = Reply(404, b"x" * (MAX_BODY + 2))
    assert (await Fetcher(session).get(engine.url, "/a", 20.0)).fault is FetchFault.TOO_LARGE


async def test_names_are_looked_up_aside_and_every_address_is_tried(
    session: aiohttp.ClientSession, engine: HttpDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lookup(name: str) -> list[names.Address]:
        if name == "dead.example":
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [
            (socket.AF_INET6, *kind, ("fe80::1", 0, 0, 1)),
            (socket.AF_INET, *kind, ("127.0.0.9", 0)),
            (socket.AF_INET, *kind, ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(names, "lookup", lookup)
    engine.every = Reply(200, b"ok")
    assert (await Fetcher(session).get(f"http://gpu.example:{engine.port}", "/a", 20.0)).body == b"ok"
    assert engine.seen[0].headers["host"] == f"gpu.example:{engine.port}"
    assert (await Fetcher(session).get("http://dead.example", "/a", 20.0)).fault is FetchFault.NAME
    tls = await Fetcher(session).get(f"https://gpu.example:{engine.port}", "/a", 2.0)
    assert tls.fault in {FetchFault.TLS, FetchFault.UNREACHABLE}
