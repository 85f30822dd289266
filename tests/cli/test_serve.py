import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli.serve import address_fault

Run = Callable[..., Result]


def test_a_wrong_file_is_told_and_nothing_is_served(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text("backends: [{url: gpu}]")
    result = run("serve")
    assert result.exit_code == 1
    assert result.stderr == "pharos: pharos.yaml: line 1, backends[0].url: 'gpu' has no scheme: write http://gpu\n"


def test_a_file_that_is_not_there_is_told(run: Run) -> None:
    result = run("serve", "--config", "nope.yaml")
    assert result.exit_code == 1
    assert "nope.yaml: there is no such file" in result.stderr


def test_a_wrong_variable_is_told_beside_urls(run: Run) -> None:
    result = run("serve", "gpu:8080", PHAROS_QUEUE__SIZE="many")
    assert result.exit_code == 1
    assert "PHAROS_QUEUE__SIZE" in result.stderr


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL])
def test_an_address_that_cannot_be_had_names_the_option_to_change(number: int) -> None:
    said = address_fault(OSError(number, "x"), ":80")
    assert said is not None
    assert said.startswith(":80 ")
    assert "--listen" in said


def test_another_fault_of_the_system_is_not_taken_for_one_of_the_address() -> None:
    assert address_fault(OSError(errno.EMFILE, "x"), ":80") is None


def test_a_file_that_urls_put_aside_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.app.run", lambda *_, **__: 0)
    assert run("serve", "http://gpu:1").stderr == ""
    (tmp_path / "pharos.yaml").write_text("")
    told = run("serve", "http://gpu:1").stderr
    assert told.startswith("note: ./pharos.yaml is not used, nor are its keys, because URLs are given")
    assert "--config pharos.yaml" in told
    assert run("serve").stderr == ""
