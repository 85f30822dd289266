"""What counts as another configuration of a peer: what is listed now, and nothing that a host finds for itself."""

from pathlib import Path

from pharos import clock
from pharos.config.load import parse
from tests.app.test_discovering import container, discovery
from tests.app.test_peering import One, Ports, instance, keys, until
from tests.fakes.docker import FakeDocker
from tests.fakes.llamacpp import FakeLlamaCpp


def differs(one: One) -> list[tuple[str, ...]]:
    return [tuple(record.config_differs) for record in one.app.peering.describe(clock.monotonic())]


async def test_a_changed_configuration_ends_and_makes_a_difference(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with (
        FakeLlamaCpp() as engine,
        instance(engine, peers=ports.of(0), keys=keys()) as a,
        instance(engine, peers=ports.of(1), keys=keys(weight=2)) as b,
    ):
        await until(lambda: differs(a) == differs(b) == [("keys",)])
        listed = [{"url": engine.url, "name": "e0"}]
        more = {"backends": listed, "keys": keys(weight=2), "peers": ports.of(0), "usage": {"timezone": "UTC"}}
        a.app.reloading.adopt(parse(str(more), {}))
        await until(lambda: differs(a) == differs(b) == [()])
        a.app.reloading.adopt(parse(str(more | {"backends": []}), {}))
        await until(lambda: differs(a) == differs(b) == [("backends",)])


async def test_backends_that_each_host_finds_by_labels_are_no_difference(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as found, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["gpu"] = container(found)
        async with (
            instance(engine, peers=ports.of(0), discovery=discovery(docker)) as a,
            instance(engine, peers=ports.of(1)) as b,
        ):
            assert "gpu" in a.app.fleet.backends
            await until(lambda: a.knows(b) and b.knows(a))
            await until(lambda: differs(a) == differs(b) == [()])
