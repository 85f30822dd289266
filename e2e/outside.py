"""Pharos beside a cluster, logged in as a Pod is; and Pods that no kubelet runs: only the API server knows them.

So the control plane alone is enough for what is tested here, and a thousand Pods cost nothing but their objects.
Forbidden here: knowing what is tested.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import yaml

from e2e.cluster import WAIT_S, run
from tests.fakes.ports import free_port

MOUNT: Final = (
    "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io && "
    'ln -s "$ACCOUNT" /run/secrets/kubernetes.io/serviceaccount && exec "$@"'
)
"""Puts an account where a Pod has it, in a mount namespace of the process's own."""


class Api:
    """The API server, asked as its administrator."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext) -> None:
        self._session = session
        self._tls = tls
        self.url = url

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """What it answers. Raises `AssertionError` when it refuses."""
        data = json.dumps(body) if body is not None else None
        async with self._session.request(
            method, self.url + path, data=data, ssl=self._tls, headers={"Content-Type": kind}
        ) as reply:
            told = await reply.json(content_type=None)
            assert reply.status < 400, f"{method} {path}: {told}"
            return told

    async def add_pod(self, namespace: str, name: str, address: str, port: int = 8080) -> None:
        """Make an annotated Pod that runs and is ready, as far as the API server knows."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {"pharos.enable": "true", "pharos.port": str(port), "pharos.kind": "llamacpp"},
            },
            "spec": {"schedulerName": "nobody", "containers": [{"name": "engine", "image": "localhost/none"}]},
        }
        await self.ask("POST", pods, pod)
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.ask("PATCH", f"{pods}/{name}/status", {"status": status}, "application/merge-patch+json")

    async def version(self, namespace: str) -> str:
        """The resourceVersion of a list of the Pods, from which one would watch them."""
        told = await self.ask("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")
        return str(told["metadata"]["resourceVersion"])

    async def is_too_old(self, namespace: str, version: str) -> bool:
        """Whether the Pods cannot be watched from there any more."""
        path = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds=2&resourceVersion={version}"
        async with self._session.get(self.url + path, ssl=self._tls) as reply:
            first = json.loads(await reply.content.readline() or b"{}")
        return bool(first.get("type") == "ERROR" and first["object"]["code"] == 410) or first.get("code") == 410

    async def delete_pod(self, namespace: str, name: str) -> None:
        """Delete one, at once."""
        await self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})


@asynccontextmanager
async def api_server() -> AsyncIterator[Api]:
    """The one that KUBECONFIG names."""
    async with aiohttp.ClientSession() as session:
        yield Api(session, *_administrator())


def _administrator() -> tuple[str, ssl.SSLContext]:
    config = _kubeconfig()
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(b"\n".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return cluster["server"], tls


def _kubeconfig() -> Any:
    return yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))


class Account:
    """A service account's files as a Pod has them, in a folder."""

    def __init__(self, folder: Path, api: Api, namespace: str) -> None:
        self.folder = folder
        self.namespace = namespace
        cluster = _kubeconfig()["clusters"][0]["cluster"]
        (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        (folder / "namespace").write_text(namespace)
        self.environ = {"ACCOUNT": str(folder)}
        self.reach(api.url)

    def reach(self, url: str) -> None:
        """Where the API server is, for a process that starts from now on."""
        parts = urlsplit(url)
        self.environ |= {"KUBERNETES_SERVICE_HOST": parts.hostname or "", "KUBERNETES_SERVICE_PORT": str(parts.port)}

    def renew(self, name: str = "pharos") -> None:
        """Write a new token of an account, in place of the one before, as the kubelet does."""
        token = run("kubectl", "-n", self.namespace, "create", "token", name)
        fresh = self.folder / "token.new"
        fresh.write_text(token.strip())
        fresh.rename(self.folder / "token")


class Way:
    """A way to the API server that can be shut, as a network that is cut; entered, it is open."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)

    async def shut(self) -> None:
        """Cut those that there are, and take no more."""
        if self._server is not None:
            self._server.close()
        for end in tuple(self._ends):
            end.transport.abort()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._ends -= ends
            for end in ends:
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


class Outside:
    """A Pharos that runs on this machine."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, admin: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self._admin = f"http://127.0.0.1:{admin}"
        self._log = log

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text(encoding="utf-8")

    @property
    def memory_mb(self) -> float:
        """Its resident memory."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8"))
        return int(found[1]) / 1024 if found is not None else 0.0

    async def told(self, path: str) -> dict[str, Any]:
        """What its admin listener tells."""
        async with aiohttp.ClientSession() as session, session.get(self._admin + path) as reply:
            told: dict[str, Any] = await reply.json()
            return told

    async def backends(self) -> set[str]:
        """Names of its backends."""
        return {one["name"] for one in (await self.told("/backends"))["backends"]}

    async def until(self, what: str, wanted: set[str], *, wait_s: float = WAIT_S) -> float:
        """Wait until the backends are these; returns the seconds that it took."""
        began, found = time.monotonic(), set[str]()
        while time.monotonic() < began + wait_s:
            found = await self.backends()
            if found == wanted:
                return time.monotonic() - began
            await asyncio.sleep(0.05)
        raise AssertionError(
            f"not within {wait_s:g} s: {what}; {len(found - wanted)} too many, {len(wanted - found)} lack"
        )


@asynccontextmanager
async def outside(folder: Path, account: Account) -> AsyncIterator[Outside]:
    """A Pharos that looks in the account's namespace, ready; ended after it."""
    port, admin = free_port(), free_port()
    config = folder / "pharos.yaml"
    config.write_text(
        json.dumps(
            {
                "listen": f"127.0.0.1:{port}",
                "admin_listen": f"127.0.0.1:{admin}",
                "drain": {"grace": "0s", "timeout": "5s"},
                "discovery": {"kubernetes": {"enabled": True, "namespaces": [account.namespace]}},
            }
        )
    )
    log = folder / "log"
    pharos = [sys.executable, "-m", "pharos", "serve", "--config", str(config)]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh", *pharos,
            stdout=file, stderr=file, env={**os.environ, **account.environ, "MALLOC_ARENA_MAX": "2"},  # as in the image
        )  # fmt: skip
    it = Outside(process, port, admin, log)
    try:
        async with asyncio.timeout(WAIT_S):
            while not await _is_ready(it):
                assert process.returncode is None, it.log
                await asyncio.sleep(0.1)
        yield it
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _is_ready(it: Outside) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{it.url}/healthz") as reply:
            return reply.status == 200
    except aiohttp.ClientError:
        return False
