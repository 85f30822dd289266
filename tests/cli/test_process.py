"""The command as a process: what only shows there."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("aiohttp", "yaml", "msgspec", "uvloop", "asyncio", "jinja2")
TWO_SIGNALS = """
import os, signal
from pharos.cli.signals import early_signals
seen = early_signals()
os.kill(os.getpid(), signal.SIGTERM)
print(seen == [signal.SIGTERM], flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("still here", flush=True)
"""

SIGNAL_WHILE_IMPORTING = """
import os, signal, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Sender())
from pharos.cli import main
os.environ["PHAROS_DRAIN__GRACE"] = "0"
main(["serve", "--listen", "127.0.0.1:0", *{arguments!r}])
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=50, check=False)


def test_the_package_runs_as_a_module() -> None:
    ended = python("-m", "pharos", "version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("pharos ")


def test_a_wrong_command_line_exits_with_64_and_calls_itself_pharos() -> None:
    ended = python("-m", "pharos", "serve", "--nope")
    assert ended.returncode == 64
    assert ended.stderr.startswith("Usage: pharos serve")


def test_help_and_version_import_nothing_large() -> None:
    for argument in ("version", "--help"):
        program = (
            f"import sys; from pharos.cli import main\ntry: main([{argument!r}])\n"
            f"except SystemExit: pass\nprint([name for name in {HEAVY} if name in sys.modules])"
        )
        assert python("-c", program).stdout.splitlines()[-1] == "[]"


def test_an_early_signal_is_remembered_and_a_second_one_ends_at_once() -> None:
    ended = python("-c", TWO_SIGNALS)
    assert ended.stdout == "True\n"
    assert ended.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize("module", ["msgspec", "aiohttp"])
def test_a_sigterm_while_the_program_is_still_being_loaded_ends_it_in_order(module: str) -> None:
    ended = python("-c", SIGNAL_WHILE_IMPORTING.format(module=module, name="SIGTERM", arguments=["http://127.0.0.1:9"]))
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert "draining: no request in work" in ended.stderr
    assert "stopped" in ended.stderr


def test_a_sighup_while_the_program_is_still_being_loaded_does_not_end_it(tmp_path: Path) -> None:
    file = tmp_path / "pharos.yaml"
    file.write_text("log: {level: info}\n", encoding="utf-8")
    program = SIGNAL_WHILE_IMPORTING.format(module="yaml", name="SIGHUP", arguments=["--config", str(file)])
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("ready on" in line for line in process.stderr), "it ended"
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0


def test_a_port_that_is_taken_is_told_with_the_option_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        ended = python("-m", "pharos", "serve", "--listen", taken, "http://127.0.0.1:9")
    assert ended.returncode == 1
    assert f"{taken} is taken by another program" in ended.stderr
    assert "--listen" in ended.stderr
    assert "Traceback" not in ended.stderr
