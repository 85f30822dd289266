import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli import checkup, report
from pharos.cli.checkup import EXIT_COMPLETE, EXIT_UNREACHABLE, EXIT_WRONG, Finding
from pharos.core.fleet import BackendSpec
from tests.fakes.http import Hang, HttpDouble, Raw, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase

Run = Callable[..., Result]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def look(url: str, **spec: object) -> Finding:
    (found,) = await checkup.examine([BackendSpec(name="it", url=url, **spec)])  # type: ignore[arg-type]
    return found


def test_the_report_has_every_signal_with_its_source(run: Run, engine: str) -> None:
    result = run("doctor", engine)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["signal", "model", "value", "read", "from", "probe"] in lines
    assert ["running", "0", "requests", "GET", "/metrics", "llamacpp-running"] in lines
    assert ["capacity", "2", "slots", "GET", "/props", "llamacpp-capacity"] in lines
    assert ["models", "smollm2:135m", "GET", "/v1/models", "llamacpp-models"] in lines
    assert any(line[0] == "size_bytes" and line[3] == "MiB" for line in lines if line)
    assert "kind     llamacpp (detected: /props has build_info" in result.stdout
    assert "       cost     " in result.stdout
    assert "redundant" in result.stdout
    assert lines[-1] == [
        "All",
        "is",
        "known",
        "that",
        "this",
        "engine",
        "tells.",
        "Unknown",
        "signals",
        "are",
        "explained",
        "above.",
    ]


def test_columns_stand_under_their_headings(run: Run, engine: str) -> None:
    lines = run("doctor", engine).stdout.splitlines()
    (head,) = [line for line in lines if line.split() == ["signal", "model", "value", "read", "from", "probe"]]
    for row in lines[lines.index(head) + 1 : lines.index("", lines.index(head))]:
        for name in ("signal", "value", "read from", "probe"):
            at = head.index(name)
            assert row[at] != " ", (name, row)
            assert row[at - 1] == " ", (name, row)


def test_json_has_one_object_per_backend_in_the_shape_that_all_pages_share(
    run: Run, engine: str, closed_port: int
) -> None:
    result = run("doctor", "--json", engine, f"http://127.0.0.1:{closed_port}")
    assert result.exit_code == EXIT_UNREACHABLE
    told = json.loads(result.stdout)
    assert told["schema"] == 1
    known, dead = told["backends"]
    shape = {"schema", "name", "url", "kind", "kind_source", "version", "up", "plan", "dropped", "unknown"}
    assert shape | {"evidence", "error", "remarks", "routes", "feeds"} == set(known) == set(dead)
    assert (known["kind"], known["kind_source"], known["up"], known["error"]) == ("llamacpp", "detected", True, None)
    assert {"signal", "model", "value", "probe", "feed", "age_s", "own"} == set(known["plan"][0])
    assert (dead["kind"], dead["up"], dead["plan"]) == (None, False, [])
    assert "connection refused" in dead["error"]


def test_a_url_needs_no_scheme_and_a_file_lists_several(run: Run, engine: str, tmp_path: Path) -> None:
    assert run("doctor", engine.removeprefix("http://")).exit_code == 0
    (tmp_path / "pharos.yaml").write_text(f"backends: [{{url: '{engine}', name: one}}, {{url: '{engine}', name: two}}]")
    printed = run("doctor").stdout
    assert f"== one  {engine}" in printed
    assert f"== two  {engine}" in printed


def test_a_dead_address_is_one_sentence_and_exit_2(run: Run, closed_port: int) -> None:
    result = run("doctor", f"127.0.0.1:{closed_port}")
    assert result.exit_code == EXIT_UNREACHABLE
    assert f"no engine can be reached at http://127.0.0.1:{closed_port}: connection refused; is it" in result.stdout
    assert "known" not in result.stdout.lower()


def test_https_before_an_engine_that_speaks_plain_http_says_what_to_try(run: Run, engine: str) -> None:
    result = run("doctor", engine.replace("http:", "https:"))
    assert result.exit_code == EXIT_UNREACHABLE
    assert "TLS failed; try http://" in result.stdout


def test_a_name_that_nobody_knows_is_told_from_a_dead_address(run: Run) -> None:
    result = run("doctor", f"http://{'a' * 70}.example:8080")  # no name server is asked for such a name
    assert result.exit_code == EXIT_UNREACHABLE
    assert "name not found; is the name right" in result.stdout


