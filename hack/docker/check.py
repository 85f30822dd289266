"""Pharos in a container before llama.cpp in others, found by their labels, on the Docker engine at DOCKER_HOST.

Prints a line for each thing that was seen, and stops at the first that was not. Run by hack/docker/run.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

BEGAN = time.monotonic()
IMAGE = "localhost/pharos:test"
SOCKET = os.environ["DOCKER_HOST"].removeprefix("unix://")
MODEL = "tiny"
WAIT_S = 60.0
"""Longest wait for anything; reached only when something is wrong."""
TARGET = "X-Pharos-Target"
ENGINE = ("localhost/engine:test",)
PROBES = r"[{name: from-the-log, signal: capacity, log: {match: 'n_slots = (?P<value>\d+)'}}]"
"""What only the log of llm-1 tells, read ahead of all else."""
FLAGS = ("--host", "::", "--parallel", "2", "--ctx-size", "8192")
"""After the image's own, which are for more."""


def docker(*arguments: str) -> str:
    """Run one command of Docker's; returns what it printed."""
    ended = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise AssertionError(f"docker {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def engine(name: str, *more: str, network: str = "llm", **labels: str) -> None:
    """Start one engine, labelled."""
    named = {"enable": "true", "port": "8080", **labels}
    shown = [part for label, text in named.items() for part in ("--label", f"pharos.{label}={text}")]
    docker("run", "--detach", "--name", name, "--network", network, *shown, *more, *ENGINE, *FLAGS)


def pharos(name: str) -> str:
    """Start one Pharos as its own image would run; returns its URL."""
    docker(
        "run", "--detach", "--name", name, "--network", "llm", "--read-only", "--cap-drop", "ALL", "--group-add", "0",
        "--volume", f"{SOCKET}:/var/run/docker.sock:ro", "--env", "PHAROS_DISCOVERY__DOCKER__ENABLED=true",
        "--env", "PHAROS_RESPONSE_HEADERS__TARGET=true", "--env", "PHAROS_DRAIN__GRACE=1s", IMAGE,
    )  # fmt: skip
    address = docker("inspect", "--format", '{{(index .NetworkSettings.Networks "llm").IPAddress}}', name)
    return f"http://{address}:8090"


def log_of(name: str) -> str:
    """Everything that a container said."""
    ended = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def saw(text: str) -> None:
    """Say what was seen."""
    print(f"{time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


async def until(what: str, claim: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever the claim gives
    """Wait until a claim holds; returns what it gave."""
    last: object = None
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        try:
            found = await claim()
            if found:
                return found
        except (aiohttp.ClientError, OSError) as fault:
            last = fault
        await asyncio.sleep(0.1)
    raise AssertionError(f"never seen: {what} ({last}); Pharos said:\n{log_of('pharos-1')}")


class Client:
    """Asks one Pharos."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url

    async def up(self) -> set[str]:
        """Names of the backends that are up."""
        async with self._http.get(f"{self.url}/status?format=json") as reply:
            backends = (await reply.json())["backends"]
        return {one["name"] for one in backends if one["up"]}

    async def kinds(self) -> dict[str, str]:
        """Kind of each backend."""
        async with self._http.get(f"{self.url}/status?format=json") as reply:
            return {one["name"]: one["kind"] for one in (await reply.json())["backends"]}

    async def slots_by_log(self) -> bool:
        """Whether the slots of llm-1 are known from its log."""
        async with self._http.get(f"{self.url}/status?format=json") as reply:
            plans = [row for one in (await reply.json())["backends"] for row in one["plan"]]
        return any(row["probe"] == "from-the-log" and row["value"] == 2 for row in plans)

    def chat(self, tokens: int, *, stream: bool) -> Any:  # noqa: ANN401 - aiohttp's own kind of reply
        """Begin one request."""
        body = {"model": MODEL, "stream": stream, "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}]}
        return self._http.post(f"{self.url}/v1/chat/completions", json=body)

    async def answered_by(self) -> str:
        """Which backend answers a short request."""
        async with self.chat(2, stream=False) as reply:
            text = await reply.text()
            assert reply.status == 200, (reply.status, text)
            assert json.loads(text)["usage"]["completion_tokens"] > 0
            return str(reply.headers[TARGET])


async def found_by_labels(client: Client) -> None:
    """Every labelled engine is there, with its kind; what makes no backend is said."""
    await until("both engines up", lambda: _is(client.up, {"llm-1", "llm-2"}))
    kinds = await client.kinds()
    assert kinds == {"llm-1": "llamacpp", "llm-2": "llamacpp"}, kinds
    saw("both labelled engines, each as llamacpp, and nothing else")
    said = log_of("pharos-1")
    assert "container wrong is left out: pharos.capacity: expected a whole number" in said, said
    saw("the container whose label is wrong is left out, and the log says which label and what to write")
    await until("a value of the log", client.slots_by_log)
    saw("what a line in the log of one container says, read through Docker")
    async with client.chat(40, stream=True) as reply:
        text = await reply.text()
        assert reply.status == 200
        assert text.endswith("data: [DONE]\n\n"), text[-200:]
    saw("a stream whole")


async def _is(read: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> bool:
    return await read() == wanted


async def rest(reply: aiohttp.ClientResponse) -> str:
    """What still comes, to the end or to where it is cut."""
    parts = []
    with contextlib.suppress(aiohttp.ClientPayloadError):
        async for part in reply.content.iter_any():
            parts.append(part)  # noqa: PERF401 - what came before the cut counts
    return b"".join(parts).decode()


async def engine_killed(client: Client) -> None:
    """An engine killed in a stream cuts that stream only, honestly; the next request goes elsewhere; it comes back."""
    async with client.chat(8000, stream=True) as one, client.chat(200, stream=True) as other:
        await one.content.readline()
        await other.content.readline()
        first, second = one.headers[TARGET], other.headers[TARGET]
        assert first != second, first
        docker("kill", first)
        cut = await rest(one)
        whole = (await other.content.read()).decode()
    assert "[DONE]" not in cut, "a cut stream must not look finished"
    assert '"error"' in cut, cut[-300:]
    assert whole.endswith("data: [DONE]\n\n"), whole[-300:]
    saw(f"{first} killed: its stream ends with an error, the one of {second} goes on to its end")
    assert await client.answered_by() == second
    await until("the killed one gone", lambda: _is(client.up, {second}))
    saw("the next request elsewhere, and the killed one off the list")
    docker("start", first)
    await until("the restarted one back", lambda: _is(client.up, {"llm-1", "llm-2"}))
    saw("restarted, it is back")


async def more_and_fewer(client: Client) -> None:
    """Containers come and go while it serves, on several networks and with a label that drains."""
    began = time.monotonic()
    docker("network", "create", "aside")
    docker("create", "--name", "llm-3", "--network", "aside", "--label", "pharos.enable=true", "--label",
           "pharos.port=8080", *ENGINE, *FLAGS)  # fmt: skip
    docker("network", "connect", "llm", "llm-3")
    docker("start", "llm-3")
    await until("a third", lambda: _is(client.up, {"llm-1", "llm-2", "llm-3"}))
    saw(f"a new container in two networks by its address in the shared one, {time.monotonic() - began:.1f} s after")
    docker("rm", "--force", "llm-3")
    await until("the third gone", lambda: _is(client.up, {"llm-1", "llm-2"}))
    saw("it goes with its container")
    docker("rm", "--force", "llm-2")
    engine("llm-2", drain="true")
    await until("the drained one read", lambda: _is(client.up, {"llm-1", "llm-2"}))
    assert {await client.answered_by() for _ in range(6)} == {"llm-1"}
    saw("one with the label pharos.drain is read and gets no request")
    docker("rm", "--force", "llm-2")
    engine("llm-2")
    await until("both again", lambda: _is(client.up, {"llm-1", "llm-2"}))


async def two_instances(http: aiohttp.ClientSession) -> None:
    """A second instance beside the first finds the same engines."""
    second = Client(http, pharos("pharos-2"))
    await until("the second ready", lambda: _is(second.up, {"llm-1", "llm-2"}))
    assert await second.answered_by() in {"llm-1", "llm-2"}
    saw("a second instance finds and serves the same engines")
    docker("rm", "--force", "pharos-2")


async def sigterm(client: Client) -> None:
    """SIGTERM lets a running stream finish, then the container exits with 0."""
    async with client.chat(1500, stream=True) as reply:
        await reply.content.readline()
        docker("kill", "--signal", "TERM", "pharos-1")
        text = (await reply.content.read()).decode()
    assert text.endswith("data: [DONE]\n\n"), text[-300:]
    code = await asyncio.to_thread(docker, "wait", "pharos-1")
    assert code == "0", (code, log_of("pharos-1"))
    said = log_of("pharos-1")
    assert "draining: 1 request in work" in said, said
    saw("SIGTERM: the running stream whole, then exit status 0")


async def main() -> int:
    """The whole of it."""
    docker("network", "create", "llm")
    engine("llm-1", probes=PROBES)
    engine("llm-2")
    engine("wrong", capacity="many")
    docker("run", "--detach", "--name", "other", "--network", "llm", *ENGINE, *FLAGS)
    async with aiohttp.ClientSession() as http:
        client = Client(http, pharos("pharos-1"))
        await found_by_labels(client)
        await engine_killed(client)
        await more_and_fewer(client)
        await two_instances(http)
        await sigterm(client)
    print(f"all of it, with Docker {docker('version', '--format', '{{.Server.Version}}')}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
