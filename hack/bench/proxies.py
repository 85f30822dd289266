"""The proxies that are compared: how each is started in front of the fake engine, and its version."""

import contextlib
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import processes

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "bench"
PEERS: Final = ROOT / ".cache" / "peers"
KEY: Final = "sk-bench"
BASELINE: Final = "haproxy"
RUST: Final = ("smg", "vllm-router")
OURS: Final = "pharos"
CHOICE: Final = "pharos, 2 backends"
"""The engine under two names: only where there is a choice are prompts matched to caches."""
CONFIGS: Final = {OURS: "pharos.yaml", CHOICE: "pharos-2.yaml"}
# The peers look for tokenizers by the model's name: nothing here may leave the loopback.
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "RUST_LOG": "error"}
SLOTS: Final = 1024  # so that no request of the load waits in Pharos's queue

HAPROXY: Final = """\
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  server engine 127.0.0.1:{engine}
"""

NGINX: Final = """\
worker_processes 1;
daemon off;
master_process off;
pid {cache}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  client_body_temp_path {cache}/nginx-body;
  proxy_temp_path {cache}/nginx-proxy;
  fastcgi_temp_path {cache}/nginx-other;
  uwsgi_temp_path {cache}/nginx-other;
  scgi_temp_path {cache}/nginx-other;
  keepalive_requests 1000000;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Proxy:
    """A proxy to start: its command may name `{port}` (to listen on), `{engine}` (the engine's) and `{extra}`."""

    name: str
    command: tuple[str, ...]
    version: str = ""


@dataclass(frozen=True)
class Running:
    """A proxy that answers chats on `port`."""

    name: str
    child: processes.Child
    port: int

    @property
    def url(self) -> str:
        """Address of its chat endpoint."""
        return chat_url(self.port)


def chat_url(port: int) -> str:
    """Address of the chat endpoint on a port of the loopback."""
    return f"http://127.0.0.1:{port}/v1/chat/completions"


def program(name: str) -> str | None:
    """Path of an installed program; the system's own servers are often outside a user's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _first_version(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"\d+\.\d+[\w.+-]*", done.stdout + done.stderr)
    return found[0] if found else "?"


def haproxy(path: str) -> Proxy:
    """HAProxy with one thread: the measure of what a proxy must cost."""
    return Proxy(BASELINE, (path, "-db", "-f", f"{CACHE}/haproxy.cfg"), _first_version([path, "-v"]))


def nginx(path: str) -> Proxy:
    """A single nginx process."""
    return Proxy("nginx", (path, "-e", "stderr", "-c", f"{CACHE}/nginx.conf"), _first_version([path, "-v"]))


def rust_router(name: str) -> Proxy:
    """A router of the peers' environments, with its cache-aware policy and the log off."""
    listen = ("--host", "127.0.0.1", "--port", "{port}", "--prometheus-port", "{extra}")
    engine = ("--worker-urls", "http://127.0.0.1:{engine}", "--policy", "cache_aware", "--log-level", "error")
    path = str(PEERS / name / "bin" / name)
    command = (
        (path, "launch", *listen, *engine, "--disable-tokenizer-autoload")
        if name == "smg"
        else (path, *listen, *engine)
    )
    pins = (ROOT / "hack" / "bench" / f"peers-{name}.txt").read_text()
    pinned = re.search(rf"^{name}==(\S+)", pins, re.MULTILINE)
    return Proxy(name, command, pinned[1] if pinned else "?")


def pharos(name: str = OURS) -> Proxy:
    """Pharos from this tree, with one key configured: the figures include what a key costs."""
    command = (
        sys.executable,
        "-m",
        "pharos",
        "serve",
        "--config",
        f"{CACHE}/{CONFIGS[name]}",
        "--log-level",
        "warning",
    )
    return Proxy(name, command, _first_version([sys.executable, "-m", "pharos", "version"]))


def other(text: str) -> Proxy:
    """A proxy from the command line: NAME=COMMAND, with {port} and {engine} in the command."""
    name, _, command = text.partition("=")
    if not command:
        raise SystemExit(f"--also takes NAME=COMMAND, not {text!r}")
    return Proxy(name, tuple(shlex.split(command)))


def pharos_config(port: int, engines: list[int], hosts: tuple[str, ...] = ("127.0.0.1",)) -> str:
    """A pharos.yaml with these engines, each under these names, and one key."""
    backends = [{"url": f"http://{host}:{engine}", "capacity": SLOTS} for engine in engines for host in hosts]
    keys = [{"name": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "admin": True}]
    drain = {"grace": 0, "timeout": "1s"}  # nobody waits for a benchmark's last streams
    config = {"listen": f"127.0.0.1:{port}", "backends": backends, "keys": keys, "drain": drain}
    return json.dumps(config, indent=1)  # JSON is YAML


def write_configs(proxy: Proxy, port: int, engines: list[int]) -> None:
    """Write what the proxy reads at its start."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if proxy.name == BASELINE:
        (CACHE / "haproxy.cfg").write_text(HAPROXY.format(port=port, engine=engines[0]))
    elif proxy.name == "nginx":
        (CACHE / "nginx.conf").write_text(NGINX.format(port=port, engine=engines[0], cache=CACHE))
    elif proxy.name == OURS:
        (CACHE / CONFIGS[OURS]).write_text(pharos_config(port, engines))
    elif proxy.name == CHOICE:
        (CACHE / CONFIGS[CHOICE]).write_text(pharos_config(port, engines, ("127.0.0.1", "localhost")))


@contextlib.contextmanager
def running(proxy: Proxy, engines: list[int]) -> Iterator[Running]:
    """Start a proxy and wait until a chat passes through it. Pharos gets all engines, the others the first."""
    port, extra = processes.free_ports(2)
    write_configs(proxy, port, engines)
    command = [
        part.replace("{port}", str(port)).replace("{engine}", str(engines[0])).replace("{extra}", str(extra))
        for part in proxy.command
    ]
    with processes.started(proxy.name, command, CACHE / "logs", OFFLINE) as child:
        child.wait_open(port)
        wait_answers(child, port)
        yield Running(proxy.name, child, port)


@contextlib.contextmanager
def engine(ports: list[int]) -> Iterator[processes.Child]:
    """The fake engine, listening on every port."""
    command = [sys.executable, str(Path(__file__).with_name("engine.py")), *map(str, ports)]
    with processes.started("engine", command, CACHE / "logs") as child:
        for port in ports:
            child.wait_open(port)
        yield child


def get(port: int, path: str, timeout_s: float = 5.0) -> str:
    """Body of a page of a proxy; raises OSError when it does not answer with success."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as reply:
        body: bytes = reply.read()
    return body.decode()


def ask(port: int) -> str | None:
    """Send one short chat; None when it was answered well, else why not."""
    data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(chat_url(port), data, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310
            return None if "choices" in json.load(reply) else "a reply without choices"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(300).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return str(error)


def wait_answers(child: processes.Child, port: int, *, timeout_s: float = 45.0) -> None:
    """Wait until a chat is answered."""
    until = time.monotonic() + timeout_s
    why: str | None = "never asked"
    while time.monotonic() < until:
        child.check()
        if (why := ask(port)) is None:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{child.name} answers no chat: {why}; see {child.log}")
