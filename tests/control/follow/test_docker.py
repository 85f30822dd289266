import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pharos.control.follow.docker import MAX_DESCRIPTION, open_container, unix_time
from pharos.control.follow.fault import Fault, FeedError
from tests.fakes.docker import ERRORS, Container, FakeDocker, frame
from tests.fakes.http import Answer, Hang, Raw, Reply, Reset
from tests.fakes.nobody import as_nobody


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[FakeDocker]:
    async with FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["ollama"] = Container()
        yield docker


async def read(path: Path, name: str, answer_s: float) -> None:
    async with open_container(name, socket=str(path), answer_s=answer_s) as lines:
        async for _ in lines:
            pass


async def opening(path: Path, name: str = "ollama", answer_s: float = 20.0) -> FeedError:
    with pytest.raises(FeedError) as caught:
        await read(path, name, answer_s)
    return caught.value


async def test_a_log_comes_from_the_containers_present_start_and_goes_on(docker: FakeDocker) -> None:
    container = docker.containers["ollama"]
    container.started_at = "2026-11-30T12:00:00.123456789Z"
    start = 1796040000.123456789
    container.say(b"of the life before\n", at=start - 1)
    container.say(b"NUM_PARALLEL:4\n", at=start + 1)
    async with open_container("ollama", socket=str(docker.path)) as lines:
        assert await anext(lines) == b"NUM_PARALLEL:4"
        container.say(b"half a ")
        container.say(b"warning\n", ERRORS)
        assert await anext(lines) == b"warning"
        container.say(b"line\n")
        assert await anext(lines) == b"half a line"
    assert docker.paths == [
        "/containers/ollama/json",
        "/containers/ollama/logs?follow=1&stdout=1&stderr=1&since=1796040000.123456789",
    ]
    await docker.until(lambda: not docker.connections)


async def test_a_terminals_output_comes_as_it_is(docker: FakeDocker) -> None:
    container = docker.containers["ollama"] = Container(tty=True)
    container.say(b"one\r\ntw")
    async with open_container("ollama", socket=str(docker.path)) as lines:
        assert await anext(lines) == b"one"
        container.say(b"o\r\n")
        assert await anext(lines) == b"two"


async def test_lines_end_with_the_container(docker: FakeDocker) -> None:
    container = docker.containers["ollama"]
    container.say(b"one\nhalf")
    async with open_container("ollama", socket=str(docker.path)) as lines:
        assert await anext(lines) == b"one"
        container.stop()
        assert [line async for line in lines] == []


async def test_without_following_lines_end_where_the_log_ends(docker: FakeDocker) -> None:
    docker.containers["ollama"].say(b"one\ntwo\n")
    async with open_container("ollama", socket=str(docker.path), follow=False) as lines:
        assert [line async for line in lines] == [b"one", b"two"]


async def test_a_connection_that_breaks_is_told(docker: FakeDocker) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    docker.answers["/containers/ollama/logs?follow=1&stdout=1&stderr=1&since=1796040000.500000000"] = Raw(
        head + b"a\r\n%s\r\n" % frame(b"x\n")
    )
    async with open_container("ollama", socket=str(docker.path)) as lines:
        assert await anext(lines) == b"x"
        with pytest.raises(FeedError, match="Docker closed the connection") as caught:
            await anext(lines)
    assert caught.value.fault is Fault.CUT


async def test_a_container_that_there_is_not_is_named(docker: FakeDocker) -> None:
    error = await opening(docker.path, "olama")
    assert (error.fault, str(error)) == (Fault.NOT_FOUND, "Docker knows no container 'olama'")


async def test_a_container_that_does_not_run_has_no_log_of_now(docker: FakeDocker) -> None:
    docker.containers["ollama"].running = False
    error = await opening(docker.path)
    assert (error.fault, str(error)) == (Fault.NOT_RUNNING, "container 'ollama' is not running")
    assert docker.paths == ["/containers/ollama/json"]


