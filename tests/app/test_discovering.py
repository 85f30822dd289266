"""A whole Pharos that finds its engines by the labels of containers, over a double of Docker."""

import asyncio
from pathlib import Path

from pharos.app.discovering import docker_of, is_wanted
from pharos.config.load import parse
from pharos.config.schema import Docker
from tests.app.running import pharos
from tests.fakes.docker import Container, FakeDocker
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ollama import FakeOllama
from tests.waiting import WAIT_S


def container(engine: FakeLlamaCpp | FakeOllama, **labels: str) -> Container:
    named = {f"pharos.{name}": text for name, text in labels.items()}
    return Container(labels={"pharos.enable": "true"} | named, networks={"n": "127.0.0.1"}, ports=(engine.port,))


def discovery(docker: FakeDocker) -> dict[str, object]:
    return {"docker": {"enabled": True, "socket": str(docker.path)}}


async def test_a_labelled_container_is_there_before_ready_serves_and_goes_with_its_container(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as engine, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["gpu"] = container(engine)
        async with pharos(discovery=discovery(docker)) as running:
            assert list(running.app.fleet.backends) == ["gpu"]
            engine.hold()
            async with running.chat(stream=True) as stream:
                await stream.content.readline()
                del docker.containers["gpu"]
                await docker.happen()
                await running.until(lambda: not running.app.fleet.backends)
                engine.release()
                async with asyncio.timeout(WAIT_S):
                    assert (await stream.read()).endswith(b"data: [DONE]\n\n")


async def test_listed_and_labelled_backends_are_one_fleet_and_the_same_engine_counts_once(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as first, FakeLlamaCpp() as second, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers |= {"a": container(first), "b": container(second)}
        async with pharos(first, discovery=discovery(docker)) as running:
            assert list(running.app.fleet.backends) == [f"127.0.0.1:{first.port}", "b"]


async def test_the_label_drain_keeps_new_requests_away_until_it_is_gone(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as engine, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["gpu"] = container(engine, drain="true")
        async with pharos(discovery=discovery(docker), queue={"absent_wait": 0}) as running:
            backend = running.app.fleet.backends["gpu"]
            async with running.chat() as response:
                assert response.status == 503
            docker.containers["gpu"] = container(engine)
            await docker.happen()
            await running.until(lambda: not backend.spec.drain)
            async with running.chat() as response:
                assert response.status == 200
                await response.read()
            assert running.app.fleet.backends["gpu"] is backend


async def test_the_log_of_a_labelled_container_is_its_log_feed(tmp_path: Path) -> None:
    async with FakeOllama() as engine, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["ollama"] = container(engine)
        async with pharos(discovery=discovery(docker)) as running:
            await running.until(lambda: any("/containers/ollama/logs" in path for path in docker.paths))


async def test_a_docker_that_is_not_there_keeps_nobody_from_being_ready(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, discovery=discovery(FakeDocker(tmp_path / "none"))) as running:
        assert len(running.app.fleet.backends) == 1


async def test_docker_is_asked_by_itself_only_where_its_socket_is(tmp_path: Path) -> None:
    async with FakeDocker(tmp_path / "d.sock") as docker:
        assert is_wanted(Docker(socket=str(docker.path)))
        assert not is_wanted(Docker(enabled=False, socket=str(docker.path)))
    assert not is_wanted(Docker(socket=str(tmp_path / "none")))
    assert is_wanted(Docker(enabled=True, socket=str(tmp_path / "none")))
    assert not is_wanted(Docker(socket=str(tmp_path)))


def test_the_variable_of_docker_names_the_socket_unless_the_configuration_does() -> None:
    plain, named = parse("{}", {}), parse("discovery: {docker: {socket: /mine}}", {})
    environ = {"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}
    assert docker_of(plain, environ).socket == "/run/user/1000/docker.sock"
    assert docker_of(plain, {"DOCKER_HOST": "tcp://a:1"}).socket == "/var/run/docker.sock"
    assert docker_of(named, environ).socket == "/mine"
