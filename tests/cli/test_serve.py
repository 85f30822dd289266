import errno
import os
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


def test_variables_alone_may_have_docker_tell_the_engines_or_list_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = []
    monkeypatch.setattr("pharos.app.run", lambda config, **_: served.append(config) or 0)
    assert run("serve", PHAROS_DISCOVERY__DOCKER__ENABLED="true").exit_code == 0
    assert run("serve", PHAROS_BACKENDS="[{url: http://a}]").exit_code == 0
    assert [(config.discovery.docker.enabled, len(config.backends)) for config in served] == [(True, 0), ("auto", 1)]
    assert run("serve", PHAROS_QUEUE__SIZE="many").exit_code == 1


def test_an_address_that_a_field_names_is_told_with_that_field() -> None:
    fault = OSError(errno.EADDRINUSE, "x", "metrics_listen :9090")
    said = address_fault(fault, ":80")
    assert said is not None
    assert said.startswith("metrics_listen :9090 cannot be had")
    assert ":80 " not in said
    assert "--listen" not in said


def test_a_configuration_from_a_pipe_is_read_once_and_never_taken_for_empty_later(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[object, object]] = []
    monkeypatch.setattr(
        "pharos.app.run", lambda config, source, **_: served.append((len(config.backends), source)) or 0
    )
    reading, writing = os.pipe()
    os.write(writing, b"backends: [{url: http://a}]")
    os.close(writing)
    told = run("serve", "--config", f"/dev/fd/{reading}").stderr  # as a shell gives `<(command)`
    os.close(reading)
    assert served == [(1, None)]
    assert told == f"note: /dev/fd/{reading} is no regular file: changes need a restart\n"
    (tmp_path / "pharos.yaml").write_text("")
    assert run("serve").stderr == ""
    assert served[1][1] is not None