@pytest.mark.parametrize(
    ("answer", "fault", "text"),
    [
        (Reply(500, b"{}"), Fault.STATUS, "Docker answers 500 when asked about container 'ollama': "),
        (Reply(403, b"denied"), Fault.NO_PERMISSION, "Docker does not let Pharos see container 'ollama'"),
        (Reply(200, b"<html>"), Fault.UNREADABLE, "Docker's description of container 'ollama' cannot be read"),
        (Reply(200, b"[" * 100_000), Fault.UNREADABLE, "Docker's description of container 'ollama' cannot be read"),
        (Reply(200, b'{"State":"up"}'), Fault.UNREADABLE, "Docker's description of container 'ollama' cannot be read"),
        (Reply(200, b'{"State":{"Running":true}}'), Fault.UNREADABLE, "Docker does not say when the container was"),
        (Reply(200, b" " * (MAX_DESCRIPTION + 1)), Fault.UNREADABLE, "Docker's description of container 'ollama' is "),
        (Raw(b"HTTP/1.1 200 OK\r\n\r\n", endless=b" " * 65536), Fault.UNREADABLE, "Docker's description of container "),
        (Raw(b"SSH-2.0-OpenSSH_9.2\r\n"), Fault.UNREADABLE, "what answers at "),
        (Reset(), Fault.CUT, "Docker closed the connection"),
    ],
)
async def test_an_answer_that_docker_would_not_give_is_told_and_not_quoted(
    docker: FakeDocker, answer: Answer, fault: Fault, text: str
) -> None:
    docker.every = answer
    error = await opening(docker.path)
    assert error.fault is fault
    assert str(error).startswith(text)


async def test_a_docker_that_hangs_is_told(docker: FakeDocker) -> None:
    docker.every = Hang()
    error = await opening(docker.path, answer_s=0.05)
    assert (error.fault, str(error)) == (Fault.SILENT, f"Docker does not answer at {docker.path}")


async def test_a_log_that_docker_cannot_read_is_told(docker: FakeDocker) -> None:
    asked = "/containers/ollama/logs?follow=1&stdout=1&stderr=1&since=1796040000.500000000"
    docker.answers[asked] = Reply(501, b'{"message":"configured logging driver does not support reading"}')
    error = await opening(docker.path)
    assert error.fault is Fault.STATUS
    assert str(error).endswith("it does not give its log; its logging driver may not be able to")
    await docker.until(lambda: not docker.connections)


async def test_no_socket_no_permission_and_nobody_behind_it_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    error = await opening(path)
    assert (error.fault, str(error)) == (Fault.NOT_FOUND, f"there is no Docker socket at {path}")
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(path))
    error = await opening(path)
    assert (error.fault, str(error)) == (Fault.NO_CONNECTION, f"nothing answers at {path}: is Docker running?")


async def test_a_socket_that_may_not_be_used_is_said_so(docker: FakeDocker) -> None:
    docker.path.chmod(0)
    with as_nobody():
        error = await opening(docker.path)
    assert error.fault is Fault.NO_PERMISSION
    assert str(error).endswith("Pharos must run as a member of the group that owns it")


async def test_cancelling_in_the_middle_of_a_silent_log_closes_the_connection(docker: FakeDocker) -> None:
    reading = asyncio.create_task(opening(docker.path))
    await docker.until(lambda: len(docker.paths) == 2)
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    await docker.until(lambda: not docker.connections)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T12:00:00Z", "1796040000.000000000"),
        ("2026-11-30T12:00:00.5Z", "1796040000.500000000"),
        ("2026-11-30T14:00:00.123456789+02:00", "1796040000.123456789"),
    ],
)
def test_a_start_is_told_to_the_nanosecond(text: str, seconds: str) -> None:
    assert unix_time(text) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-30", "2026-13-30T12:00:00Z"])
def test_a_start_that_cannot_be_read_is_no_start(text: str) -> None:
    with pytest.raises(FeedError, match="does not say when"):
        unix_time(text)
