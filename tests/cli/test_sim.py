import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.obs.decision_record import encode, row, salted
from pharos.proxy.done import Done
from tests.core.policy.given import candidate, pick

Run = Callable[..., Result]
QUICK = ("--loads", "3", "--seeds", "1", "--minutes", "1")
TRACE = json.dumps({"timestamp": 0, "input_length": 100, "output_length": 20, "hash_ids": [1]})


def log_of(path: Path, *ids: str) -> str:
    lines = [encode(row(_done(one), "cost", salted(b""))) for one in ids]
    path.write_bytes(b"".join(lines))
    return str(path)


def _done(request_id: str) -> Done:
    decision = pick(candidate(0), candidate(1, warm=False))
    return Done(
        request_id, "/v1/chat/completions", 1.0, "alice", "tiny", "tiny@gpu-0", status=200,
        stages=[("route", "warm")], choice=decision, predicted_s=1.0, ttft_s=0.9,
    )  # fmt: skip


def test_a_study_prints_a_table_and_writes_what_is_wanted(run: Run, tmp_path: Path) -> None:
    result = run("sim", *QUICK, "--policies", "cost,prefix", "--csv", "runs.csv", "--plots", "plots")
    assert result.exit_code == 0
    assert [line.split()[2] for line in result.stdout.splitlines()[1:3]] == ["cost", "prefix"]
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    assert (tmp_path / "plots" / "mixed-ttft-p95.svg").is_file()


def test_fields_of_engines_can_be_set_and_parts_of_pharos_left_out(run: Run) -> None:
    arguments = ("sim", *QUICK, "--policies", "cost", "--json")
    plain = run(*arguments)
    other = run(*arguments, "--set", "slots=1", "--set", "host_cache_tokens=0", "--without", "slots, copies")
    assert (plain.exit_code, other.exit_code) == (0, 0)
    assert json.loads(plain.stdout)["runs"] != json.loads(other.stdout)["runs"]


def test_json_has_every_run(run: Run) -> None:
    result = run("sim", *QUICK, "--policies", "cost", "--fleet", "single", "--fleet", "cold", "--json")
    runs = json.loads(result.stdout)["runs"]
    assert [one["fleet"] for one in runs] == ["single", "cold"]
    assert runs[0]["measures"]["requests"] > 0


def test_a_fleet_of_ones_own_is_read_from_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nengines: [{name: a, kind: vllm, models: [{name: m}], slots: 8, shared_cache_tokens: 90000}]\n"
    )
    result = run("sim", *QUICK, "--fleet", "mine.yaml", "--policies", "cost", "--instances", "3")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].startswith("mine")


def test_a_trace_takes_the_place_of_made_clients(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f"{TRACE}\n{{\n{TRACE}\n")
    refused = run("sim", "--trace", "t.jsonl", "--seeds", "1")
    assert refused.exit_code == 1
    assert "line 2: " in refused.stderr
    result = run("sim", "--trace", "t.jsonl", "--seeds", "1", "--skip-bad", "--policies", "cost")
    assert result.exit_code == 0
    assert "1 broken lines" in result.stderr
    assert result.stdout.splitlines()[1].split()[:4] == ["mixed", "1", "cost", "2"]


@pytest.mark.parametrize(("arguments", "said"), [
    (("--fleet", "nope"), "there is no fleet nope"),
    (("--policies", "cost,nope"), "there is no policy nope"),
    (("--loads", "many"), "--loads takes numbers"),
    (("--loads", "0"), "above 0"),
    (("--loads", "inf"), "above 0"),
    (("--seeds", "0"), "not in the range"),
    (("--minutes", "0"), "not in the range"),
    (("--set", "slots"), "FIELD=VALUE"),
    (("--set", "slots=0"), "slots and seconds per token are above 0"),
    (("--without", "slots,brakes"), "no part brakes"),
])  # fmt: skip
def test_what_cannot_be_simulated_is_a_usage_error(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("sim", *arguments)
    assert result.exit_code == 64
    assert said in result.stderr


@pytest.mark.parametrize("text", [
    "{", "name: x", "name: x\nengines: []", "name: x\nengines: [{name: a, kind: nope, models: [{name: m}]}]",
    "name: x\nengines: [{name: a, kind: vllm, models: []}]",
    "name: x\nengines: [{name: a, kind: vllm, models: [{name: m}], slots: 0}]",
    "name: x\nengines: [{name: a, kind: vllm, models: [{name: m}], base_s: -1}]",
    "name: x\nengines: [{name: a, kind: vllm, models: [{name: m}], shared_cache_tokens: 0}]",
    "name: x\nengines: [{name: a, kind: vllm, models: [{name: m}], speed: 1}]",
])  # fmt: skip
def test_a_fleet_that_cannot_be_is_refused_with_the_name_of_its_file(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    result = run("sim", "--fleet", "f.yaml")
    assert result.exit_code == 64
    assert "f.yaml: " in result.stderr


def test_a_file_that_cannot_be_written_is_a_failure(run: Run) -> None:
    result = run("sim", *QUICK, "--policies", "cost", "--csv", "no/such/folder.csv")
    assert result.exit_code == 1
    assert "no/such/folder.csv" in result.stderr


def test_a_log_is_replayed_and_policies_are_ranked(run: Run, tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", "a", "b")
    result = run("replay", log)
    assert result.exit_code == 0
    assert result.stdout.startswith("2 of 2 decisions are the same by cost (100.0%)")
    assert json.loads(run("replay", log, "--policy", "least-load", "--json").stdout)["policy"] == "least-load"


def test_a_log_with_broken_lines_is_refused_or_read_as_far_as_it_goes(run: Run, tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", "a")
    with Path(log).open("a") as file:
        file.write("{\n")
    refused = run("replay", log)
    assert refused.exit_code == 1
    assert "line 2: " in refused.stderr
    assert "1 broken lines" in run("replay", log, "--skip-bad").stdout


def test_a_request_of_a_log_is_explained(run: Run, tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", "a", "b")
    result = run("explain", "b", "--log", log)
    assert result.exit_code == 0
    first, reason, *_ = result.stdout.splitlines()
    assert first == "b: tiny for alice → tiny@gpu-0"
    assert "gpu-1 (cold)" in reason
    assert [line.split()[0] for line in result.stdout.splitlines()[-2:]] == ["gpu-0", "gpu-1"]
    assert json.loads(run("explain", "b", "--log", log, "--json").stdout)["request_id"] == "b"


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (("--log", "none"), 1, "cannot be read"),
    (("--log", "log"), 1, "has no request c"),
    (("--log", "log", "--url", "http://a"), 64, "does not go with"),
    (("--url", "http://127.0.0.1:1"), 1, "cannot be asked (Connection refused): is a Pharos running there?"),
    (("--url", "ftp://a"), 64, "takes an address"),
    (("--url", "http://127.0.0.1:99999"), 64, "takes an address"),
    (("--url", "http://127.0.0.1:1", "--key-file", "none"), 1, "--key-file"),
])  # fmt: skip
def test_what_cannot_be_explained_says_why(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    log_of(tmp_path / "log", "a", "b")
    result = run("explain", "c", *arguments)
    assert result.exit_code == status
    assert said in result.stderr


def test_an_engine_is_not_taken_for_a_pharos(run: Run, engine: str) -> None:
    result = run("explain", "c", "--url", engine)
    assert result.exit_code == 1
    assert "is that a Pharos?" in result.stderr
