"""Docker tells of its containers, stops answering, comes back: what is a backend meanwhile, and what is said."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pharos.control.discovery.docker import PATIENCE, DockerLabels, own_id
from tests.fakes.docker import Container, FakeDocker
from tests.fakes.http import Answer, Hang, Raw, Reply
from tests.waiting import until

if TYPE_CHECKING:
    from pharos.core.fleet import BackendSpec, Event

ON = {"pharos.enable": "true"}


def engine(address: str = "172.17.0.2", **labels: str) -> Container:
    named = {f"pharos.{name}": text for name, text in labels.items()}
    return Container(labels=ON | named, networks={"bridge": address}, ports=(11434,))


class Rig:
    """A watcher of a double, what it told and what was said. Pauses take a turn of the loop each."""

    def __init__(self, docker: FakeDocker, *, is_asked: bool = True, own: str | None = None) -> None:
        self.docker = docker
        self.told: list[list[BackendSpec]] = []
        self.events: list[Event] = []
        self.pauses: list[float] = []
        self.it = DockerLabels(
            str(docker.path),
            tell=lambda specs: self.told.append(list(specs)),
            credentials=dict,
            on_event=self.events.append,
            is_asked=is_asked,
            identify=lambda: own,
            sleep=self._pause,
        )

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.told[-1]] if self.told else []

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events]

    async def until(self, claim: Callable[[], object]) -> None:
        await until(claim)


@contextlib.asynccontextmanager
async def watching(docker: FakeDocker, *, is_asked: bool = True, own: str | None = None) -> AsyncIterator[Rig]:
    rig = Rig(docker, is_asked=is_asked, own=own)
    task = asyncio.create_task(rig.it.run())
    try:
        await rig.until(lambda: rig.told)
        yield rig
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[FakeDocker]:
    async with FakeDocker(tmp_path / "d.sock") as docker:
        yield docker


async def test_labelled_containers_are_told_first_and_after_each_event(docker: FakeDocker) -> None:
    docker.containers |= {"a": engine(), "plain": Container(), "gone": engine()}
    docker.containers["gone"].running = False
    async with watching(docker) as rig:
        assert rig.names == ["a"]
        docker.containers["b"] = engine("172.17.0.3")
        await docker.happen()
        await rig.until(lambda: rig.names == ["a", "b"])
        del docker.containers["a"]
        await docker.happen()
        await rig.until(lambda: rig.names == ["b"])
        assert rig.events == []


async def test_events_are_asked_for_before_the_list_so_that_none_is_missed(docker: FakeDocker) -> None:
    async with watching(docker):
        assert [path.partition("?")[0] for path in docker.paths] == ["/events", "/containers/json"]


async def test_no_containers_are_a_first_list_too(docker: FakeDocker) -> None:
    async with watching(docker) as rig:
        assert rig.told == [[]]


async def test_an_event_that_changes_nothing_tells_nothing(docker: FakeDocker) -> None:
    docker.containers["a"] = engine()
    async with watching(docker) as rig:
        for _ in range(3):
            before = len(docker.seen)
            await docker.happen()
            await rig.until(lambda before=before: len(docker.seen) > before)
        assert len(rig.told) == 1


async def test_an_address_that_comes_after_the_start_is_found_without_another_event(
    docker: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharos.control.discovery.docker.AGAIN_S", 0.001)
    docker.containers["a"] = engine("")
    async with watching(docker) as rig:
        assert rig.names == []
        await rig.until(lambda: rig.said)
        assert rig.said == ["container a has no address yet: is its network up? It is looked at every second"]
        assert len(docker.seen) > PATIENCE
        docker.containers["a"].networks["bridge"] = "172.17.0.9"
        await rig.until(lambda: rig.names == ["a"])
        assert len(rig.events) == 1


async def test_labels_that_make_no_backend_are_said_once_and_again_when_they_are_wrong_otherwise(
    docker: FakeDocker,
) -> None:
    docker.containers |= {"bad": engine("172.17.0.9", capacity="many"), "good": engine()}
    async with watching(docker) as rig:
        assert rig.names == ["good"]
        docker.containers["more"] = engine("172.17.0.4")
        await docker.happen()
        await rig.until(lambda: rig.names == ["good", "more"])
        assert [(event.outcome, event.backend) for event in rig.events] == [("refused", "bad")]
        assert rig.said[0].startswith("container bad is left out: pharos.capacity: expected a whole number")
        docker.containers["bad"].labels["pharos.capacity"] = "0"
        await docker.happen()
        await rig.until(lambda: len(rig.events) == 2)
        docker.containers["bad"].labels["pharos.capacity"] = "1"
        await docker.happen()
        await rig.until(lambda: rig.names == ["bad", "good", "more"])


async def test_a_docker_that_vanishes_leaves_its_backends_and_is_said_once_and_its_return_too(
    docker: FakeDocker,
) -> None:
    docker.containers["a"] = engine()
    async with watching(docker) as rig:
        docker.kill()
        docker.path.unlink(missing_ok=True)
        await rig.until(lambda: len(rig.pauses) >= 5)
        assert len(rig.told) == 1
        told = [text for text in rig.said if "Docker labels cannot be read" in text]
        assert told
        assert "what it told stays (a). It is tried again" in told[0]
        assert len(told) <= 2, "the connection, then the socket: each once"
        assert max(rig.pauses) > 1.0
        docker.containers["b"] = engine("172.17.0.3")
        await docker.start()
        await rig.until(lambda: rig.names == ["a", "b"])
        assert rig.said[-1] == "Docker labels can be read again"


async def test_a_docker_that_was_never_there_is_an_empty_first_list(tmp_path: Path) -> None:
    for is_asked, level in ((True, "warning"), (False, "info")):
        async with watching(FakeDocker(tmp_path / "none.sock"), is_asked=is_asked) as rig:
            assert rig.told == [[]]
            assert [event.level for event in rig.events] == [level]
            assert "there is no Docker socket at" in rig.said[0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Reply(500, b"broken", {}), "Docker answers 500 and does not list its containers"),
        (Reply(200, b"{}", {}), "Docker's list of containers cannot be read"),
        (Reply(200, b"[" * 100_000, {}), "Docker's list of containers cannot be read"),
        (Reply(200, json.dumps([{"Labels": 5}]).encode(), {}), "Docker's list of containers cannot be read"),
        (Raw(b"nonsense\r\n\r\n"), "is not Docker"),
        (Hang(b""), "Docker does not answer"),
    ],
)
async def test_an_answer_that_is_none_changes_nothing_and_is_said(
    docker: FakeDocker, answer: Answer, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.containers["a"] = engine()
    async with watching(docker) as rig:
        monkeypatch.setattr("pharos.control.discovery.docker.ANSWER_S", 0.5)
        docker.answers[docker.paths[-1]] = answer
        await docker.happen()
        await rig.until(lambda: rig.said)
        assert told in rig.said[0]
        assert rig.names == ["a"]
        docker.answers.clear()
        await rig.until(lambda: "Docker labels can be read again" in rig.said)
        assert len(rig.told) == 1


async def test_a_list_without_an_end_is_not_kept(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.control.discovery.docker.MAX_LIST", 1000)
    docker.containers |= {f"c{number}": engine() for number in range(20)}
    async with watching(docker) as rig:
        assert rig.told == [[]]
        assert "Docker's list of containers is too long" in rig.said[0]


async def test_pharos_finds_the_networks_of_its_own_container(docker: FakeDocker) -> None:
    docker.containers["pharos"] = Container(networks={"llm-net": "198.51.100.2"})
    docker.containers["a"] = Container(
        labels=ON, networks={"db-net": "192.0.2.5", "llm-net": "198.51.100.5"}, ports=(80,)
    )
    async with watching(docker, own="pharos") as rig:
        assert [spec.url for spec in rig.told[0]] == ["http://198.51.100.5:80"]
    async with watching(docker, own="unknown") as rig:
        assert [spec.url for spec in rig.told[0]] == ["http://192.0.2.5:80"]


async def test_who_may_not_ask_docker_is_told_so(docker: FakeDocker) -> None:
    docker.is_forbidden = True
    async with watching(docker) as rig:
        assert "Docker answers 403" in rig.said[0]


def test_the_own_container_is_known_by_its_mounts_or_its_host_name(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    long = "0123456789ab" + "c" * 52
    mounts.write_text(f"1 2 0:1 /var/lib/docker/containers/{long}/hostname /etc/hostname rw\n", encoding="utf-8")
    assert own_id(mounts, lambda: "gpu-box") == long
    mounts.write_text("1 2 0:1 / / rw\n", encoding="utf-8")
    assert own_id(mounts, lambda: "0123456789ab") == "0123456789ab"
    assert own_id(mounts, lambda: "gpu-box") is None
    assert own_id(tmp_path / "none", lambda: "gpu-box") is None
