"""The demo as a person starts it."""

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

import pytest

from pharos.demo import run
from pharos.demo.children import Engine
from pharos.demo.errors import DemoError

from .conftest import children_of, ends_within


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_taken_port_is_an_error_that_names_the_option(
    taken_port: int, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(run.DemoOptions(tiny=True, listen=f"{address}:{taken_port}")) == 1
    assert f"port {taken_port} is taken: choose another one, as in --listen :" in capsys.readouterr().err


def test_an_address_that_is_none_is_an_error_that_names_the_option() -> None:
    with pytest.raises(DemoError, match="--listen: 8090 is no address"):
        run.require_free("8090")


def test_pharos_gets_the_engines_by_name_and_tells_where_replies_came_from() -> None:
    engine = Engine("engine-1", Path("engine-1.log"))
    engine.port = 18081
    config = run.configuration(":8090", [engine])
    assert [(backend.name, backend.url) for backend in config.backends] == [("engine-1", "http://127.0.0.1:18081")]
    assert config.listen == ":8090"
    assert config.response_headers.target
    assert config.response_headers.reason


def test_the_three_commands_are_ones_a_shell_can_run() -> None:
    text = run.invitation("http://127.0.0.1:8090", "tiny", Path("logs"))
    commands = [line for line in text.splitlines() if "curl " in line]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command.replace("'$n'", "7"))
        body = json.loads(words[words.index("-d") + 1])
        assert body["model"] == "tiny"
        assert body["messages"][0]["content"]
        assert "http://127.0.0.1:8090/v1/chat/completions" in words
    assert "http://127.0.0.1:8090/status" in text


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_serves_a_routed_token_and_its_end_leaves_no_engine(number: signal.Signals, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "pharos", "demo", "--tiny", "--listen", "127.0.0.1:0"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
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
        assert "engines stopped" in rest
        assert not list(tmp_path.iterdir())
