"""A whole Pharos whose file changes: what it serves afterwards, and what goes on undisturbed."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from pharos.app import App
from pharos.app.reloading import STATIC
from pharos.config.reload import Source
from pharos.control.fetch import new_session
from tests.app.running import Running
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.waiting import WAIT_S


def key(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "sha256": hashlib.sha256(f"pk-{name}".encode()).hexdigest(), **more}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer pk-{name}"}


class Changing(Running):
    """A running Pharos and the file that it is configured by."""

    path: Path

    async def configure(self, *engines: FakeLlamaCpp, **config: object) -> None:
        """Change the file and have it looked at as often as a change needs."""
        write(self.path, *engines, **config)
        reloader = self.app.reloading.reloader
        assert reloader is not None
        for _ in range(3):
            await reloader.look()

    async def status(self, name: str | None = None) -> int:
        headers = bearer(name) if name is not None else {}
        async with self.chat(**headers) as response:
            await response.read()
            return int(response.status)


def write(path: Path, *engines: FakeLlamaCpp, **config: object) -> None:
    text = {
        "listen": "127.0.0.1:0",
        "backends": [{"url": engine.url, "name": f"e{number}"} for number, engine in enumerate(engines)],
        "drain": {"grace": 0, "timeout": 0},
        **config,
    }
    path.write_text(json.dumps(text), encoding="utf-8")


@contextlib.asynccontextmanager
async def pharos(path: Path, *engines: FakeLlamaCpp, **config: object) -> AsyncIterator[Changing]:
    write(path, *engines, **config)
    source = Source(path)
    async with new_session() as session, aiohttp.ClientSession() as http:
        app = App(source.read().config, session, source)
        async with app.tasks:
            await app.start()
            app.tasks.stop("watch the configuration")  # the tests look
            running = Changing(app, http)
            running.path = path
            try:
                await running.until(lambda: app.proxy.ready)
                yield running
            finally:
                await app.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pharos.yaml"


async def test_keys_change_at_once_and_a_removed_one_is_refused(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine, keys=[key("a")]) as running:
        assert [await running.status(name) for name in ("a", "b")] == [200, 401]
        await running.configure(engine, keys=[key("b", models=["other"])])
        assert [await running.status(name) for name in ("a", "b")] == [401, 404]
        await running.configure(engine, keys=[key("b")])
        assert await running.status("b") == 200


async def test_a_bad_file_leaves_keys_and_backends_as_they_are_and_is_counted(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine, keys=[key("a")]) as running:
        await running.configure(engine, keys=[key("a"), key("a")])
        assert await running.status("a") == 200
        told = running.app.reloading.told()
        assert told is not None
        assert "names are unique" in told["error"]
        _, text = await running.get("/metrics")
        assert 'pharos_decisions_total{stage="reload",outcome="refused"} 1' in text.splitlines()
        assert "pharos_config_last_reload_successful 0" in text.splitlines()
        _, page = await running.get("/status?format=json")
        assert page.startswith('{"error"'), "it needs an administrator's key"
        await running.configure(engine, keys=[key("a", admin=True)])
        _, text = await running.get("/metrics")
        assert "pharos_config_last_reload_successful 1" in text.splitlines()


async def test_a_new_backend_is_read_and_a_removed_one_finishes_what_it_streams(path: Path) -> None:
    async with FakeLlamaCpp() as first, FakeLlamaCpp() as second, pharos(path, first) as running:
        first.hold()
        async with running.chat(stream=True) as stream:
            await stream.content.readline()
            before = running.app.fleet.backends["e0"]
            await running.configure(second, backends=[{"url": second.url, "name": "e1"}])
            assert list(running.app.fleet.backends) == ["e1"]
            await running.until(lambda: running.app.fleet.models(asyncio.get_running_loop().time()))
            assert await running.status() == 200
            assert before.removed
            first.release()
            async with asyncio.timeout(WAIT_S):
                assert (await stream.read()).endswith(b"data: [DONE]\n\n")


async def test_a_change_of_one_backend_leaves_the_streams_and_the_state_of_others(path: Path) -> None:
    async with FakeLlamaCpp() as first, FakeLlamaCpp() as second, pharos(path, first, second) as running:
        kept, changed = running.app.fleet.backends.values()
        await running.configure(
            backends=[{"url": first.url, "name": "e0"}, {"url": second.url, "name": "e1", "capacity": 3}]
        )
        now_kept, now_changed = running.app.fleet.backends.values()
        assert now_kept is kept
        assert now_changed is not changed
        assert now_changed.spec.capacity == 3


async def test_limits_and_switches_change_for_the_next_request(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        await running.configure(engine, limits={"body": 16}, response_headers={"target": True}, queue={"size": 0})
        assert await running.status() == 413
        await running.configure(engine, response_headers={"target": True}, queue={"size": 0})
        async with running.chat() as response:
            assert response.headers["X-Pharos-Target"] == "e0"
            await response.read()
        assert running.app.config.queue.size == 0


async def test_the_fields_in_effect_say_where_they_come_from_and_which_wait_for_a_restart(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        await running.configure(engine, policy="least-load", queue={"size": 7})
        shown = {row["field"]: (row["value"], row["origin"]) for row in running.app.reloading.shown()["fields"]}
        assert shown["queue.size"] == (7, f"{path}:1")
        assert shown["policy"] == ("cost", f"{path}:1, which has another value that waits for a restart")
        assert shown["retry.attempts"] == (1, "default")


async def test_a_new_alias_is_a_model_after_the_backends_next_list(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        await running.configure(engine, aliases={"short": [RECORDED_MODEL]})
        now = asyncio.get_running_loop().time
        await running.until(lambda: "short" in running.app.fleet.models(now()))


async def test_a_new_credential_and_the_backend_that_uses_it_come_together(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        secret = path.with_name("secret")
        await asyncio.to_thread(secret.write_text, "sk-engine", encoding="utf-8")
        await running.configure(
            backends=[{"url": engine.url, "name": "e0", "credential": "c"}],
            credentials={"c": {"api_key_file": str(secret)}},
        )
        await running.until(lambda: running.app.fleet.backends["e0"].plan is not None)
        assert await running.status() == 200
        assert engine.prompts[-1].headers["authorization"] == "Bearer sk-engine"


async def test_two_sources_with_one_name_or_url_make_one_backend_and_say_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        spec = running.app.fleet.backends["e0"].spec
        backends = running.app.backends
        backends._told["other"] = (spec,)
        await running.configure(engine)
        backends.tell("other", [spec])
        assert list(running.app.fleet.backends) == ["e0"]
        told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
        assert told == [
            "e0, found by other, is left out: there is a backend of that name from the configuration already"
        ]
        backends.tell("other", [msgspec.structs.replace(spec, name="x", url=f"http://127.0.0.1:{n}") for n in (1, 2)])
        assert [it.spec.url for it in running.app.fleet.backends.values()] == [spec.url, "http://127.0.0.1:1"]


async def test_who_waits_for_a_backend_that_was_removed_is_told_so_and_does_not_wait_for_ever(path: Path) -> None:
    queue = {"absent_wait": "10ms"}
    async with FakeLlamaCpp(slots=1) as engine, pharos(path, engine, queue=queue) as running:
        engine.hold()
        async with running.chat(stream=True) as stream:
            await stream.content.readline()
            waiting = asyncio.create_task(running.status())
            await running.until(lambda: running.app.ledger.waiting == 1)
            await running.configure(queue=queue)
            assert await asyncio.wait_for(waiting, WAIT_S) == 503
            engine.release()
            await stream.read()


async def test_who_waits_goes_at_once_to_a_backend_that_is_known_and_gets_its_requests_back(path: Path) -> None:
    async with FakeLlamaCpp() as engine, pharos(path, engine) as running:
        [spec] = [backend.spec for backend in running.app.fleet.backends.values()]
        running.app.tasks.stop("scrape e0")  # no round of its own tells anybody
        running.app.backends.tell(STATIC, [msgspec.structs.replace(spec, drain=True)])
        waiting = asyncio.create_task(running.status())
        await running.until(lambda: running.app.ledger.waiting == 1)
        running.app.backends.tell(STATIC, [spec])
        assert await asyncio.wait_for(waiting, WAIT_S) == 200
