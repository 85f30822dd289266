"""Compressed request bodies: what is unpacked, what is refused, and what it costs."""

import asyncio
import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy import encoding
from pharos.proxy.body import Buffers, Reservation
from pharos.proxy.encoding import AT_ONCE, MOST_CODINGS, MOST_MEMBERS, WINDOW_LOG, codings, unpack, unpack_at_once
from pharos.proxy.errors import PharosError
from pharos.proxy.settings import KIB, MIB, ProxySettings
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import chat, front
from tests.proxy.test_audio import PATH, TYPE, form

Pack = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Pack]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
}
EVERY = pytest.mark.parametrize(("coding", "pack"), PACKERS.values(), ids=PACKERS)
NOISE = random.Random(1).randbytes(700_000)


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


async def unpacked(packed: bytes, done: tuple[str, ...], limit: int = 32 * MIB) -> bytes:
    """Either way, which must agree where both are taken."""
    reservation = Reservation(Buffers(256 * MIB))
    reservation.grow_to(len(packed))
    whole = await unpack(packed, done, limit, reservation)
    assert unpack_at_once(packed, done, limit) in (None, whole)
    return whole


def refusal(act: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(PharosError) as caught:
        act()
    return caught.value.status, caught.value.code


# --- which codings


@pytest.mark.parametrize(
    ("values", "done"),
    [
        (["gzip"], ("gzip",)),
        (["  GZip\t"], ("gzip",)),
        (["identity"], ()),
        ([""], ()),
        (["gzip, zstd"], ("gzip", "zstd")),
        (["gzip,, identity ,zstd"], ("gzip", "zstd")),
        (["deflate", "x-gzip"], ("deflate", "x-gzip")),
    ],
)
def test_codings_are_read_in_the_order_in_which_they_were_applied(values: list[str], done: tuple[str, ...]) -> None:
    assert codings(values) == done


@pytest.mark.parametrize(
    "values", [["br"], ["gzip, br"], ["gzip;q=1"], ["gzip zstd"], ["gz\udcffip"], ["gzip," * (MOST_CODINGS + 1)]]
)
def test_other_codings_and_too_many_of_them_are_a_415(values: list[str]) -> None:
    assert refusal(lambda: codings(values)) == (415, "unsupported_encoding")


# --- unpacking


@EVERY
@pytest.mark.parametrize("size", [1, 10_000, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * MIB])
async def test_a_body_of_any_size_comes_back_as_it_was(coding: str, pack: Pack, size: int) -> None:
    plain = (b"a prompt that says much the same again and again. " * (size // 50 + 1))[:size]
    assert await unpacked(pack(plain), (coding,)) == plain


@EVERY
async def test_what_does_not_compress_comes_back_too(coding: str, pack: Pack) -> None:
    assert await unpacked(pack(NOISE), (coding,)) == NOISE


async def test_the_coding_applied_last_comes_off_first() -> None:
    plain = chat() * 100
    packed = zlib.compress(zstd.compress(gzip.compress(plain)))
    assert await unpacked(packed, ("gzip", "zstd", "deflate")) == plain


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
@pytest.mark.parametrize("count", [2, 5, MOST_MEMBERS])
async def test_a_body_may_have_several_members(coding: str, pack: Pack, count: int) -> None:
    parts = [b"part %d " % number * (number % 7) for number in range(count)]
    assert await unpacked(b"".join(map(pack, parts)), (coding,)) == b"".join(parts)


async def test_a_skippable_frame_of_zstd_holds_nothing() -> None:
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    assert await unpacked(skipped + zstd.compress(b"x"), ("zstd",)) == b"x"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
async def test_too_many_members_are_refused(coding: str, pack: Pack) -> None:
    with pytest.raises(PharosError, match="members") as caught:
        await unpacked(pack(b"") * (MOST_MEMBERS + 1), (coding,))
    assert caught.value.status == 400


@EVERY
async def test_a_body_cut_anywhere_is_broken(coding: str, pack: Pack) -> None:
    packed = pack(chat())
    for size in range(len(packed)):
        assert refusal(lambda size=size: unpack_at_once(packed[:size], (coding,), MIB)) == (400, "invalid_encoding")
    large = pack(NOISE)
    with pytest.raises(PharosError, match="its end is missing"):
        await unpacked(large[:-1], (coding,))


@EVERY
@pytest.mark.parametrize("more", [b"\0", b"\0" * 100, b"{}", b"\x1f", b"\x28\xb5\x2f", NOISE[: 100 * KIB]])
async def test_bytes_behind_the_end_are_refused(coding: str, pack: Pack, more: bytes) -> None:
    for plain in (chat(), NOISE):
        with pytest.raises(PharosError) as caught:
            await unpacked(pack(plain) + more, (coding,))
        assert (caught.value.status, caught.value.code) == (400, "invalid_encoding")


@EVERY
async def test_a_body_that_is_something_else_is_broken(coding: str, pack: Pack) -> None:
    assert refusal(lambda: unpack_at_once(b'{"model":"m"}', (coding,), MIB)) == (400, "invalid_encoding")
    damaged = bytearray(pack(NOISE[:1000]))
    damaged[len(damaged) // 2] ^= 0xFF
    damaged[-1] ^= 0xFF
    if coding != "zstd" and pack is not raw_deflate:  # these have no check sum unless asked to
        assert refusal(lambda: unpack_at_once(bytes(damaged), (coding,), MIB)) == (400, "invalid_encoding")


def test_a_window_beyond_what_http_allows_is_refused() -> None:
    def packed(log: int) -> bytes:
        options = {zstd.CompressionParameter.window_log: log, zstd.CompressionParameter.content_size_flag: 0}
        packer = zstd.ZstdCompressor(options=options)
        return packer.compress(b"x" * 100) + packer.flush()

    assert unpack_at_once(packed(WINDOW_LOG), ("zstd",), MIB) == b"x" * 100
    assert refusal(lambda: unpack_at_once(packed(WINDOW_LOG + 1), ("zstd",), MIB)) == (400, "invalid_encoding")


@given(st.sampled_from(sorted({coding for coding, _ in PACKERS.values()})), st.binary(max_size=300))
def test_no_bytes_make_it_fail_otherwise(coding: str, body: bytes) -> None:
    try:
        unpack_at_once(body, (coding,), MIB)
    except PharosError as fault:
        assert fault.status in (400, 413)  # noqa: PT017 - both ends are right


@given(st.sampled_from(sorted(PACKERS)), st.binary(max_size=2000), st.integers(0, 4))
def test_whatever_was_packed_is_unpacked(name: str, plain: bytes, repeats: int) -> None:
    coding, pack = PACKERS[name]
    assert unpack_at_once(pack(plain * repeats), (coding,), MIB) == plain * repeats


# --- bombs


def bomb(coding: str, size: int = 1024 * MIB) -> bytes:
    """So many zeros, packed without holding them."""
    zeros = bytes(MIB)
    if coding == "zstd":
        packer = zstd.ZstdCompressor(level=19)
    else:
        packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    return b"".join([packer.compress(zeros) for _ in range(size // MIB)]) + packer.flush()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
async def test_a_bomb_is_a_413_and_costs_no_more_than_the_largest_body(coding: str) -> None:
    packed = bomb(coding, 200 * MIB)
    buffers = Buffers(256 * MIB)
    reservation = Reservation(buffers)
    tracemalloc.start()
    try:
        with pytest.raises(PharosError) as caught:
            await unpack(packed, (coding,), 4 * MIB, reservation)
        assert tracemalloc.get_traced_memory()[1] < 12 * MIB
    finally:
        tracemalloc.stop()
    assert caught.value.status == 413
    assert buffers.used <= 6 * MIB


async def test_a_bomb_within_a_bomb_is_a_413() -> None:
    packed = gzip.compress(bomb("gzip", 64 * MIB))
    with pytest.raises(PharosError, match="unpacked") as caught:
        await unpacked(packed, ("gzip", "gzip"), 4 * MIB)
    assert caught.value.status == 413


async def test_what_comes_out_counts_against_all_bodies_together() -> None:
    buffers = Buffers(2 * MIB)
    reservation = Reservation(buffers)
    with pytest.raises(PharosError) as caught:
        await unpack(bomb("gzip", 16 * MIB), ("gzip",), 32 * MIB, reservation)
    assert (caught.value.status, caught.value.code) == (503, "buffers_full")
    reservation.release()
    assert buffers.used == 0


def test_a_reservation_is_settled_up_and_down() -> None:
    buffers = Buffers(100)
    reservation = Reservation(buffers)
    for size in (10, 60, 20):
        reservation.settle(size)
        assert (reservation.size, buffers.used) == (size, size)
    assert refusal(lambda: reservation.settle(101)) == (503, "buffers_full")
    reservation.release()
    assert buffers.used == 0


async def test_large_bodies_leave_the_loop_to_others() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    plain = NOISE * 20
    packed = gzip.compress(plain, 1)
    beside = asyncio.create_task(other())
    assert await unpack(packed, ("gzip",), 32 * MIB, Reservation(Buffers(64 * MIB))) == plain
    beside.cancel()
    assert turns > 20


# --- through the proxy


@EVERY
async def test_an_engine_gets_the_plain_body_with_its_one_length(coding: str, pack: Pack) -> None:
    async with front(ok) as (pharos, engine):
        body = chat(stream=False)
        client = await pharos.client()
        for count in (1, 2):
            client.post(pack(body), f"Content-Encoding: {coding}\r\nContent-Type: application/json\r\n")
            assert (await client.reply()).status == 200
            turn = engine.turns[count - 1]
            assert turn.body == body
            assert turn.header("content-encoding") == []
            assert turn.header("content-length") == [str(len(body))]
            assert turn.header("transfer-encoding") == []
        await pharos.finished(2)
        assert pharos.proxy.routes.buffers.used == 0


async def test_a_body_of_megabytes_may_come_packed_and_in_chunks() -> None:
    async with front(ok) as (pharos, engine):
        body = chat(stream=False, pad=NOISE.hex() * 10)
        packed = zstd.compress(body)
        client = await pharos.client()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: zstd\r\n")
        client.send(b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(packed), MIB):
            piece = packed[at : at + MIB]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert (await client.reply()).status == 200
        assert engine.turns[0].body == body
        await pharos.finished()
        assert pharos.proxy.routes.buffers.used == 0


@pytest.mark.parametrize("size", [1000, MIB])
async def test_while_an_engine_works_the_plain_body_is_counted_and_not_the_packed_one(size: int) -> None:
    async def play(turn: Turn) -> None:
        await go_on.wait()
        await ok(turn)

    go_on = asyncio.Event()
    async with front(play) as (pharos, engine):
        body = chat(stream=False, pad="x" * size)
        client = await pharos.client()
        client.post(gzip.compress(body), "Content-Encoding: gzip\r\n")
        await engine.got(1)
        assert pharos.proxy.routes.buffers.used == len(body)
        go_on.set()
        assert (await client.reply()).status == 200


async def test_two_headers_of_codings_are_one_list() -> None:
    async with front(ok) as (pharos, engine):
        body = chat(stream=False)
        packed = zstd.compress(gzip.compress(body))
        reply = await pharos.ask(packed, "Content-Encoding: gzip\r\nContent-Encoding: zstd\r\n")
        assert reply.status == 200
        assert engine.turns[0].body == body
        assert (await pharos.ask(body, "Content-Encoding: identity\r\n")).status == 200


async def test_a_packed_stream_request_is_asked_for_usage_like_any_other() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, b"data: [DONE]\n\n", kind=b"text/event-stream")

    async with front(play) as (pharos, engine):
        assert (await pharos.ask(zstd.compress(chat()), "Content-Encoding: zstd\r\n")).status == 200
        assert json.loads(engine.turns[0].body)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("size", [512, 3 * MIB])
async def test_a_form_may_come_packed(size: int) -> None:
    async with front(ok) as (pharos, engine):
        body = form(size)
        reply = await pharos.ask(gzip.compress(body), TYPE + "Content-Encoding: gzip\r\n", path=PATH)
        assert reply.status == 200
        assert engine.turns[0].body == body
        assert engine.turns[0].header("content-length") == [str(len(body))]


async def test_responses_as_codex_sends_them_are_served() -> None:
    async with front(ok) as (pharos, engine):
        body = json.dumps({"model": "m", "input": "hi"}).encode()
        packed = zstd.compress(body)
        assert packed.startswith(b"\x28\xb5\x2f\xfd")
        assert (await pharos.ask(packed, "Content-Encoding: zstd\r\n", path="/v1/responses")).status == 200
        assert engine.turns[0].body == body


SHAPES = {
    "/v1/chat/completions": lambda said: said["error"]["message"],
    "/v1/messages": lambda said: (said["type"] == "error" and said["error"]["type"]) and said["error"]["message"],
    "/api/chat": lambda said: said["error"],
}
FAULTS = {
    "unknown": ("br", b"x", 415, "send the body plain"),
    "broken": ("zstd", b"\x28\xb5\x2f\xfdrubbish", 400, "cannot be unpacked"),
    "cut": ("gzip", gzip.compress(chat())[:-3], 400, "its end is missing"),
    "behind": ("deflate", zlib.compress(chat()) + b"x", 400, "follow its end"),
    "bomb": ("zstd", bomb("zstd", 64 * MIB), 413, "when it is unpacked"),
}


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize(("coding", "body", "status", "words"), FAULTS.values(), ids=FAULTS)
async def test_a_refusal_is_in_the_caller_s_protocol_and_a_broken_body_breaks_no_connection(
    path: str, coding: str, body: bytes, status: int, words: str
) -> None:
    async with front(ok, kind="ollama", settings=ProxySettings(body_bytes=MIB)) as (pharos, engine):
        client = await pharos.client()
        client.post(body, f"Content-Encoding: {coding}\r\n", path)
        reply = await client.reply()
        assert reply.status == status
        assert words in SHAPES[path](reply.json())
        assert reply.header("accept-encoding") == (["gzip, deflate, zstd"] if status == 415 else [])
        outcome = "too_large" if status == 413 else "bad_request"
        assert ("admission", outcome) in (await pharos.finished()).stages
        assert pharos.proxy.routes.buffers.used == 0
        if status == 400:
            client.get("/livez")
            assert (await client.reply()).status == 200
        elif reply.header("connection") == ["close"]:
            assert await client.rest() == (b"", True)
        assert engine.turns == []


async def test_a_kilobyte_that_becomes_a_gigabyte_is_refused_while_others_are_served() -> None:
    packed = bomb("zstd")
    assert len(packed) < 100 * KIB
    async with front(ok) as (pharos, engine):
        bombs = [await pharos.client() for _ in range(4)]
        for client in bombs:
            client.post(packed, "Content-Encoding: zstd\r\n")
        assert (await pharos.ask(chat(stream=False))).status == 200
        async with asyncio.timeout(2 * WAIT_S):
            assert [(await client.reply()).status for client in bombs] == [413] * 4
        assert len(engine.turns) == 1
        assert pharos.proxy.routes.buffers.used == 0


async def test_a_client_that_leaves_while_its_body_is_unpacked_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()
    inner = encoding.unpack

    async def told(*arguments: object) -> bytes:
        begun.set()
        return await inner(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(encoding, "unpack", told)
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.post(gzip.compress(NOISE * 20, 1), "Content-Encoding: gzip\r\n")
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
        client.writer.transport.abort()
        done = await pharos.finished()
        assert done.status == 499
        assert pharos.proxy.routes.buffers.used == 0
        assert engine.turns == []
