"""The doctor on engines, names and places that nobody wishes for."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli import agents, checkup, listen, report, session
from pharos.cli.checkup import EXIT_COMPLETE, EXIT_WRONG, Finding
from pharos.core.engine.own import OwnProbeSpec
from pharos.core.fleet import BackendSpec
from pharos.core.signals import Signal
from tests.fakes.http import Reply
from tests.fakes.llama_swap import FakeLlamaSwap
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ollama import FakeOllama

Run = Callable[..., Result]
KEY = "sk-very-secret"
EVENTS = {"Content-Type": "text/event-stream"}


async def look(url: str, **spec: object) -> Finding:
    (found,) = await checkup.examine([BackendSpec(name="it", url=url, **spec)])  # type: ignore[arg-type]
    return found


# Engines.


async def test_what_an_engine_sends_back_of_our_key_is_not_shown() -> None:
    async with FakeLlamaCpp() as engine:
        models = {"data": [{"id": f"m {KEY}", "owned_by": "llamacpp"}]}
        engine.answers["/v1/models"] = Reply(200, json.dumps(models).encode(), {"Server": "llama.cpp"})
        engine.answers["/props"] = Reply(200, json.dumps({"build_info": f"b1-{KEY}", "total_slots": 1}).encode())
        found = await look(engine.url, headers=(("X-Key", KEY),))
    assert KEY not in json.dumps(found.row)
    assert "(masked)" in report.text([found])


async def test_the_fault_of_one_backend_is_its_row_and_the_others_are_told() -> None:
    async with FakeLlamaCpp(build="b11434-abc") as engine:
        specs = [BackendSpec(name="bad", url=engine.url, kind="no such kind"), BackendSpec(name="ok", url=engine.url)]
        bad, fine = await checkup.examine(specs)
    assert "fault of Pharos itself" in bad.row["error"]
    assert (bad.exit_code, fine.exit_code) == (EXIT_WRONG, EXIT_COMPLETE)
    assert set(bad.row) == set(fine.row)


def test_json_is_plain_ascii_whatever_names_hold() -> None:
    printed = session._told([Finding({"name": "\ud800\u202e\u009b"}, EXIT_COMPLETE)], as_json=True)
    assert printed.isascii()
    assert json.loads(printed)["backends"][0]["name"] == "\ud800\u202e\u009b"


def test_a_name_in_a_script_that_the_terminal_lacks_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    session._print("model \u65e5\n")
    assert written.getvalue() == b"model \\u65e5\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "it told nothing"), (b"data: garbage\n\n", "llama-swap-"), (b"data: {}\n\n", "llama-swap-")],
)
async def test_a_stream_of_events_that_tells_nothing_is_a_fault_with_its_reason(body: bytes, words: str) -> None:
    async with FakeLlamaSwap() as engine:
        engine.answers["/api/events"] = Reply(200, body, EVENTS)
        found = await look(engine.url)
    assert words in found.row["feeds"]["SSE /api/events"]
    assert found.exit_code == EXIT_WRONG


async def test_a_log_that_is_not_there_is_the_reason_for_what_only_it_tells(tmp_path: Path) -> None:
    own = OwnProbeSpec("mine", Signal.CAPACITY, pattern=r"slots: (?P<value>\d+)")
    async with FakeLlamaCpp() as engine:
        found = await look(engine.url, kind="openai", logs=(tmp_path / "gone").as_uri(), probes=(own,))
    (row,) = [row for row in found.row["unknown"] if row["signal"] == "capacity"]
    assert row["reason"] == f"log cannot be read: {found.row['feeds']['log']}"


async def test_a_log_without_lines_and_without_end_does_not_hold_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "BUDGET_S", 0.0)
    with (tmp_path / "log").open("wb") as file:
        file.truncate(30 << 30)
    own = OwnProbeSpec("mine", Signal.CAPACITY, pattern=r"slots: (?P<value>\d+)")
    async with FakeLlamaCpp() as engine:
        found = await look(engine.url, kind="openai", logs=(tmp_path / "log").as_uri(), probes=(own,))
    assert found.row["error"] is None


async def test_of_a_long_log_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "MAX_LOG_BYTES", 20)
    (tmp_path / "log").write_text("slots: 7\nmore and more\nslots: 8\n")
    own = OwnProbeSpec("mine", Signal.CAPACITY, pattern=r"slots: (?P<value>\d+)")
    async with FakeLlamaCpp() as engine:
        found = await look(engine.url, kind="openai", logs=(tmp_path / "log").as_uri(), probes=(own,))
    assert [row["value"] for row in found.row["plan"] if row["signal"] == "capacity"] == [7]


def test_all_that_is_done_with_a_backend_fits_into_one_budget() -> None:
    assert checkup.VISIT_S + max(listen.EVENTS_S, agents.TIMEOUT_S) <= checkup.BUDGET_S <= 2.5


async def test_capacity_is_told_for_each_model_as_it_is_used_where_an_engine_tells_it_by_queue(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    async with FakeOllama(log=log, parallel=3) as engine:
        found = await look(engine.url, logs=log.as_uri(), capacity=7)
        models = list(engine.models)
    told = {row["model"]: row["value"] for row in found.row["plan"] if row["signal"] == "capacity"}
    assert set(told) <= set(models)
    assert 3 in told.values()
    (text,) = [text for text in found.row["remarks"] if text.startswith("capacity")]
    assert "7 from the configuration is not used" in text


async def test_where_slots_are_told_but_not_for_which_models_the_configured_capacity_is_said_to_be_used(
    tmp_path: Path,
) -> None:
    log = tmp_path / "serve.log"
    async with FakeOllama(log=log, parallel=3) as engine:
        engine.answers["/api/show"] = Reply(404, b"{}")
        found = await look(engine.url, logs=log.as_uri(), capacity=7)
    assert not [row for row in found.row["plan"] if row["signal"] == "capacity"]
    (text,) = [text for text in found.row["remarks"] if text.startswith("capacity")]
    assert "7 from the configuration is used, because it is not known for which models" in text


# Places.


def test_each_backend_has_a_folder_of_its_own_within_the_given_one() -> None:
    names = ["a/b", "a_b", ".", "..", "A_B", "../../etc", "a_b-2", "x" * 300, "\ud800\n", "\U0001f600" * 100, "gpu:1"]
    made = session.folder_names(names)
    assert len({name.lower() for name in made}) == len(names)
    assert not [name for name in made if "/" in name or name.startswith(".") or len(name.encode()) > 255]
    assert made[-1] == "gpu:1"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("file", "there is a file in its place"),
        ("file/below", "there is a file in its place"),
        ("full", "full is not empty; give another folder"),
        ("x" * 300, "name too long"),
    ],
)
def test_what_is_wrong_with_the_place_of_a_recording_is_said_after_the_findings(
    run: Run, engine: str, tmp_path: Path, where: str, words: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "props").write_text("mine")
    result = run("doctor", engine, "--record", where)
    assert result.exit_code == 1
    assert "kind     llamacpp" in result.stdout
    assert words in result.stderr.lower()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "props"]
    assert (tmp_path / "full" / "props").read_text() == "mine"


def test_a_recording_needs_the_name_of_a_folder(run: Run, engine: str) -> None:
    result = run("doctor", engine, "--record", "")
    assert result.exit_code == 64
    assert "needs the name of a folder" in result.output


def test_one_recording_that_fails_does_not_keep_the_others_from_being_made(
    run: Run, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "pharos.yaml").write_text(f"backends: [{{url: '{engine}', name: one}}, {{url: '{engine}', name: two}}]")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "one").write_text("mine")
    result = run("doctor", "--record", "saved")
    assert result.exit_code == 1
    assert (tmp_path / "saved" / "two" / "paths.tsv").exists()
    assert (tmp_path / "saved" / "one").read_text() == "mine"
