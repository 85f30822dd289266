from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pharos.cli import COMMANDS

Run = Callable[..., Result]

USAGE = 64

WRONG = [
    ((), "Usage: pharos"),
    (("srve",), "Did you mean 'serve'?"),
    (("--nope",), "No such option"),
    (("nope",), "No such command 'nope'"),
    (("serve", "--lissten", ":1"), "Did you mean '--listen'?"),
    (("serve", "--listen"), "requires an argument"),
    (("serve", "--listen", "80"), "write :80"),
    (("serve", "--log-level", "loud"), "'debug', 'info', 'warning', 'error'"),
    (("serve", "--log-format", "xml"), "'text', 'json'"),
    (("serve", "http://a", "--config", "b"), "not both"),
    (("serve", "ftp://a"), "a URL starts with http:// or https://"),
    (("serve", "gpu:70000"), "Port out of range"),
    (("serve", "http://a:1", "http://a:1"), "a:1"),
    (("serve", "http://a:1/v1"), "without /v1: http://a:1"),
    (("serve", "pharos.yaml"), "pharos.yaml is a file, not a URL: write --config pharos.yaml"),
    (("serve", "http://a", "conf/My.YML"), "write --config conf/My.YML"),
    (("doctor", "other.json"), "write --config other.json"),
    (("serve", "http//127.0.0.1:1"), "'http//127.0.0.1:1' is misspelt: write http://127.0.0.1:1"),
    (("doctor", "https:/gpu:1"), "write https://gpu:1"),
    (("serve", "htp://gpu:1"), "did you mean http://?"),
    (("serve", "http://127.0.0.1:PORT"), "PORT is a place-holder: put the port's number there"),
    (("doctor", "gpu:<port>/x"), "<port> is a place-holder"),
    (("serve", "a" * 5000 + " b"), "has a blank in it"),
    (("doctor", "--jsn"), "Did you mean '--json'?"),
    (("doctor", "http://a", "--config", "b"), "not both"),
    (("doctor", "http://me:secret@a"), "user name or password"),
    (("demo", "--engines", "0"), "not in the range"),
    (("demo", "--engines", "two"), "not a valid integer"),
    (("demo", "--listen", "x"), "is no address"),
    (("config",), "Usage: pharos config"),
    (("config", "chek"), "No such command 'chek'"),
    (("config", "check", "a", "--config", "b"), "one file"),
    (("config", "check", "a", "b"), "unexpected extra argument"),
    (("keys",), "Usage: pharos keys"),
    (("keys", "new"), "Missing option '--name'"),
    (("keys", "new", "--name", "_x"), "start with _"),
    (("version", "x"), "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "told"), WRONG, ids=[" ".join(arguments)[:60] for arguments, _ in WRONG])
def test_a_command_line_that_cannot_be_understood_exits_with_64_and_says_why(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == USAGE
    assert told in result.stderr
    assert not result.stdout
    assert "secret" not in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: pharos {command}" in result.stdout
    assert f"  {command} " in run("--help").stdout


@pytest.mark.parametrize("command", [("serve",), ("doctor",), ("demo",), ("config", "check"), ("keys", "new")])
def test_every_command_that_takes_options_shows_an_example(run: Run, command: tuple[str, ...]) -> None:
    assert f"  pharos {' '.join(command)}" in run(*command, "-h").stdout


def test_version_names_the_installed_version(run: Run) -> None:
    assert run("version").stdout.startswith("pharos 0.")


def test_the_usual_option_prints_the_version_too(run: Run) -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == run("version").stdout


def test_a_file_of_any_name_is_no_url(run: Run, tmp_path: Path) -> None:
    (tmp_path / "engines").write_text("")
    assert "engines is a file, not a URL: write --config engines" in run("doctor", "engines").stderr
