"""Commands that ask a Pharos that runs on this machine: doctor without arguments, backend, explain."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli import asking
from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.obs.admin import Admin, AdminListener
from pharos.obs.recent import Recent
from pharos.obs.status import Status
from pharos.proxy.done import Done
from tests.obs.conftest import NOW, VALUES, publish
from tests.obs.conftest import finished as finished  # noqa: PLC0414 - a fixture
from tests.obs.conftest import fleet as fleet  # noqa: PLC0414 - a fixture
from tests.obs.test_overview import overview_of

Run = Callable[..., Result]


class Pharos:
    """An admin listener in a thread, as commands have an event loop of their own or none."""

    def __init__(self, fleet: Fleet, recent: Recent) -> None:
        self.fleet = fleet
        self.recent = recent
        self.address = ""
        self.changes = 0
        overview = overview_of(fleet, recent, busted=lambda: [Busted("alice", "tiny", 64, 32, 5)])
        admin = Admin(
            overview, Status(overview), fleet, on_event=lambda _: None, on_change=self._changed,
        )  # fmt: skip
        self._listener = AdminListener(admin)
        self._is_up = threading.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._live()))

    def _changed(self) -> None:
        self.changes += 1

    async def _live(self) -> None:
        await self._listener.start("127.0.0.1:0")
        self.address = f"127.0.0.1:{self._listener.port}"
        self._is_up.set()
        await self._stop.wait()
        await self._listener.close()

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def pharos(fleet: Fleet, finished: Callable[..., Done]) -> Iterator[Pharos]:
    recent = Recent()
    recent.add(finished(request_id="r-1"))
    running = Pharos(fleet, recent)
    running.start()
    yield running
    running.stop()


def test_the_doctor_asks_the_running_process_before_it_reads_a_file(run: Run, pharos: Pharos, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backends: [{url: http://127.0.0.1:9}]")
    pharos.fleet.cordons.put("gpu-1")
    pharos.fleet.calibration.fallen.add("tiny")
    result = run("doctor", PHAROS_ADMIN_LISTEN=pharos.address)
    assert f"Pharos 1.2.3 at {pharos.address}: process {os.getpid()}, ready for 0 s, policy cost" in result.output
    assert "== gpu-1" in result.output
    drained = "Drained by an operator (pharos backend undrain): no new requests, no requests of ours in flight there."
    assert drained in result.output
    assert "Estimates mislead, so least-load chooses for: tiny" in result.output
    assert "No cache ever holds what alice asks tiny" in result.output
    assert "127.0.0.1:9" not in result.output
    assert result.exit_code == 1, "gpu-2 was not read yet"


def test_it_exits_as_a_look_at_the_engines_would(run: Run, pharos: Pharos) -> None:
    pharos.fleet.unreachable(pharos.fleet.backends["gpu-2"], "connection refused")
    result = run("doctor", "--admin", pharos.address, "--json")
    assert result.exit_code == 2
    told = json.loads(result.output)
    assert [row["exit_code"] for row in told["backends"]] == [1, 2]
    assert told["backends"][1]["error"] == "connection refused"
    assert told["version"] == "1.2.3"


def test_a_pharos_without_backends_is_wrong_and_told_what_to_do(run: Run, pharos: Pharos) -> None:
    pharos.fleet.set_backends((), NOW)
    result = run("doctor", "--admin", pharos.address)
    assert result.exit_code == 1
    assert "It has no backends: every request is answered 503. Add one to the configuration, or" in result.output


def test_the_file_says_where_it_listens(run: Run, pharos: Pharos, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text(f"# x\nadmin_listen: '{pharos.address}'  # ours\nbackends: []\n")
    assert f"at {pharos.address}" in run("doctor", PHAROS_ADMIN_LISTEN="").output


def test_where_none_runs_the_file_counts_as_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backends: [{url: http://127.0.0.1:9, name: gone}]")
    result = run("doctor", PHAROS_ADMIN_LISTEN="127.0.0.1:0")
    assert "== gone" in result.output
    assert result.exit_code == 2


def test_a_process_that_was_asked_for_and_is_not_there_is_said(run: Run) -> None:
    result = run("doctor", "--admin", "127.0.0.1:9")
    assert (result.exit_code, result.output) == (
        1, "pharos: no Pharos answers at 127.0.0.1:9: is it running on this machine?\n",
    )  # fmt: skip
    assert run("doctor", "--admin", "127.0.0.1:9", "http://gpu").exit_code == 64
    assert run("doctor", "--admin", "gpu-box:8091").exit_code == 64


def test_whatever_else_listens_there_is_not_taken_for_pharos(run: Run, engine: str, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backends: [{url: http://127.0.0.1:9, name: gone}]")
    other = engine.removeprefix("http://")
    assert "== gone" in run("doctor", PHAROS_ADMIN_LISTEN=other).output
    assert "is no Pharos" in run("backend", "list", "--admin", other).output
    with pytest.raises(asking.NobodyError):
        asking.ask(other, "/v1/models/nix")


def test_backends_are_listed_drained_and_let_in_again(run: Run, pharos: Pharos) -> None:
    at = ("--admin", pharos.address)
    assert "gpu-1  up               0 in flight\n" in run("backend", "list", *at).output
    drained = run("backend", "drain", "gpu-1", "--wait", *at)
    assert drained.output == "gpu-1 is drained; no requests of ours in flight there\n"
    assert "drained by an operator" in run("backend", "list", *at).output
    assert run("backend", "drain", "gpu-1", *at).output.startswith("gpu-1 was drained already")
    assert run("backend", "undrain", "gpu-1", *at).output.startswith("gpu-1 gets new requests again")
    assert run("backend", "undrain", "gpu-1", *at).output.startswith("gpu-1 was not drained")
    assert pharos.changes == 2
    assert json.loads(run("backend", "list", "--json", *at).output)["backends"][0]["drained_by"] is None


def test_a_drain_that_waits_returns_when_nothing_runs_there(
    run: Run, pharos: Pharos, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pharos.cli import backend

    target = pharos.fleet.backends["gpu-1"].targets["tiny"]
    pharos.fleet.dispatched(target)
    looks = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            pharos.fleet.ended(target, target.slots, NOW)

    monkeypatch.setattr(backend.time, "sleep", pause)
    result = run("backend", "drain", "gpu-1", "--wait", "--admin", pharos.address)
    assert result.output.splitlines() == [
        "gpu-1 is drained; 1 request of ours in flight there",
        "gpu-1: nothing of ours runs there any more",
    ]
    assert len(looks) == 2


def test_discovery_keeps_a_backend_drained_whatever_an_operator_says(run: Run, pharos: Pharos) -> None:
    from pharos.core.fleet.backend import BackendSpec

    pharos.fleet.set_backends([BackendSpec("gpu-1", "http://gpu-1:8080", drain=True)], NOW)
    publish(pharos.fleet, "gpu-1", VALUES)
    result = run("backend", "undrain", "gpu-1", "--admin", pharos.address)
    assert (result.exit_code, result.output) == (
        1, "gpu-1 stays drained: its label or annotation pharos.drain says so, or it is not ready\n",
    )  # fmt: skip


def test_a_backend_that_is_not_there_and_a_pharos_that_is_not_are_said(run: Run, pharos: Pharos) -> None:
    result = run("backend", "drain", "nix", "--admin", pharos.address)
    assert (result.exit_code, result.output) == (
        1, "pharos: there is no backend 'nix'; there are: gpu-1, gpu-2\n",
    )  # fmt: skip
    result = run("backend", "drain", "nix", "--admin", "127.0.0.1:9")
    assert result.exit_code == 1
    assert "is Pharos running on this machine?" in result.output


def test_a_request_is_explained_by_the_process_without_a_key(run: Run, pharos: Pharos) -> None:
    result = run("explain", "r-1", PHAROS_ADMIN_LISTEN=pharos.address)
    assert "r-1: tiny for alice → tiny@gpu-1" in result.output
    assert "gpu-1" in result.output
    result = run("explain", "r-2", "--admin", pharos.address)
    assert result.exit_code == 1
    assert "no request of this id is among the last 1" in result.output
    assert run("explain", "r-1", "--admin", pharos.address, "--log", "x").exit_code == 64
    assert run("explain", "r-1", "--admin", pharos.address, "--url", "x").exit_code == 64
    assert "is Pharos running" in run("explain", "r-1", "--admin", "127.0.0.1:9").output


def test_asking_the_process_imports_neither_the_app_nor_what_reads_engines(pharos: Pharos) -> None:
    """Inside a pod it runs beside the program, in what is left of its memory."""
    script = (
        "import sys\n"
        "from pharos.cli import main\n"
        "try:\n"
        "    main(['doctor'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = ('pharos.app', 'pharos.proxy', 'pharos.control', 'aiohttp', 'yaml', 'kubernetes_asyncio', 'jinja2',\n"
        "         'asyncio', 'uvloop')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    environ = os.environ | {"PHAROS_ADMIN_LISTEN": pharos.address}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, cwd=Path.cwd(), capture_output=True, text=True, check=True
    )
    assert "== gpu-1" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"
