"""An engine that wants a key: without it nothing is guessed, with it all is read and served."""

import asyncio
from pathlib import Path

import pytest

from pharos.config.credentials import Credentials
from pharos.config.schema import Credential
from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.core.fleet.backend import BackendSpec
from tests.engines import registry
from tests.engines.llamacpp_stands import Keyed
from tests.engines.looking import post, target_of
from tests.live.real import pharos

pytestmark = [pytest.mark.live, pytest.mark.slow]

KEYED = pytest.mark.parametrize("stand", registry.names(lambda kind: kind is Keyed), indirect=True)


@KEYED
async def test_without_the_key_its_kind_is_not_guessed_and_the_setting_is_named(stand: Keyed) -> None:
    async with new_session() as session:
        found = await inspect.resolve(Fetcher(session), BackendSpec(name=stand.backend, url=stand.url))
    assert found.plan is None
    assert found.detection.kind is None
    assert "credential" in found.why


@KEYED
async def test_a_key_that_is_refused_is_not_shown(stand: Keyed, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("another-key", encoding="utf-8")
    credentials = Credentials({"engine": Credential(api_key_file=str(tmp_path / "key"))}, {})
    spec = BackendSpec(name=stand.backend, url=stand.url, credential="engine")
    async with new_session() as session:
        found = await inspect.resolve(Fetcher(session, credentials=credentials), spec)
    assert found.plan is None
    assert "engine" in found.why
    assert "another-key" not in found.why


@KEYED
async def test_with_the_key_everything_is_read_and_requests_are_served(stand: Keyed, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(stand.key + "\n", encoding="utf-8")
    credentials = {"engine": {"api_key_file": str(tmp_path / "key")}}
    async with pharos(backends=[stand.settings()], credentials=credentials) as running:
        fleet = running.app.fleet
        await running.until(lambda: fleet.resolve(stand.model) in fleet.backends[stand.backend].targets)
        now = asyncio.get_running_loop().time()
        view = target_of(running, stand).view(now)
        assert (view.running, view.waiting, view.capacity) == (0, 0, stand.slots)
        status, answer, _ = await post(running.http, running.url, stand.chat(4))
        assert status == 200, answer
