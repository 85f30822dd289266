import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]


def test_a_right_file_is_said_to_be_right_with_what_is_in_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backends: [{url: http://a}, {url: http://b}]")
    result = run("config", "check")
    assert result.exit_code == 0
    assert result.stdout == "pharos.yaml is right: 2 backends, no keys, so everybody may use it.\n"


def test_a_file_may_be_named_either_way(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("keys: [{name: a, sha256: " + "a" * 64 + "}]\nbackends: [{url: http://a}]")
    for arguments in (("my.yaml",), ("--config", "my.yaml")):
        assert run("config", "check", *arguments).stdout == "my.yaml is right: 1 backend, 1 key.\n"


def test_a_wrong_file_is_told_whole_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("lissten: :1\nbackends: [{url: http://a, capacity: 0}]")
    result = run("config", "check")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "pharos: pharos.yaml has 2 problems:",
        "  line 1, lissten: no such field; did you mean listen?",
        "  line 2, backends[0].capacity: must be of at least 1, got 0",
    ]


def test_a_misspelt_name_is_told_with_its_own_line_and_not_that_of_its_value(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backend:\n  - url: http://a\n")
    told = "pharos: pharos.yaml: line 1, backend: no such field; did you mean backends?\n"
    assert run("config", "check").stderr == told


def test_a_file_without_backends_is_right_but_serves_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("")
    result = run("config", "check")
    assert result.exit_code == 0
    told = "pharos.yaml is right, but lists no backends: every request would be answered 503.\n"
    assert result.stdout == told


def test_a_missing_file_is_told_without_fuss(run: Run) -> None:
    result = run("config", "check")
    assert result.exit_code == 1
    assert "there is no such file" in result.stderr


def test_the_environment_is_checked_with_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("")
    result = run("config", "check", PHAROS_DRAIN__TIMOUT="5s")
    assert result.exit_code == 1
    assert result.stderr == "pharos: PHAROS_DRAIN__TIMOUT: no such setting; did you mean PHAROS_DRAIN__TIMEOUT?\n"


def test_links_of_a_kubernetes_service_are_told_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("")
    result = run("config", "check", PHAROS_PORT="tcp://10.0.0.1:80", PHAROS_SERVICE_HOST="10.0.0.1")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1


def test_the_schema_is_printed_as_json(run: Run) -> None:
    schema = json.loads(run("config", "schema").stdout)
    assert schema["properties"]["backends"]["items"] == {"$ref": "#/definitions/Backend"}


def test_show_prints_what_is_in_effect_with_origins_and_without_a_file_the_defaults(run: Run, tmp_path: Path) -> None:
    shown = run("config", "show")
    assert shown.exit_code == 0
    assert shown.output.startswith("# pharos.yaml (there is none), as it is in effect.")
    (tmp_path / "pharos.yaml").write_text("listen: :9\n", encoding="utf-8")
    shown = run("config", "show", "--json", PHAROS_DRAIN__TIMEOUT="30s")
    found = json.loads(shown.output)
    fields = {field["field"]: (field["value"], field["origin"]) for field in found["fields"]}
    assert found["file"] == "pharos.yaml"
    assert fields["listen"] == (":9", "pharos.yaml:1")
    assert fields["drain.timeout"] == ("30s", "PHAROS_DRAIN__TIMEOUT")
    assert fields["policy"] == ("cost", "default")


def test_show_tells_what_is_wrong_and_takes_one_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("listen: [", encoding="utf-8")
    shown = run("config", "show", "a.yaml")
    assert shown.exit_code == 1
    assert "a.yaml: line 1" in shown.output
    assert run("config", "show", "gone.yaml").exit_code == 1
    assert run("config", "show", "a.yaml", "--config", "b.yaml").exit_code == 64
