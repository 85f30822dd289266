import socket
from typing import TYPE_CHECKING, Any, cast

import pytest

from pharos.proxy.upstream import SILENT_LIMIT, SLICE, Connection, Lost, Pool

if TYPE_CHECKING:
    import asyncio


class Wire:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False
        self.reading = True
        self.extra: dict[str, Any] = {"sslcontext": "as if"}

    def get_extra_info(self, name: str) -> Any:
        return self.extra.get(name)

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Seen:
    """An exchange that only remembers."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None
        self.body = b""
        self.reads = 0
        self.complete = False
        self.lost: Lost | None = None

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        self.status, self.headers, self.length = status, list(headers), length

    def on_read(self, body: bytes, *, complete: bool) -> None:
        assert not self.complete
        self.reads += 1
        self.body += body
        self.complete = complete

    def on_lost(self, why: Lost) -> None:
        assert not self.complete
        self.lost = why


def begun(body: bytes = b"{}") -> tuple[Connection, Wire, Seen, list[Connection]]:
    released: list[Connection] = []
    connection = Connection("http://e", released.append, 0.0)
    wire, seen = Wire(), Seen()
    connection.connection_made(cast("asyncio.BaseTransport", wire))
    connection.begin(seen, b"HEAD", body)
    return connection, wire, seen, released


def test_many_chunks_in_one_read_come_as_one_piece() -> None:
    connection, _, seen, released = begun()
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"3\r\nabc\r\n" * 64)
    assert (seen.reads, seen.body) == (1, b"abc" * 64)
    assert not seen.complete
    connection.data_received(b"0\r\n\r\n")
    assert seen.complete
    assert released == [connection]


@pytest.mark.parametrize("size", range(1, 40))
def test_a_reply_cut_anywhere_is_read_the_same(size: int) -> None:
    reply = b"HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"
    connection, _, seen, released = begun()
    for at in range(0, len(reply), size):
        connection.data_received(reply[at : at + size])
    assert (seen.status, seen.body, seen.complete) == (200, b"hello", True)
    assert seen.headers == [(b"A", b"1"), (b"Transfer-Encoding", b"chunked")], "a trailer is no header"
    assert released == [connection]


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"])
@pytest.mark.parametrize("apart", [True, False])
def test_an_interim_reply_is_not_the_reply(interim: bytes, apart: bool) -> None:  # noqa: FBT001
    connection, _, seen, released = begun()
    final = b"HTTP/1.1 200 OK\r\nB: 2\r\nContent-Length: 2\r\n\r\nok"
    for data in (interim, interim, final) if apart else (interim + interim + final,):
        connection.data_received(data)
    assert (seen.status, seen.body, seen.complete) == (200, b"ok", True)
    assert seen.headers == [(b"B", b"2"), (b"Content-Length", b"2")]
    assert released == [connection]


def test_switching_protocols_is_no_reply() -> None:
    connection, wire, seen, _ = begun()
    connection.data_received(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nrest")
    assert seen.lost is Lost.BAD_REPLY
    assert wire.closed


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=",
    ],
    ids=["header", "trailer", "chunk extension"],
)
def test_what_never_gives_a_body_is_refused(start: bytes) -> None:
    connection, wire, seen, _ = begun()
    connection.data_received(start)
    fed = 0
    while seen.lost is None:
        connection.data_received(b"x" * 65536)
        fed += 65536
        assert fed <= SILENT_LIMIT + 65536
    assert seen.lost is Lost.BAD_REPLY
    assert wire.closed


@pytest.mark.parametrize("status", ["000", "099", "001"])
def test_a_status_below_100_is_no_reply(status: str) -> None:
    connection, wire, seen, _ = begun()
    odd = f"HTTP/1.1 {status} Odd\r\nContent-Length: 4\r\n\r\nEVIL".encode()
    connection.data_received(odd + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert seen.lost is Lost.BAD_REPLY
    assert seen.status == 0
    assert wire.closed


@pytest.mark.parametrize("apart", [True, False])
def test_a_body_of_an_interim_reply_never_gets_into_the_reply(apart: bool) -> None:  # noqa: FBT001
    connection, _, seen, _ = begun()
    interim = b"HTTP/1.1 102 Odd\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nEVIL\r\n0\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for data in (interim, final) if apart else (interim + final,):
        connection.data_received(data)
    assert b"EVIL" not in seen.body
    assert seen.lost is not None or seen.body == b"ok"


@pytest.mark.parametrize("status", [204, 304])
def test_a_reply_that_has_no_body_ends_with_its_head(status: int) -> None:
    connection, _, seen, released = begun()
    connection.data_received(b"HTTP/1.1 %d None\r\n\r\n" % status)
    assert seen.complete
    assert released == [connection]


def test_a_close_delimited_reply_ends_with_the_connection_only() -> None:
    connection, _, seen, released = begun()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    connection.data_received(b" and half")
    assert not seen.complete
    connection.eof_received()
    connection.connection_lost(None)
    assert (seen.body, seen.complete) == (b"half and half", True)
    assert released == []


def test_a_close_delimited_reply_that_is_reset_is_not_whole() -> None:
    connection, _, seen, _ = begun()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    connection.connection_lost(ConnectionResetError())
    assert seen.lost is Lost.CLOSED


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
def test_a_framed_reply_that_breaks_off_is_not_whole(framing: bytes) -> None:
    connection, _, seen, _ = begun()
    connection.data_received(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing)
    connection.connection_lost(None)
    assert seen.lost is Lost.CLOSED


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokrubbish",
    ],
)
def test_a_connection_that_may_not_be_used_again_is_closed(reply: bytes) -> None:
    connection, wire, seen, released = begun()
    connection.data_received(reply)
    assert (seen.body, seen.complete) == (b"ok", True)
    assert released == []
    assert wire.closed


def test_good_bytes_before_broken_framing_are_handed_on() -> None:
    connection, wire, seen, _ = begun()
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
    assert seen.body == b"hello"
    assert seen.lost is Lost.BAD_REPLY
    assert wire.closed


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_told_from_a_death(reply: bytes) -> None:
    connection, _, seen, _ = begun()
    connection.data_received(reply)
    assert seen.lost is Lost.BAD_REPLY


def test_a_big_body_is_sent_in_pieces_as_the_engine_takes_them() -> None:
    body = bytes(range(256)) * (4 * SLICE // 256)
    connection, wire, _, _ = begun(b"")
    wire.sent.clear()
    write = wire.write

    def full(data: Any) -> None:
        write(data)
        connection.pause_writing()

    wire.write = full  # type: ignore[method-assign]
    connection.begin(Seen(), b"HEAD", body)
    assert [len(part) for part in wire.sent] == [4]
    for _ in range(4):
        assert not connection.is_sent
        connection.resume_writing()
    assert b"".join(wire.sent) == b"HEAD" + body
    assert connection.is_sent


def test_a_reply_that_comes_before_the_request_is_sent_ends_the_connection() -> None:
    connection, wire, seen, released = begun(b"")
    connection.pause_writing()
    connection.begin(seen, b"HEAD", b"x" * (2 * SLICE))
    connection.data_received(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
    assert (seen.status, seen.body, seen.complete) == (413, b"no", True)
    assert released == []
    assert wire.closed


def test_a_paused_connection_is_read_again_before_it_is_kept() -> None:
    connection, wire, _, released = begun()
    connection.pause_reading()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert wire.reading
    assert released == [connection]


def test_an_aborted_exchange_hears_nothing_more() -> None:
    connection, wire, seen, _ = begun()
    connection.abort()
    connection.connection_lost(None)
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert wire.closed
    assert (seen.status, seen.lost) == (0, None)


def used(pool: Pool) -> tuple[Connection, Wire]:
    """A connection of the pool that has just served one request."""
    connection, wire = Connection("http://e", pool._released, 0.0), Wire()
    connection.connection_made(cast("asyncio.BaseTransport", wire))
    connection.begin(Seen(), b"HEAD", b"{}")
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    return connection, wire


def test_256_idle_connections_are_kept_per_backend_and_one_more_is_closed() -> None:
    pool = Pool(5.0, lambda: 0.0)
    kept = [used(pool) for _ in range(256)]
    assert pool.idle("http://e") == 256
    _, one_more = used(pool)
    assert pool.idle("http://e") == 256
    assert one_more.closed
    assert not any(wire.closed for _, wire in kept)


def test_an_idle_connection_is_used_again_within_60_s_and_closed_after_that() -> None:
    now = 100.0
    pool = Pool(5.0, lambda: now)
    first, _ = used(pool)
    now = 159.9
    assert pool.take("http://e") is first
    _, wire = used(pool)
    now = 220.0
    assert pool.take("http://e") is None
    assert wire.closed
    assert pool.idle("http://e") == 0


def refused_upload(late: bytes, error: Exception | None) -> tuple[Connection, Seen, socket.socket]:
    """A connection that ends by `error` inside a large body; `late` came from the engine and was not read."""
    connection, wire, _, _ = begun()
    ours, engine = socket.socketpair()
    wire.extra = {"socket": ours}
    connection.pause_writing()
    seen = Seen()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    connection.begin(seen, b"HEAD", b"x" * (2 * SLICE))
    engine.sendall(late)
    ours.close()
    connection.connection_lost(error)
    return connection, seen, engine


def test_an_answer_that_a_failed_write_overtook_is_read_after_all() -> None:
    late = b"HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo long"
    connection, seen, engine = refused_upload(late, BrokenPipeError())
    assert (seen.status, seen.body, seen.complete, seen.lost) == (413, b"too long", True, None)
    assert connection.was_refused
    assert engine.recv(1) == b"", "nothing keeps the socket open"
    engine.close()


@pytest.mark.parametrize("late", [b"", b"HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo"])
def test_a_connection_that_ends_inside_the_request_without_an_answer_says_so(late: bytes) -> None:
    connection, seen, engine = refused_upload(late, BrokenPipeError())
    assert seen.lost is Lost.CLOSED
    assert connection.was_refused
    assert engine.recv(1) == b""
    engine.close()


def test_a_body_in_parts_is_sent_as_one() -> None:
    for filler in (b"y", b"y" * SLICE):
        connection, wire, _, _ = begun()
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        wire.sent.clear()
        connection.begin(Seen(), b"HEAD", memoryview(filler), b"-", memoryview(b"z" * 3))
        assert b"".join(wire.sent) == b"HEAD" + filler + b"-zzz"
        assert connection.is_sent
