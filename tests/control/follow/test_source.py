from pathlib import Path

import pytest

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.source import DockerLog, FileLog, open_logs, parse_where
from tests.fakes.docker import Container, FakeDocker


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ("file:///var/log/engine.log", FileLog("/var/log/engine.log")),
        ("file:///var/log/my%20engine%23.log", FileLog("/var/log/my engine#.log")),
        ("file:///a?b#c", FileLog("/a?b#c")),
        ("docker://ollama", DockerLog("ollama")),
        ("docker://stack_ollama.1", DockerLog("stack_ollama.1")),
    ],
)
def test_a_place_names_a_file_or_a_container(where: str, meant: FileLog | DockerLog) -> None:
    assert parse_where(where) == meant


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("file://var/log/engine.log", "absolute path"),
        ("file:///a%00b", "absolute path"),
        ("docker://", "container's name"),
        ("docker://a/json?x=", "container's name"),
        ("docker://-a", "container's name"),
        ("/var/log/engine.log", "docker://NAME or file:///PATH"),
        ("http://x", "docker://NAME or file:///PATH"),
        ("", "docker://NAME or file:///PATH"),
    ],
)
def test_a_place_that_is_none_is_refused_with_what_is_expected(where: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_logs(where)


async def test_files_and_containers_are_read_in_one_way(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"one\n")
    async with FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["ollama"] = Container()
        docker.containers["ollama"].say(b"one\n")
        for where in (f"file://{log}", "docker://ollama"):
            async with open_logs(where, docker_socket=str(docker.path), follow=False) as lines:
                assert [line async for line in lines] == [b"one"]


async def test_a_log_that_cannot_be_opened_is_told_on_entering(tmp_path: Path) -> None:
    for where in (f"file://{tmp_path}/none", "docker://ollama"):
        opened = open_logs(where, docker_socket=str(tmp_path / "none"))
        with pytest.raises(FeedError) as caught:
            await opened.__aenter__()
        assert caught.value.fault is Fault.NOT_FOUND
