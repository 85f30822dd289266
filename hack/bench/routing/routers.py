"""The routers that are compared: what each is told of the fleet, and how it is started.

Forbidden here: telling one router more than another could be told in its own way.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hack.bench import processes
from hack.bench.routing.fleets import Fleet

ROOT: Final = Path(__file__).resolve().parents[3]
PEERS: Final = ROOT / ".cache" / "peers"
# They look for tokenizers by the model's name: nothing here may leave the loopback.
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
READY_S: Final = 60.0

NGINX: Final = """\
worker_processes 1;
daemon off;
master_process off;
pid {folder}/{name}.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  client_body_temp_path {folder}/{name}-body;
  proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-other;
  uwsgi_temp_path {folder}/{name}-other;
  scgi_temp_path {folder}/{name}-other;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_buffering off;
  proxy_read_timeout 600s;
{pools}
}}
"""
POOL: Final = """\
  upstream pool{number} {{ {how}{servers} keepalive 64; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://pool{number}; }} }}
"""

Urls = dict[str, str]
"""Model to where clients ask for it."""


class Router(msgspec.Struct, frozen=True):
    """One way of routing. `start` yields where clients ask; it takes the fleet and a folder for files and logs."""

    name: str
    told: str
    """What it is told of the fleet, for the page."""
    start: Callable[[Fleet, Path], contextlib.AbstractContextManager[Urls]]
    needs: Path | None = None
    """A program that has to be there."""
    version: str = ""


def get(url: str, timeout_s: float = 5.0) -> bytes:
    """Body of a page. Raises `OSError`."""
    with urllib.request.urlopen(url, timeout=timeout_s) as reply:  # noqa: S310 - of the loopback
        body: bytes = reply.read()
    return body


def post(url: str, body: dict[str, Any]) -> None:
    """Send JSON. Raises `OSError`."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - as above
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - as above
        reply.read()


def wait_for(child: processes.Child, is_ready: Callable[[], bool]) -> None:
    """Wait until a router is ready. Raises `RuntimeError`. No chat is sent: that would load models."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        child.check()
        with contextlib.suppress(OSError, ValueError):
            if is_ready():
                return
        time.sleep(0.1)
    raise RuntimeError(f"{child.name} is not ready after {READY_S:g} s; see {child.log}")


def by_model(fleet: Fleet) -> dict[str, list[int]]:
    """Model to the ports of the engines that list it."""
    found: dict[str, list[int]] = {}
    for engine in fleet.engines:
        for model in engine.models:
            found.setdefault(model, []).append(engine.port)
    return found


# --- nginx


@contextlib.contextmanager
def _nginx(pools: dict[str, list[int]], how: str, folder: Path, name: str = "nginx") -> Iterator[Urls]:
    """One nginx with a port for each pool."""
    ports = processes.free_ports(len(pools))
    written = "".join(
        POOL.format(
            number=number,
            how=how,
            port=port,
            servers="".join(f"server 127.0.0.1:{engine} max_fails=0; " for engine in engines),
        )
        for number, (port, engines) in enumerate(zip(ports, pools.values(), strict=True))
    )
    config = folder / f"{name}.conf"
    config.write_text(NGINX.format(folder=folder, name=name, pools=written))
    with processes.started(name, [nginx(), "-e", "stderr", "-c", str(config)], folder) as child:
        for port in ports:
            child.wait_open(port)
        yield {pool: f"http://127.0.0.1:{port}" for pool, port in zip(pools, ports, strict=True)}


def nginx() -> str:
    """Its path; servers are often outside a user's PATH."""
    return next((path for path in ("/usr/sbin/nginx", "/usr/local/sbin/nginx") if Path(path).exists()), "nginx")


def _nginx_with(how: str) -> Callable[[Fleet, Path], contextlib.AbstractContextManager[Urls]]:
    return lambda fleet, folder: _nginx(by_model(fleet), how, folder)


# --- SMG and vllm-router


@contextlib.contextmanager
def _smg(fleet: Fleet, folder: Path) -> Iterator[Urls]:
    """One gateway for all models. It knows one model per address, so an engine with two has two: two names of the host.

    A worker's model is what its label says: without it the first one in the engine's list counts, for all of them.
    """  # fmt: skip
    port, metrics = processes.free_ports(2)
    command = [str(PEERS / "smg/bin/smg"), "launch", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(metrics), "--prometheus-host", "127.0.0.1", "--enable-igw"]
    command += ["--policy", "cache_aware", "--disable-tokenizer-autoload", "--log-level", "warn"]
    workers = [
        (f"http://{host}:{engine.port}", model)
        for engine in fleet.engines
        for host, model in zip(("127.0.0.1", "localhost", "127.0.0.2"), engine.models, strict=False)
    ]
    url = f"http://127.0.0.1:{port}"
    with processes.started("smg", command, folder, OFFLINE) as child:
        child.wait_open(port, timeout_s=READY_S)
        for worker, model in workers:
            post(f"{url}/workers", {"url": worker, "labels": {"served_model_name": model, "model_id": model}})

        def is_ready() -> bool:
            listed = json.loads(get(f"{url}/workers"))["workers"]
            return len(listed) == len(workers) and all(one["is_healthy"] for one in listed)

        wait_for(child, is_ready)
        yield dict.fromkeys(by_model(fleet), url)


@contextlib.contextmanager
def _vllm_router(fleet: Fleet, folder: Path) -> Iterator[Urls]:
    """One router per model: it takes all its workers for servers of the same."""
    urls: Urls = {}
    with contextlib.ExitStack() as held:
        for number, (model, engines) in enumerate(by_model(fleet).items()):
            port, metrics = processes.free_ports(2)
            command = [str(PEERS / "vllm-router/bin/vllm-router"), "--host", "127.0.0.1", "--port", str(port)]
            command += ["--prometheus-port", str(metrics), "--prometheus-host", "127.0.0.1", "--policy", "cache_aware"]
            command += ["--log-level", "error", "--worker-urls", *(f"http://127.0.0.1:{one}" for one in engines)]
            child = held.enter_context(processes.started(f"vllm-router-{number}", command, folder, OFFLINE))
            child.wait_open(port, timeout_s=READY_S)
            url = urls[model] = f"http://127.0.0.1:{port}"
            wait_for(child, lambda url=url: bool(get(f"{url}/health") or True))  # type: ignore[misc]  # bound now
        yield urls


# --- Pharos


def _pharos_with(
    instances: int, **settings: object
) -> Callable[[Fleet, Path], contextlib.AbstractContextManager[Urls]]:
    return lambda fleet, folder: _pharos(fleet, folder, instances, settings)


@contextlib.contextmanager
def _pharos(fleet: Fleet, folder: Path, instances: int, settings: dict[str, object]) -> Iterator[Urls]:
    """So many instances; several of them are behind nginx, which takes them in turns."""
    ports, peers = processes.free_ports(instances), processes.free_ports(instances)
    with contextlib.ExitStack() as held:
        children = []
        for number, port in enumerate(ports):
            config = folder / f"pharos-{number}.yaml"
            told = {**pharos_config(fleet, folder, number, ports, peers), **settings}
            config.write_text(json.dumps(told, indent=1))  # JSON is YAML
            command = [sys.executable, "-m", "pharos", "serve", "--config", str(config), "--log-level", "warning"]
            children.append(held.enter_context(processes.started(f"pharos-{number}", command, folder)))
            url = f"http://127.0.0.1:{port}"
            wait_for(children[-1], lambda url=url: bool(get(f"{url}/healthz") or True))  # type: ignore[misc]  # bound now
        if instances > 1:
            for child, port in zip(children, ports, strict=True):
                wait_for(child, lambda port=port: peers_of(port) == instances - 1)  # type: ignore[misc]  # bound now
        if instances > 1:
            urls = held.enter_context(_nginx({"all": ports}, "", folder, "front"))
            url = urls["all"]
        else:
            url = f"http://127.0.0.1:{ports[0]}"
        yield dict.fromkeys(by_model(fleet), url)


def peers_of(port: int) -> int:
    """How many other instances an instance hears. Raises `OSError`."""
    lines = get(f"http://127.0.0.1:{port}/metrics").decode().splitlines()
    return sum(line.startswith("pharos_peer_up{") and line.endswith((" 1", " 1.0")) for line in lines)


def pharos_config(fleet: Fleet, folder: Path, number: int, ports: list[int], peers: list[int]) -> dict[str, Any]:
    """What an instance is told: the engines' addresses, where the others are, and to log its decisions."""
    config: dict[str, Any] = {
        "listen": f"127.0.0.1:{ports[number]}",
        "admin_listen": "127.0.0.1:0",
        "backends": [{"name": one.name, "url": f"http://127.0.0.1:{one.port}"} for one in fleet.engines],
        "drain": {"grace": 0, "timeout": "1s"},
        "decision_log": {"path": str(folder / f"decisions-{number}.jsonl")},
    }
    if len(ports) > 1:
        secret = folder / "peers.secret"
        secret.write_text("only for this benchmark, on the loopback\n")
        secret.chmod(0o600)
        config["peers"] = {
            "listen": f"127.0.0.1:{peers[number]}",
            "secret_file": str(secret),
            "members": [f"127.0.0.1:{port}" for port in peers],  # each finds itself among them
        }
    return config


# --- all


def _pinned(name: str) -> str:
    pins = (ROOT / "hack" / "bench" / f"peers-{name}.txt").read_text()
    found = re.search(rf"^{name}==(\S+)", pins, re.MULTILINE)
    return found[1] if found else "?"


def _nginx_version() -> str:
    try:
        done = subprocess.run([nginx(), "-v"], capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "?"
    found = re.search(r"\d[\w.]+", done.stderr)
    return found[0] if found else "?"


PHAROS, TURNS = "pharos", "nginx round-robin"
_URLS: Final = "the engines' addresses, nothing else; kinds, slots, models and loads it reads itself"
_POOLS: Final = "for each model the engines that list it, and a port of its own on which clients ask for it"


def routers(instances: int = 3) -> list[Router]:
    """All routers, in the order of the page."""
    return [
        Router(PHAROS, _URLS, _pharos_with(1)),
        Router(
            f"pharos × {instances}",
            f"as above, {instances} instances behind an nginx that takes them in turns; they share state as peers",
            _pharos_with(instances),
        ),
        Router(TURNS, _POOLS, _nginx_with(""), version=_nginx_version()),
        Router("nginx least_conn", _POOLS, _nginx_with("least_conn; "), version=_nginx_version()),
        Router(
            "smg cache_aware",
            "one gateway for all models (`--enable-igw`), every engine once for each model that it lists, its label "
            "saying which; its default thresholds",
            _smg,
            PEERS / "smg/bin/smg",
            _pinned("smg"),
        ),
        Router(
            "vllm-router cache_aware",
            "one router per model (it does not tell models apart), with the engines that list it; its default "
            "thresholds",
            _vllm_router,
            PEERS / "vllm-router/bin/vllm-router",
            _pinned("vllm-router"),
        ),
    ]