def test_a_file_without_backends_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("")
    result = run("doctor")
    assert result.exit_code == 1
    assert "lists no backends" in result.stderr


async def test_a_web_page_is_not_an_engine() -> None:
    async with HttpDouble() as page:
        page.every = Reply(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
        found = await look(page.url)
    assert found.exit_code == EXIT_WRONG
    assert "answers, but Pharos cannot use it" in found.row["error"]
    assert found.row["kind"] is None


async def test_what_speaks_no_http_is_not_an_engine() -> None:
    async with HttpDouble() as page:
        page.every = Raw(b"SSH-2.0-OpenSSH_9.9\r\n")
        found = await look(page.url)
    assert found.exit_code == EXIT_WRONG
    assert "is no engine" in found.row["error"]


async def test_an_engine_that_does_not_answer_is_unreachable_but_perhaps_busy() -> None:
    async with HttpDouble() as page:
        page.every = Hang()
        found = await look(page.url)
    assert found.exit_code == EXIT_UNREACHABLE
    assert "It may be busy" in found.row["error"]


async def test_an_engine_that_is_loading_is_told_from_one_that_is_down() -> None:
    async with FakeLlamaCpp(phase=Phase.LOADING) as engine:
        found = await look(engine.url)
    assert found.exit_code == EXIT_WRONG
    assert "still starting" in found.row["error"]


async def test_a_kind_that_is_wrong_for_the_engine_is_told() -> None:
    async with HttpDouble() as page:
        found = await look(page.url, kind="llamacpp")
    assert found.exit_code == EXIT_WRONG
    assert "no probe for llamacpp works" in found.row["error"]


async def test_looking_does_not_wake_a_sleeping_model() -> None:
    async with FakeLlamaCpp(phase=Phase.SLEEPING) as engine:
        found = await look(engine.url)
        assert engine.woken == 0
    assert "would disturb the engine" in report.text([found])


async def test_during_load_the_numbers_are_those_that_were_sent() -> None:
    async with FakeLlamaCpp() as engine:
        engine.report(running=2, deferred=3)
        found = await look(engine.url)
    values = {row["signal"]: row["value"] for row in found.row["plan"]}
    assert (values["running"], values["waiting"]) == (2, 3)


async def test_an_engines_text_cannot_control_the_terminal() -> None:
    async with FakeLlamaCpp(model="evil\x1b[2J") as engine:
        found = await look(engine.url)
    assert "\x1b" not in report.text([found])
    assert "evil\\x1b[2J" in report.text([found])


def known(signal: str, value: object, model: str | None = None, *, own: bool = False) -> dict[str, object]:
    return {"signal": signal, "model": model, "value": value, "probe": "p", "feed": "GET /x", "own": own}


def printed(*plan: dict[str, object], exit_code: int = EXIT_COMPLETE) -> str:
    row = {"name": "a:1", "url": "http://a:1", "kind": "openai", "kind_source": "config", "version": None}
    row |= {"evidence": "", "error": None, "plan": list(plan), "dropped": [], "unknown": []}
    row |= {"remarks": [], "routes": {}, "feeds": {}}
    return report.text([Finding(row, exit_code)])


def test_a_long_list_of_models_is_cut() -> None:
    text = printed(known("models", [f"m{i}" for i in range(500)], own=True))
    assert "m5 and 494 more" in text
    assert "p (own)" in text
    assert text.endswith("   All is known that this engine tells.\n")
    assert "openai (as configured)" in text


def test_of_a_signal_that_each_model_has_the_first_few_are_listed() -> None:
    text = printed(*(known("size_bytes", 1 << 30, f"m{i}") for i in range(500)))
    assert text.count("size_bytes") == 7
    assert "and 494 more" in text


def test_numbers_have_the_units_of_the_status_page() -> None:
    rows = [known("size_bytes", 5 << 30), known("kv_usage", 0.256), known("running", 1), known("capacity", 12)]
    text = printed(*rows)
    for words in ("5 GiB", "26%", "1 request ", "12 slots"):
        assert words in text
    assert "model" not in text.partition("Known")[2].splitlines()[1], "an empty column is left out"


def test_a_signal_that_need_not_be_unknown_is_pointed_out() -> None:
    assert "see the remedies above" in printed(known("running", 1), exit_code=EXIT_WRONG)
