"""Reads a reply with an official SDK, unchanged, and says what the program that uses it learns: an answer, or not.

Every exception of an SDK or of what it stands on counts as told, and so does an event of failure that it hands out. All
else, such as a fault of the harness, is raised.
"""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

NODE_READER: Final = Path(__file__).with_name("reader.mjs")
ROOT: Final = Path(__file__).resolve().parents[2]
SAID: Final[Any] = [{"role": "user", "content": "hi"}]
LIMIT_S: Final = 15.0
OPTIONS: Final[dict[str, Any]] = {"base_url": "http://unset", "api_key": "any", "max_retries": 0, "timeout": LIMIT_S}
FAILED_EVENTS: Final = ("response.failed", "error")


class Ask(NamedTuple):
    """One request of a client."""

    url: str
    protocol: str
    model: str
    streamed: bool
    wants_usage: bool
    number: int


class Read(NamedTuple):
    """What the client's program got."""

    outcome: str
    """`raised`, `error event` or `answer`."""
    detail: str


Reader = Callable[[Ask], Awaitable[Read]]


def _judged(events: Iterable[Any]) -> Read:
    """Reads all of them, as a program does that only looks at each: a stream left in its middle keeps its socket."""
    failed = [event for event in events if getattr(event, "type", None) in FAILED_EVENTS]
    return Read("error event", failed[0].type) if failed else Read("answer", "")


def _openai_arguments(ask: Ask) -> dict[str, Any]:
    arguments: dict[str, Any] = {"model": ask.model, "stream": ask.streamed}
    arguments |= {"chat": {"messages": SAID}, "completions": {"prompt": "hi"}, "responses": {"input": "hi"}}[
        ask.protocol
    ]
    if ask.wants_usage:
        arguments["stream_options"] = {"include_usage": True}
    return arguments


def _openai_call(client: Any, protocol: str) -> Any:
    return {
        "chat": client.chat.completions.create,
        "completions": client.completions.create,
        "responses": client.responses.create,
    }[protocol]


def _reader(
    call: Callable[[Any, Ask], Any], blocking: Any, asynchronous: Any, told: tuple[type[Exception], ...]
) -> Reader:
    """The blocking client, in a thread, for odd numbers; the asynchronous one for even ones."""

    def in_a_thread(ask: Ask) -> Read:
        try:
            got = call(blocking, ask)
            return _judged(got) if ask.streamed else Read("answer", "")
        except told as error:
            return Read("raised", type(error).__name__)

    async def read(ask: Ask) -> Read:
        if ask.number % 2:
            return await asyncio.to_thread(in_a_thread, ask)
        try:
            got = await call(asynchronous, ask)
            return _judged([event async for event in got]) if ask.streamed else Read("answer", "")
        except told as error:
            return Read("raised", type(error).__name__)

    return read


@functools.cache
def _at(client: Any, url: str) -> Any:
    """The same client, for another address."""
    return client.with_options(base_url=url)


@contextlib.asynccontextmanager
async def openai_reader() -> AsyncIterator[Reader]:
    """OpenAI's package for Python."""
    import openai

    def call(client: Any, ask: Ask) -> Any:
        return _openai_call(_at(client, ask.url + "/v1"), ask.protocol)(**_openai_arguments(ask))

    with openai.OpenAI(**OPTIONS) as blocking:
        async with openai.AsyncOpenAI(**OPTIONS) as asynchronous:
            yield _reader(call, blocking, asynchronous, (openai.OpenAIError, *_transport_errors(), ValueError))
    _at.cache_clear()


@contextlib.asynccontextmanager
async def anthropic_reader() -> AsyncIterator[Reader]:
    """Anthropic's package for Python."""
    import anthropic

    def call(client: Any, ask: Ask) -> Any:
        return _at(client, ask.url).messages.create(model=ask.model, messages=SAID, max_tokens=12, stream=ask.streamed)

    with anthropic.Anthropic(**OPTIONS) as blocking:
        async with anthropic.AsyncAnthropic(**OPTIONS) as asynchronous:
            yield _reader(call, blocking, asynchronous, (anthropic.AnthropicError, *_transport_errors(), ValueError))
    _at.cache_clear()


@contextlib.asynccontextmanager
async def ollama_reader() -> AsyncIterator[Reader]:
    """Ollama's package for Python."""
    import ollama

    def call(client: Any, ask: Ask) -> Any:
        client._client.base_url = ask.url
        if ask.protocol == "ollama chat":
            return client.chat(model=ask.model, messages=SAID, stream=ask.streamed)
        return client.generate(model=ask.model, prompt="hi", stream=ask.streamed)

    told = (ollama.ResponseError, ollama.RequestError, *_transport_errors(), ConnectionError, ValueError)
    blocking, asynchronous = ollama.Client(timeout=LIMIT_S), ollama.AsyncClient(timeout=LIMIT_S)
    try:
        yield _reader(call, blocking, asynchronous, told)
    finally:
        blocking._client.close()
        await asynchronous._client.aclose()


def _transport_errors() -> tuple[type[Exception], ...]:
    """Errors of the HTTP clients below the SDKs, as far as they are installed."""
    import importlib.util

    names = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name) is not None]
    return tuple(importlib.import_module(name).HTTPError for name in names)


class Node(NamedTuple):
    """A Node with OpenAI's package."""

    program: str
    package: Path


def find_node() -> Node | str:
    """The one that `hack/setup-clients` has made ready, or why there is none."""
    home = ROOT / ".cache" / "clients"
    program, package = home / "bin" / "node", home / "node" / "node_modules" / "openai"
    if not program.exists() or not (package / "package.json").exists():
        return "OpenAI's package for Node is not installed (hack/setup-clients node)"
    return Node(str(program), package)


@contextlib.asynccontextmanager
async def node_reader(node: Node) -> AsyncIterator[Reader]:
    """One process of Node for all cases; several may be under way in it."""
    process = await asyncio.create_subprocess_exec(
        node.program, str(NODE_READER), str(node.package),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    to_node, from_node = process.stdin, process.stdout
    waiting: dict[int, asyncio.Future[Read]] = {}
    count = 0

    async def listen() -> None:
        while line := await from_node.readline():
            said = json.loads(line)
            future = waiting.pop(said["id"])
            if not future.done():  # its case was given up
                future.set_result(Read(said["outcome"], said["detail"]))

    async def read(ask: Ask) -> Read:
        nonlocal count
        count += 1
        future = waiting[count] = asyncio.get_running_loop().create_future()
        said = {"id": count, "url": ask.url + "/v1", "protocol": ask.protocol, "arguments": _openai_arguments(ask)}
        to_node.write(json.dumps(said).encode() + b"\n")
        try:
            async with asyncio.timeout(LIMIT_S):
                return await future
        except TimeoutError:
            return Read("raised", "Timeout")

    listener = asyncio.create_task(listen())
    try:
        yield read
    finally:
        to_node.close()
        await listener
        await process.wait()
