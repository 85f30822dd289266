"""Keys of engines in a whole Pharos: the same for reading and for requests, and new ones without a restart."""

import logging
from pathlib import Path

import pytest

from tests.app.running import pharos
from tests.fakes.gated import Gated

CREDENTIAL = {"credential": "gpu"}


async def test_a_locked_engine_is_read_and_served_with_its_key_and_with_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pharos")
    file = tmp_path / "key"
    file.write_text("sk-gpu\n")
    async with Gated() as engine:
        config = {
            "credentials": {"gpu": {"api_key_file": str(file)}},
            "backends": [{"url": engine.url, "name": "gpu", **CREDENTIAL}],
        }
        async with pharos(**config) as running:
            async with running.chat(Authorization="Bearer pk-client") as response:
                assert response.status == 200
            fresh = tmp_path / "fresh"
            fresh.write_text("sk-next")
            fresh.replace(file)
            engine.key = "sk-next"
            seen = len(engine.seen)
            await running.until(lambda: any("sk-next" in str(one.headers) for one in engine.seen[seen:]))
            async with running.chat(Authorization="Bearer pk-client") as response:
                assert response.status == 200
            pages = [await running.get(path) for path in ("/status", "/status?format=json", "/metrics")]
        assert not [one for one in engine.seen if "pk-client" in str(one.headers)]
    told = caplog.text + str(pages)
    assert "credentials.gpu.api_key_file has changed" in caplog.text
    assert "sk-gpu" not in told
    assert "sk-next" not in told


async def test_an_engine_whose_key_is_missing_is_told_by_its_setting_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pharos")
    async with Gated() as engine:
        config = {
            "credentials": {"gpu": {"api_key_file": str(tmp_path / "missing")}},
            "backends": [{"url": engine.url, "name": "gpu", **CREDENTIAL}],
        }
        async with pharos(**config) as running:
            await running.until(lambda: len(engine.seen) > 2)
            error = running.app.fleet.backends["gpu"].error
    assert error is not None
    assert "credentials.gpu.api_key_file cannot be read (No such file or directory)" in error
    assert caplog.text.count("its backends are asked without a key") == 1
