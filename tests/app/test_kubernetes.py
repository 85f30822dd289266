"""A whole Pharos that finds its engines by annotations, over a double of the Kubernetes API and scripted engines."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pharos.cli import running
from pharos.config import load
from pharos.config.schema import Credential
from pharos.control.discovery.kubernetes.login import Login
from tests.app.running import Running
from tests.app.running import pharos as whole_pharos
from tests.control.discovery.kubernetes.rigging import login
from tests.fakes.kubernetes import FakeCluster, endpoint, endpoint_slice, pod, service
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.waiting import WAIT_S

ON = {"pharos.enable": "true"}


def engine_pod(
    name: str, engine: FakeLlamaCpp, annotations: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    annotated = ON if annotations is None else annotations
    return pod(name, "127.0.0.1", ports=(("http", engine.port),), annotations=annotated, **more)


@contextlib.asynccontextmanager
async def pharos(cluster: FakeCluster, *static: FakeLlamaCpp, **config: object) -> AsyncIterator[Running]:
    async def enter() -> Login:
        return login(cluster)

    found = {"discovery": {"kubernetes": {"enabled": True}}} | config
    async with cluster.serve(), whole_pharos(*static, enter=enter, wait=False, **found) as it:
        yield it


async def ready(running: Running) -> Running:
    await running.until(lambda: running.app.proxy.ready)
    return running


async def status(running: Running) -> int:
    async with running.chat() as response:
        await response.read()
        return int(response.status)


async def test_an_annotated_pod_is_there_before_ready_and_serves() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine))
        async with pharos(cluster) as it:
            await ready(it)
            assert list(it.app.fleet.backends) == ["models/gpu"]
            assert await status(it) == 200


async def test_a_stream_outlives_its_pod_s_end_while_new_requests_go_elsewhere() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as old, FakeLlamaCpp() as new:
        await cluster.put("pods", engine_pod("old", old))
        async with pharos(cluster) as it:
            await ready(it)
            old.hold()
            async with it.chat(stream=True) as stream:
                await stream.content.readline()
                await cluster.put("pods", engine_pod("old", old, ending=True))
                await cluster.put("pods", engine_pod("new", new))
                await it.until(lambda: it.app.fleet.backends["models/old"].spec.drain)
                await it.until(lambda: "models/new" in it.app.fleet.backends)
                assert await status(it) == 200
                old.release()
                async with asyncio.timeout(WAIT_S):
                    assert (await stream.read()).endswith(b"data: [DONE]\n\n")
            await cluster.delete("pods", "old")
            await it.until(lambda: list(it.app.fleet.backends) == ["models/new"])


async def test_a_pod_that_is_ready_again_has_its_state_back() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine))
        async with pharos(cluster) as it:
            await ready(it)
            backend = it.app.fleet.backends["models/gpu"]
            await cluster.put("pods", engine_pod("gpu", engine, ready=False))
            await it.until(lambda: backend.spec.drain)
            await cluster.put("pods", engine_pod("gpu", engine))
            await it.until(lambda: not backend.spec.drain)
            assert it.app.fleet.backends["models/gpu"] is backend
            assert await status(it) == 200


async def test_a_service_is_routed_to_by_its_endpoints() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("services", service("llm", annotations=ON))
        part = endpoint_slice("llm", endpoint("127.0.0.1", "gpu"), ports=(("http", engine.port),))
        await cluster.put("endpointslices", part)
        await cluster.put("pods", engine_pod("gpu", engine, {}))
        async with pharos(cluster) as it:
            await ready(it)
            assert list(it.app.fleet.backends) == ["models/gpu"]
            assert await status(it) == 200


async def test_bad_annotations_are_an_event_and_what_is_listed_serves_on() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("bad", engine, {**ON, "pharos.prot": "1"}))
        async with pharos(cluster, engine) as it:
            await ready(it)
            assert await status(it) == 200
            await it.until(lambda: cluster.events)
            assert "did you mean pharos.port?" in cluster.events[0]["note"]


async def test_listed_backends_serve_where_every_right_is_missing() -> None:
    cluster = FakeCluster()
    cluster.denied = {"pods", "services", "endpointslices"}
    async with FakeLlamaCpp() as engine, pharos(cluster, engine) as it:
        await ready(it)
        assert await status(it) == 200


async def test_an_instance_is_not_ready_while_nobody_tells_it_what_engines_there_are() -> None:
    cluster = FakeCluster()
    cluster.status = 503
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine))
        async with pharos(cluster) as it:
            await it.until(lambda: it.app.cluster is not None and it.app.cluster.objects is not None)
            await it.until(lambda: len(cluster.asked) >= 3)
            assert not it.app.proxy.ready
            cluster.status = 0
            await ready(it)
            assert await status(it) == 200


async def test_a_credential_that_is_configured_later_lets_a_pod_in() -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine, {**ON, "pharos.credential": "later"}))
        async with pharos(cluster) as it:
            await ready(it)
            assert not it.app.fleet.backends
            config = it.app.config
            more = load.parse(
                json.dumps({"credentials": {"later": {"api_key_env": "PATH"}}}), {}, source="test"
            ).credentials
            assert isinstance(more["later"], Credential)
            it.app.reloading.adopt(
                type(config)(**{n: getattr(config, n) for n in config.__struct_fields__} | {"credentials": more})
            )
            await it.until(lambda: "models/gpu" in it.app.fleet.backends)


async def doctor(running: Running) -> Any:
    async with running.http.get(f"http://127.0.0.1:{running.app.admin.port}/doctor") as reply:
        return (await reply.json())["kubernetes"]


async def test_the_doctor_tells_what_is_seen_refused_and_not_allowed() -> None:
    cluster = FakeCluster()
    cluster.denied = {"services"}
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine))
        await cluster.put("pods", engine_pod("bad", engine, {**ON, "pharos.port": "api"}))
        async with pharos(cluster) as it:
            await ready(it)
            told = await doctor(it)
        assert told["namespaces"] == ["models"]
        assert told["objects"] == {"pods": 2, "services": 0, "endpointslices": 0}
        assert told["accepted"] == [{"backend": "models/gpu", "ready": True, "up": True}]
        assert [one["object"] for one in told["refused"]] == ["Pod models/bad"]
        assert [one["text"] for one in told["troubles"]] == ["no right to list services in namespace models"]
        assert {(one["verb"], one["resource"]) for one in told["rights"] if one["allowed"] is False} == {
            ("list", "services"), ("watch", "services"),
        }  # fmt: skip
        assert any("models/gpu has no preStop" in one["text"] for one in told["remarks"])


async def test_the_command_prints_it_and_its_status_says_that_something_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = FakeCluster()
    async with FakeLlamaCpp() as engine:
        await cluster.put("pods", engine_pod("gpu", engine))
        await cluster.put("pods", engine_pod("bad", engine, {**ON, "pharos.prot": "1"}))
        async with pharos(cluster) as it:
            await ready(it)
            where = f"127.0.0.1:{it.app.admin.port}"
            status = await asyncio.to_thread(running.doctor, where, as_json=False, watch=False)
    told = capsys.readouterr().out
    assert status == 1
    assert "Kubernetes, namespace models: 2 Pods, no Services and no EndpointSlices seen, 1 backend among them" in told
    assert "   Pod models/bad is left out: pharos.prot is no label of Pharos; did you mean pharos.port?" in told


async def test_the_doctor_of_an_instance_that_looks_at_no_cluster_tells_of_none() -> None:
    async with FakeLlamaCpp() as engine, pharos(FakeCluster(), engine, discovery={}) as it:
        await ready(it)
        assert await doctor(it) is None
