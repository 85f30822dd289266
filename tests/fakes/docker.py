"""A double of the Docker Engine API: containers and their logs, on a unix socket, in Docker's own frames."""

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

    def __init__(self, started_at: str = "2026-11-30T12:00:00.5Z", *, tty: bool = False) -> None:
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

    def describe(self) -> object:
        return {
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

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(lambda: Connection(self), self.path)

    async def respond(self, request: Seen, connection: Connection) -> None:
        parts = urlsplit(request.path)
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
