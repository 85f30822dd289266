"""Real sockets: who shows the secret is heard, and everything else costs a header and is named."""

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from pharos.clock import monotonic
from pharos.core.fleet import Event
from pharos.peer import wire
from pharos.peer.http import HttpLink
from pharos.peer.link import LinkFault
from pharos.peer.node import Refused
from pharos.peer.receiver import MOST_SNAPSHOTS, Receiver
from pharos.peer.secret import Secret
from pharos.peer.tls import Certificates
from tests.fakes.http import Hang, HttpDouble, Raw, Reply
from tests.fakes.nobody import as_nobody
from tests.fakes.ports import port_of, reserve
from tests.fakes.tls import make_authority

SECRET = "a secret that instances share"
AUTH = {"Authorization": f"Bearer {SECRET}"}


class Told:
    """Takes what comes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.fault: Refused | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def receive(self, body: bytes) -> bytes:
        if self.fault is not None:
            raise self.fault
        self.bodies.append(body)
        return b"answer"

    async def frames(self) -> AsyncIterator[bytes]:
        for number in range(5):
            await self.gate.wait()
            yield b"%d" % number * 100_000


class Stand:
    """A receiver, a link to it, and what was said."""

    def __init__(self, receiver: Receiver, told: Told, link: HttpLink, events: list[Event], file: Path) -> None:
        self.receiver = receiver
        self.told = told
        self.link = link
        self.events = events
        self.file = file
        self.address = f"127.0.0.1:{receiver.port}"

    @property
    def said(self) -> str:
        return "\n".join(event.text for event in self.events)

    async def pulled(self) -> bytes:
        return b"".join([data async for data in self.link.pull(self.address)])


@contextlib.asynccontextmanager
async def standing(
    tmp_path: Path, *, shown: str = SECRET, tls: Certificates | None = None, theirs: Certificates | None = None
) -> AsyncIterator[Stand]:
    events: list[Event] = []
    ours, others = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text(SECRET)
    others.write_text(shown)
    told = Told()
    receiver = Receiver(
        told, Secret(str(ours), clock=monotonic, on_event=events.append), clock=monotonic, on_event=events.append
    )
    await receiver.start("127.0.0.1", 0, tls.server() if tls is not None else None)
    client = theirs if theirs is not None else tls
    link = HttpLink(
        Secret(str(others), clock=monotonic, on_event=events.append), client.client if client is not None else None
    )
    try:
        yield Stand(receiver, told, link, events, others)
    finally:
        await link.close()
        await receiver.close()


async def test_a_delta_is_taken_and_answered_and_a_snapshot_comes_whole(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        assert await stand.link.tell(stand.address, b"delta") == b"answer"
        assert stand.told.bodies == [b"delta"]
        assert await stand.pulled() == b"".join(b"%d" % n * 100_000 for n in range(5))
        assert stand.events == []


async def test_a_wrong_secret_is_refused_on_both_paths_and_named_once_a_minute(tmp_path: Path) -> None:
    async with standing(tmp_path, shown="another secret of another house") as stand:
        for _ in range(3):
            with pytest.raises(LinkFault, match="refuses our secret") as told:
                await stand.link.tell(stand.address, b"delta")
            assert told.value.kind == "refused"
        with pytest.raises(LinkFault, match="refuses our secret"):
            await stand.pulled()
        assert stand.told.bodies == []
        assert stand.said == "peers.listen: 127.0.0.1 showed a wrong secret: refused"


@pytest.mark.parametrize("path", ["/peer/delta", "/peer/snapshot", "/", "/metrics"])
async def test_nothing_is_answered_without_the_secret(tmp_path: Path, path: str) -> None:
    async with standing(tmp_path) as stand, aiohttp.ClientSession() as http:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": SECRET}):
            async with http.post(f"http://{stand.address}{path}", headers=headers, data=b"x") as response:
                assert response.status == 401
                assert SECRET not in await response.text()
        async with http.post(f"http://{stand.address}/other", headers=AUTH) as response:
            assert response.status == 404


async def test_a_secret_is_exchanged_without_a_pause_whichever_side_is_first(tmp_path: Path) -> None:
    new = "a secret of the next year"
    async with standing(tmp_path, shown=f"{new}\n{SECRET}") as stand:
        assert await stand.link.tell(stand.address, b"1") == b"answer"
        assert await stand.link.tell(stand.address, b"2") == b"answer"
        assert len(await stand.pulled()) == 500_000
        assert stand.said.count("wrong secret") == 1, "the one that is taken is remembered"


async def test_a_delta_of_a_gigabyte_is_refused_before_it_comes(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.receiver.port)
        head = f"POST /peer/delta HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
        writer.write(f"{head}Content-Length: {1024**3}\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
        writer.close()
        assert "sent a delta of 1073741824 bytes, and 4194304 are allowed: refused" in stand.said
        assert stand.told.bodies == []


async def test_a_delta_without_a_length_is_cut_off_where_it_is_too_long(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand, aiohttp.ClientSession() as http:

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(1000):
                yield b"x" * 100_000

        with contextlib.suppress(aiohttp.ClientError):
            async with http.post(f"http://{stand.address}/peer/delta", headers=AUTH, data=endless()) as response:
                assert response.status == 413
        assert "sent a delta of more than" in stand.said
        assert stand.told.bodies == []


async def test_what_is_no_http_at_all_harms_nobody_and_is_not_repeated_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with standing(tmp_path) as stand:
        for garbage in (
            b"\x16\x03\x01" + bytes(200),
            b"\n" * 10_000,
            b"GET " + b"s3cr3t" * 5000 + b"\r\n\r\n",
            b"\x00",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", stand.receiver.port)
            writer.write(garbage)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
        assert await stand.link.tell(stand.address, b"delta") == b"answer"
        assert "s3cr3t" not in caplog.text, "it was repeated"


async def test_another_protocol_garbage_and_an_end_are_told_apart(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        for status, kind in ((409, "protocol"), (400, "broken"), (503, "unreachable")):
            stand.told.fault = Refused(status, "is no delta")  # type: ignore[arg-type]
            with pytest.raises(LinkFault) as told:
                await stand.link.tell(stand.address, b"delta")
            assert told.value.kind == kind
            assert told.value.theirs == (wire.PROTO if status == 409 else None)
        assert "127.0.0.1 sent what is no delta: refused" in stand.said


async def test_only_a_few_snapshots_leave_at_a_time(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        stand.told.gate.clear()
        pulls = [asyncio.create_task(stand.pulled()) for _ in range(MOST_SNAPSHOTS)]
        while stand.receiver._sending < MOST_SNAPSHOTS:
            await asyncio.sleep(0.001)  # they come over sockets
        with pytest.raises(LinkFault, match="cannot take anything now"):
            await stand.pulled()
        stand.told.gate.set()
        assert [len(data) for data in await asyncio.gather(*pulls)] == [500_000] * MOST_SNAPSHOTS
        assert stand.receiver._sending == 0


async def test_strangers_without_end_leave_room_for_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.peer.door.MOST", 4)
    async with standing(tmp_path) as stand:
        assert await stand.link.tell(stand.address, b"1") == b"answer"
        door = stand.receiver._door
        assert door is not None
        [known] = door.connections
        strangers = []
        for number in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", stand.receiver.port)
            if number % 2:
                writer.write(b"POST /peer/delta HTTP/1.1\r\nHost: ")
            strangers.append((reader, writer))
        for reader, _ in strangers[:8]:
            async with asyncio.timeout(20.0):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        assert await stand.link.tell(stand.address, b"2") == b"answer"
        assert known in door.connections, "a peer keeps its connection"
        assert len(door.connections) == 5
        for _, writer in strangers:
            writer.close()


async def test_nothing_that_a_stranger_sent_is_said_back_nor_what_serves_it(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        for garbage in (
            b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cr3t\x00\r\n\r\n",
            b"s3cr3t\xff" * 100 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX-s3cr3t: " + b"s3cr3t" * 5000 + b"\r\n\r\n",
            b"GET /s3cr3t HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", stand.receiver.port)
            writer.write(garbage)
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.")
            assert b"Server: Pharos\r\n" in answer
            assert b"aiohttp" not in answer
            assert b"s3cr3t" not in answer, "it was repeated"


async def test_who_does_not_take_its_snapshot_keeps_nobody_from_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharos.peer.receiver.TAKEN_S", 0.01)
    async with standing(tmp_path) as stand:

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1_000_000

        monkeypatch.setattr(stand.told, "frames", endless)
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.receiver.port, limit=1)
        writer.write(f"GET /peer/snapshot HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode())
        async with asyncio.timeout(20.0):
            while not stand.receiver._sending:
                await asyncio.sleep(0.001)  # it comes over a socket
            while stand.receiver._sending:
                await asyncio.sleep(0.001)
        writer.close()
        del reader


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Reply(200, b"answer"), None),
        (Reply(302, b"", {"Location": "/elsewhere"}), "broken"),
        (Reply(404, b"<html>"), "broken"),
        (Reply(409, msgspec.msgpack.encode({"proto": 7})), "protocol"),
        (Reply(409, b"garbage"), "protocol"),
        (Raw(b"SSH-2.0-OpenSSH\r\n"), "broken"),
        (Raw(b""), "unreachable"),
    ],
)
async def test_whatever_is_at_an_address_is_told_in_one_of_few_ways(
    tmp_path: Path, answer: Any, kind: str | None
) -> None:
    async with standing(tmp_path) as stand, HttpDouble() as double:
        double.every = answer
        if kind is None:
            assert await stand.link.tell(f"127.0.0.1:{double.port}", b"delta") == b"answer"
            return
        with pytest.raises(LinkFault) as told:
            await stand.link.tell(f"127.0.0.1:{double.port}", b"delta")
        assert told.value.kind == kind
        assert told.value.theirs == (7 if kind == "protocol" and b"proto" in answer.body else None)


async def test_who_does_not_answer_or_is_not_there_is_unreachable_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharos.peer.http.TELL_S", 0.2)
    async with standing(tmp_path) as stand, HttpDouble() as double:
        double.every = Hang()
        with reserve() as kept:
            nobody = f"127.0.0.1:{port_of(kept)}"
        for address in (f"127.0.0.1:{double.port}", nobody, "no-such-host.invalid:1", "[::1:80"):
            with pytest.raises(LinkFault) as told:
                await stand.link.tell(address, b"delta")
            assert told.value.kind == "unreachable"


async def test_it_listens_everywhere_with_or_without_ipv6(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        with reserve() as kept:  # of one address: everywhere is more, so it cannot be kept
            port = port_of(kept)
        everywhere = Receiver(stand.told, stand.receiver._secret, clock=monotonic, on_event=stand.events.append)
        await everywhere.start(None, port, None)
        assert await stand.link.tell(f"127.0.0.1:{port}", b"4") == b"answer"
        try:
            reader, writer = await asyncio.open_connection("::1", port)
        except OSError:
            pass  # a machine without IPv6
        else:
            writer.close()
            assert await stand.link.tell(f"[::1]:{port}", b"6") == b"answer"
            del reader
        await everywhere.close()
        taken = Receiver(stand.told, stand.receiver._secret, clock=monotonic, on_event=stand.events.append)
        with pytest.raises(OSError, match="address already in use"):
            await taken.start("127.0.0.1", stand.receiver.port or 0, None)


def certificates(folder: Path, name: str) -> Certificates:
    place = make_authority(folder, name).folder
    files = (str(place / "engine.pem"), str(place / "engine.key"), str(place / "ca.pem"))
    return Certificates(*files, clock=monotonic, on_event=lambda _: None)


async def test_with_tls_only_holders_of_a_certificate_of_the_authority_are_heard(tmp_path: Path) -> None:
    tls, foreign = certificates(tmp_path, "house"), certificates(tmp_path, "foreign")
    async with standing(tmp_path, tls=tls) as stand:
        assert await stand.link.tell(stand.address, b"delta") == b"answer"
        assert tls.server().verify_mode is ssl.CERT_REQUIRED
    async with standing(tmp_path, tls=tls, theirs=foreign) as stand:
        with pytest.raises(LinkFault, match="certificate"):
            await stand.link.tell(stand.address, b"delta")
        plain = HttpLink(stand.link._secret, None)
        with pytest.raises(LinkFault):
            await plain.tell(stand.address, b"delta")
        await plain.close()
        assert stand.told.bodies == []


async def test_a_renewed_certificate_is_used_without_a_restart_and_a_bad_one_is_named(tmp_path: Path) -> None:
    old, new = make_authority(tmp_path, "old"), make_authority(tmp_path, "new")
    now, events = [0.0], list[Event]()
    files = tuple(old.folder / name for name in ("engine.pem", "engine.key", "ca.pem"))
    tls = Certificates(*map(str, files), clock=lambda: now[0], on_event=events.append)
    before = tls.client()
    for file in files:
        file.write_bytes((new.folder / file.name).read_bytes())
    assert tls.client() is before, "files are looked at now and then"
    now[0] = 20.0
    assert tls.client() is not before
    assert "has changed" in events[-1].text
    async with standing(tmp_path, tls=tls) as stand:
        assert await stand.link.tell(stand.address, b"delta") == b"answer"
    files[0].write_text("no certificate")
    now[0] = 40.0
    used = tls.client()
    assert "cannot be read again" in events[-1].text
    files[0].unlink()
    now[0] = 60.0
    assert tls.client() is used


def test_a_key_that_may_be_read_at_last_is_used_although_nothing_was_written() -> None:
    now, events = [0.0], list[Event]()
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        place = make_authority(Path(name), "house").folder
        place.chmod(0o755)
        files = [place / name for name in ("engine.pem", "engine.key", "ca.pem")]
        for file in files:
            file.chmod(0o644)
        tls = Certificates(*map(str, files), clock=lambda: now[0], on_event=events.append)
        for at, mode, told in ((20.0, 0, "cannot be read again"), (40.0, 0o644, "has changed")):
            files[1].chmod(mode)
            now[0] = at
            with as_nobody():
                tls.client()
            assert told in events[-1].text


def test_a_pipe_in_place_of_a_certificate_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("engine.pem", "engine.key", "ca.pem")]
    for file in files:
        os.mkfifo(file)
    with pytest.raises(OSError, match=r"engine\.pem is no regular file"):
        Certificates(*map(str, files), clock=monotonic, on_event=lambda _: None)
