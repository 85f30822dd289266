"""The doctor's options, and what it says beyond the signals."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli import checkup, report
from pharos.cli.checkup import EXIT_COMPLETE, EXIT_WRONG, Finding
from pharos.cli.remarks import remarks
from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.core.engine.own import OwnProbeSpec
from pharos.core.fleet import Backend, BackendSpec, Fleet
from pharos.core.signals import Signal
from tests.fakes.http import HttpDouble, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase

Run = Callable[..., Result]


async def look(url: str, **spec: object) -> Finding:
    (found,) = await checkup.examine([BackendSpec(name="it", url=url, **spec)])  # type: ignore[arg-type]
    return found


async def note(url: str, **spec: object) -> tuple[str, ...]:
    """The remarks on a backend."""
    async with new_session() as session:
        it = BackendSpec(name="it", url=url, **spec)  # type: ignore[arg-type]
        found = await inspect.resolve(Fetcher(session), it)
    fleet = Fleet()
    fleet.set_backends((it,), 0.0)
    backend: Backend = fleet.backends["it"]
    if found.plan is not None and found.round is not None:
        fleet.publish(backend, found.plan, found.round, found.started_at, full=True, started_at=found.started_at)
    return remarks(backend, found, found.started_at)


# Remarks.


async def test_an_alias_of_a_model_that_the_engine_does_not_list_is_pointed_out() -> None:
    async with FakeLlamaCpp(model="tiny") as engine:
        (text,) = await note(engine.url, aliases=(("tiny:latest", "small"), ("tinny", "smaller")))
    assert "'tinny'" in text
    assert "lists tiny" in text


async def test_a_configured_capacity_is_said_to_be_used_or_not() -> None:
    async with FakeLlamaCpp(slots=2) as engine:
        (text,) = await note(engine.url, capacity=8)
        assert "8 from the configuration is not used" in text
        assert "(2)" in text
        (text,) = await note(engine.url, capacity=8, kind="openai")
        assert "8 from the configuration is used" in text
        assert await note(engine.url) == ()


async def test_what_may_have_replaced_a_missing_series_is_named() -> None:
    own = OwnProbeSpec("mine", Signal.KV_USAGE, "llamacpp:request_processing")
    async with FakeLlamaCpp() as engine:
        engine.answers["/metrics"] = Reply(200, b"llamacpp:requests_processing_now 0\nx 1\n")
        texts = await note(engine.url, probes=(own,))
    assert any("mine finds nothing, and llamacpp:requests_processing_now may" in text for text in texts)


async def test_an_address_without_an_engine_has_no_remarks() -> None:
    async with HttpDouble() as nothing:
        assert await note(nothing.url, capacity=8) == ()


async def test_remarks_routes_and_feeds_are_in_the_report() -> None:
    row = {"name": "a:1", "url": "http://a:1", "kind": "x", "kind_source": "config", "version": None, "evidence": ""}
    row |= {"error": None, "plan": [], "dropped": [], "unknown": [], "remarks": ["mind\x1b this"]}  # type: ignore[dict-item]
    routes = {"/v1/messages": True, "/v1/responses": False, "/v1/chat/completions": None}
    row |= {"routes": routes, "feeds": {"log": "no such file"}}  # type: ignore[dict-item]
    text = report.text([Finding(row, EXIT_COMPLETE)])
    for words in ("mind\\x1b this", "/v1/messages", "not served", "Claude Code", "no such file", "without a model"):
        assert words in text


# Routes of coding agents.


async def test_routes_of_coding_agents_are_asked_without_a_model_where_that_runs_nothing() -> None:
    async with FakeLlamaCpp() as engine:
        engine.answers["/v1/messages"] = Reply(400, b"{}")
        engine.answers["/v1/responses"] = Reply(404, b"{}")
        engine.answers["/v1/chat/completions"] = Reply(418, b"{}")
        found = await look(engine.url)
        sent = [(seen.path, seen.body) for seen in engine.seen if seen.method == "POST"]
    assert found.row["routes"] == {"/v1/chat/completions": None, "/v1/messages": True, "/v1/responses": False}
    assert sorted(sent) == [(path, b"{}") for path in sorted(found.row["routes"])]


async def test_a_sleeping_engine_is_not_asked_for_its_routes() -> None:
    async with FakeLlamaCpp(phase=Phase.SLEEPING) as engine:
        found = await look(engine.url)
    assert set(found.row["routes"].values()) == {None}
    assert (engine.woken, {seen.method for seen in engine.seen}) == (0, {"GET"})


async def test_an_engine_on_which_such_a_question_means_nothing_is_not_asked() -> None:
    async with HttpDouble() as engine:
        engine.answers["/v1/models"] = Reply(200, b'{"object":"list","data":[{"id":"m","object":"model"}]}')
        found = await look(engine.url)
    assert set(found.row["routes"].values()) == {None}
    assert {seen.method for seen in engine.seen} == {"GET"}


# Logs.


async def test_what_the_log_tells_is_known(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("starting\nslots: 7\nmore\n")
    own = OwnProbeSpec("mine", Signal.CAPACITY, pattern=r"slots: (?P<value>\d+)")
    async with FakeLlamaCpp() as engine:
        found = await look(engine.url, kind="openai", logs=log.as_uri(), probes=(own,))
        missing = await look(engine.url, kind="openai", logs=f"{log.as_uri()}.gone", probes=(own,))
    (row,) = [row for row in found.row["plan"] if row["signal"] == "capacity"]
    assert (row["value"], row["probe"], row["feed"], row["own"]) == (7, "mine", "log", True)
    assert found.row["feeds"] == {}
    assert list(missing.row["feeds"]) == ["log"]
    assert missing.exit_code == EXIT_WRONG
    assert "Feeds that cannot be followed" in report.text([missing])


# The command line.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("http://a:1", "--watch", "--record", "x"), "do not go together"),
        (("http://a:1", "--logs"), "--logs is for --record"),
        (("http://a:1", "http://b:1", "--log-feed", "docker://x"), "for a single URL"),
        (("http://a:1", "--log-feed", "/var/log/x"), "docker://NAME or file:///PATH"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_a_reason(run: Run, arguments: tuple[str, ...], words: str) -> None:
    result = run("doctor", *arguments)
    assert result.exit_code == 64
    assert words in result.output


def test_a_recording_is_saved_and_never_overwritten(run: Run, engine: str, tmp_path: Path) -> None:
    result = run("doctor", engine, "--record", "saved")
    assert "recorded" in result.stderr
    assert (tmp_path / "saved" / "paths.tsv").exists()
    again = run("doctor", engine, "--record", "saved")
    assert again.exit_code == 1
    assert "holds a recording already" in again.output


def test_a_recorded_log_comes_with_a_warning(run: Run, engine: str, tmp_path: Path) -> None:
    assert "has no log feed" in run("doctor", engine, "--record", "x", "--logs").output
    (tmp_path / "engine.log").write_text("one\ntwo\n")
    feed = (tmp_path / "engine.log").as_uri()
    result = run("doctor", engine, "--log-feed", feed, "--record", "saved", "--logs")
    assert "2 lines of its log" in result.stderr
    assert "may hold prompts" in result.stderr
    assert (tmp_path / "saved" / "engine.log").read_text() == "one\ntwo\n"


def test_of_several_backends_each_has_a_folder_and_one_that_cannot_be_read_is_said(
    run: Run, engine: str, tmp_path: Path
) -> None:
    result = run("doctor", engine, "http://127.0.0.1:1", "--record", "saved")
    assert "127.0.0.1:1 is not recorded" in result.stderr
    assert [path.name for path in (tmp_path / "saved").iterdir()] == [engine.removeprefix("http://")]


def test_watching_prints_one_line_of_json_for_each_look_until_it_is_interrupted(engine: str) -> None:
    command = [sys.executable, "-m", "pharos", "doctor", engine, "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert [look["backends"][0]["kind"] for look in looks] == ["llamacpp"] * 2
    assert process.returncode in (EXIT_COMPLETE, EXIT_WRONG)
    assert "Traceback" not in errors


def test_watching_for_people_prints_reports(engine: str) -> None:
    command = [sys.executable, "-m", "pharos", "doctor", engine, "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("== 127.0.0.1")
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode in (EXIT_COMPLETE, EXIT_WRONG)
