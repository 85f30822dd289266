"""The demo as a person starts it."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pharos.demo import run
from pharos.demo.children import Engine
from pharos.demo.errors import DemoError

from .conftest import children_of, ends_within

CHAT = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_taken_port_is_an_error_that_names_the_option(
    taken_port: int, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(run.DemoOptions(tiny=True, listen=f"{address}:{taken_port}")) == 1
    said = capsys.readouterr().err
    assert f"port {taken_port} is taken: choose another one, as in `pharos demo --listen :" in said
    assert "`make run FLAGS='--listen :" in said


def test_an_address_that_is_none_is_an_error_that_names_the_option() -> None:
    with pytest.raises(DemoError, match="--listen: 8090 is no address"):
        run.require_free("8090")


def engine(port: int) -> Engine:
    made = Engine("engine-1", Path("engine-1.log"))
    made.port = port
    return made


def test_pharos_gets_the_engines_by_name_and_tells_where_replies_came_from() -> None:
    config = run.configuration(":8090", [engine(18081)])
    assert [(backend.name, backend.url) for backend in config.backends] == [("engine-1", "http://127.0.0.1:18081")]
    assert config.listen == ":8090"
    assert config.response_headers.target
    assert config.response_headers.reason


def test_the_three_commands_are_ones_a_shell_can_run() -> None:
    text = run.invitation("http://127.0.0.1:8090", "tiny", [engine(18081), engine(18082)], Path("logs"))
    commands = [line for line in text.splitlines() if "curl " in line]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command.replace("'$i'", "7"))
        body = json.loads(words[words.index("-d") + 1])
        assert body["model"] == ("gpt-oss:20b" if command is commands[-1] else "tiny")
        assert body["messages"][0]["content"]
        assert "http://127.0.0.1:8090/v1/chat/completions" in words
    assert "http://127.0.0.1:8090/status" in text
    assert "pharos doctor http://127.0.0.1:18081 http://127.0.0.1:18082" in text


def test_the_doctor_is_named_as_this_shell_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def told() -> str:
        text = run.invitation("http://localhost:8090", "tiny", [engine(18081)], Path("logs"))
        return next(line for line in text.splitlines() if " doctor " in line)

    found = tmp_path / ".venv" / "bin"
    found.mkdir(parents=True)
    (found / "pharos").touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(found / "python"))
    monkeypatch.setenv("PATH", str(found))
    assert told().endswith(": pharos doctor http://127.0.0.1:18081")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told().endswith(f": {found}/pharos doctor http://127.0.0.1:18081")
    monkeypatch.chdir(tmp_path)
    assert told().endswith(": .venv/bin/pharos doctor http://127.0.0.1:18081")


def test_the_demo_prints_the_commands_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^\*\*\d\. [^~]*?\n\n((?:    .*\n)+)", readme, re.MULTILINE)
    told = [re.sub(r"\s*\\\n\s*", " ", block).strip() for block in blocks]
    text = run.invitation("localhost:8090", "smollm2:135m", [engine(18081), engine(18082)], Path("logs"))
    assert [line for line in text.splitlines() if "curl " in line] == told
    assert len(told) == 3


@contextlib.contextmanager
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that is ready, and what it has said."""
    program = [sys.executable, "-m", "pharos", "demo", "--tiny", "--listen", "127.0.0.1:0"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends Pharos" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        yield demo, said


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_serves_a_routed_token_and_its_end_leaves_no_engine(number: signal.Signals, tmp_path: Path) -> None:
    with started(tmp_path) as (demo, said):
        assert demo.stdout is not None
        url = re.findall(r"Pharos is ready on (\S+)", said)[0]
        engines = children_of(demo.pid)
        body = {"model": "tiny", "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
            assert reply.headers["X-Pharos-Target"].startswith(("engine-", "tiny@engine-"))
            assert reply.headers["X-Pharos-Reason"]
            assert reply.read().endswith(b"data: [DONE]\n\n")
        with urllib.request.urlopen(f"{url}/status?format=json", timeout=20) as reply:  # noqa: S310
            content = json.load(reply)
            assert [backend["up"] for backend in content["backends"]] == [True, True]
            assert content["requests"][0]["model"] == "tiny"
        assert len(engines) == 2
        demo.send_signal(number)
        rest = demo.stdout.read()
    assert all(ends_within(pid, 10) for pid in engines)
    if number == signal.SIGINT:
        assert demo.returncode == 0
        assert "stopping: no request in work" in rest
        assert "engines stopped" in rest
        assert not list(tmp_path.iterdir())


@pytest.mark.live
def test_a_second_signal_ends_it_at_once_and_leaves_no_engine_and_no_folder(tmp_path: Path) -> None:
    with started(tmp_path) as (demo, said):
        assert demo.stdout is not None
        address = urlsplit(re.findall(r"Pharos is ready on (\S+)", said)[0])
        engines = children_of(demo.pid)
        body = json.dumps({"model": "tiny", "stream": True, "max_tokens": 4000, "ignore_eos": True, **CHAT})
        with socket.create_connection((address.hostname, address.port), timeout=20) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall((head + body).encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            demo.send_signal(signal.SIGINT)
            assert demo.stdout.readline() == "\n"
            assert "stopping: 1 request in work" in demo.stdout.readline()
            while demo.poll() is None:  # those of one moment count as one
                demo.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    demo.wait(0.02)
    assert demo.returncode == 128 + signal.SIGINT
    assert all(ends_within(pid, 10) for pid in engines)
    assert not list(tmp_path.iterdir())
