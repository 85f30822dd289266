"""A double of the Docker Engine API: containers, their labels and logs, and what happens, on a unix socket.

The list and the descriptions have the fields and the shapes of Docker 20.10, logs its frames.
"""

import asyncio
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.fakes.http import Connection, HttpDouble, Reply, Seen

OUTPUT, ERRORS, DOCKER = 1, 2, 3


def frame(data: bytes, stream: int = OUTPUT) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4) + data


class Container:
    """One container; `say` is what its processes write."""

    def __init__(
        self,
        started_at: str = "2026-11-30T12:00:00.5Z",
        *,
        tty: bool = False,
        labels: dict[str, str] | None = None,
        networks: dict[str, str] | None = None,
        ports: tuple[int, ...] = (),
        mode: str = "default",
    ) -> None:
        """`networks`: the address in each, empty while there is none; one of IPv6 has colons."""
        self.labels = labels if labels is not None else {}
        self.networks = networks if networks is not None else {}
        self.ports = ports
        self.mode = mode
        self.started_at = started_at
        self.tty = tty
        self.running = True
        self.log: list[tuple[float, bytes]] = []
        """Time of writing and the bytes as Docker sends them."""
        self._changed = asyncio.Event()

    def say(self, data: bytes, stream: int = OUTPUT, *, at: float = 4e9) -> None:
        self.send(data if self.tty else frame(data, stream), at=at)

    def send(self, data: bytes, *, at: float = 4e9) -> None:
        """Bytes that need not be frames."""
        self.log.append((at, data))
        self._wake()

    def stop(self) -> None:
        self.running = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def place(self) -> dict[str, object]:
        networks = {
            name: {
                "NetworkID": name,
                "IPAddress": "" if ":" in address else address,
                "GlobalIPv6Address": address if ":" in address else "",
            }
            for name, address in self.networks.items()
        }
        return {"HostConfig": {"NetworkMode": self.mode}, "NetworkSettings": {"Networks": networks}}

    def listed(self, name: str) -> dict[str, object]:
        published = [{"IP": "127.0.0.1", "PrivatePort": port, "PublicPort": port, "Type": "tcp"} for port in self.ports]
        exposed = [{"PrivatePort": port, "Type": "tcp"} for port in self.ports]
        return {
            "Id": "4c01db0b339c" * 5,
            "Names": [f"/other/{name}", f"/{name}"],
            "Labels": self.labels,
            "Ports": published + exposed + [{"PrivatePort": 9, "Type": "udp"}],
            "State": "running",
            **self.place(),
        }

    def describe(self) -> object:
        return self.place() | {
            "Id": "4c01db0b339c",
            "State": {"Status": "running", "Running": self.running, "StartedAt": self.started_at},
            "Config": {"Tty": self.tty, "Env": ["OLLAMA_API_KEY=never-to-be-shown"]},
        }

    async def follow(self, connection: Connection, since: float, *, ends: bool) -> None:
        at = 0
        while not connection.lost:
            while at < len(self.log):
                written_at, data = self.log[at]
                at += 1
                if written_at >= since:
                    await connection.chunk(data)
            if ends or not self.running:
                await connection.chunk(b"")
                return
            await self._changed.wait()


class FakeDocker(HttpDouble):
    """Listens on the unix socket at `path` inside `async with`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.containers: dict[str, Container] = {}
        self.listeners: list[Connection] = []
        """Who is told of events."""
        self.is_forbidden = False

    async def happen(self, what: bytes = b'{"Type":"container","Action":"start"}\n') -> None:
        """Tell of an event."""
        self.listeners = [one for one in self.listeners if not one.lost]
        for connection in self.listeners:
            await connection.chunk(what)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(lambda: Connection(self), self.path)

    async def respond(self, request: Seen, connection: Connection) -> None:
        parts = urlsplit(request.path)
        if self.is_forbidden:
            await connection.send(Reply(403, b"no", {"Content-Type": "text/plain"}))
            return
        if parts.path == "/events":
            await connection.head(200, {"Transfer-Encoding": "chunked"})
            self.listeners.append(connection)
            self.changed()
            return
        if parts.path == "/containers/json":
            assert json.loads(parse_qs(parts.query)["filters"][0])["status"] == ["running"]
            found = [c.listed(name) for name, c in self.containers.items() if c.running and "pharos.enable" in c.labels]
            await connection.send(Reply(200, json.dumps(found).encode(), {"Content-Type": "application/json"}))
            return
        _, top, name, leaf = parts.path.split("/")
        container = self.containers.get(name)
        if top != "containers" or container is None:
            body = b'{"message":"No such container: %s"}' % name.encode()
            await connection.send(Reply(404, body, {"Content-Type": "application/json"}))
        elif leaf == "json":
            await connection.send(
                Reply(200, json.dumps(container.describe()).encode(), {"Content-Type": "application/json"})
            )
        else:
            asked = {key: value for key, [value] in parse_qs(parts.query).items()}
            assert asked["stdout"] == asked["stderr"] == "1"
            await connection.head(200, {"Transfer-Encoding": "chunked"})
            await container.follow(connection, float(asked["since"]), ends=asked["follow"] == "0")
