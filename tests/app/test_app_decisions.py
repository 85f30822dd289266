"""The decision log of a whole Pharos: written when configured, and what it says is what the page says."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from pharos.cli import main
from pharos.sim.replay import read, replay
from tests.app.running import pharos
from tests.fakes.llamacpp import FakeLlamaCpp


async def test_every_request_is_in_the_log_and_its_decision_comes_out_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    async with (
        FakeLlamaCpp() as engine,
        FakeLlamaCpp() as other,
        pharos(engine, other, decision_log={"path": str(path)}) as running,
    ):
        for number in range(5):
            async with running.chat(stream=True, **{"X-Request-Id": f"r{number}"}) as response:
                await response.read()
        await running.app.end()
    rows, skipped = read(path, skip_bad=False)
    assert (len(rows), skipped) == (5, 0)
    found = replay(rows, "cost")
    assert (found.same, found.decisions) == (5, 5)
    assert rows[0].request is not None
    assert (rows[0].model, rows[0].status, len(rows[0].candidates)) == (rows[4].model, 200, 2)


async def test_without_the_setting_nothing_is_logged() -> None:
    async with pharos() as running:
        assert running.app.reporting.decision_log is None
        assert "decision log" not in running.app.tasks.names


async def test_a_request_of_a_running_pharos_is_explained() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        async with running.chat(stream=True) as response:
            await response.read()
            request_id = response.headers["X-Request-Id"]
        asked = await asyncio.to_thread(
            CliRunner().invoke, main, ["explain", request_id, "--url", running.url, "--json"]
        )
        assert asked.exit_code == 0, asked.output
        assert json.loads(asked.stdout)["status"] == 200
        unknown = await asyncio.to_thread(CliRunner().invoke, main, ["explain", "nobody", "--url", running.url])
        assert unknown.exit_code == 1
        assert "does not know request nobody" in unknown.stderr


async def test_an_explanation_behind_keys_wants_one_of_an_admin() -> None:
    import hashlib

    keys = [{"name": "a", "sha256": hashlib.sha256(b"pk-test").hexdigest(), "admin": True}]
    async with pharos(keys=keys) as running:
        refused = await asyncio.to_thread(CliRunner().invoke, main, ["explain", "r", "--url", running.url])
        assert "--key-file" in refused.stderr
