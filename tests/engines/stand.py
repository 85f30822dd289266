"""What a real engine under test is: how it is started, what it was started with, and what it is asked.

The truth that Pharos' readings are held against is here and in the subclasses: it comes from command lines, files and
the engine's own words to a client, never from a probe of Pharos.
"""

import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from pharos.core.engine.recipes import by_kind
from pharos.core.engine.usage_fields import Dialect
from tests.engines.program import Program, answers
from tests.fakes.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "hack" / "engines"
CACHE = ROOT / ".cache" / "engines"

CONTEXT = 16384
"""Tokens of context of one slot, where an engine can be told."""
SLOTS = 2
LONG = 12_000
"""Tokens of a reply that runs for seconds, also on a fast machine, while a test looks."""


class Truth(msgspec.Struct, frozen=True):
    """What an engine was started with. A signal that is not in here must not be read at all."""

    version: str | None
    models: tuple[str, ...]
    capacity: dict[str, int] = {}
    """Model -> slots."""
    context_length: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    vram_bytes: dict[str, int] = {}
    capabilities: dict[str, tuple[str, ...]] = {}
    physical_group: dict[str, str] = {}
    """Model -> what its queue is called."""


class Reply(msgspec.Struct, frozen=True):
    """A request that a client may send, and what must come back."""

    name: str
    """As recordings call it."""
    path: str
    body: dict[str, Any]
    completion: int | None
    """Tokens that the reply must state as its output; `None`: this engine refuses the request."""
    is_told: bool = True
    """Whether a reply of this shape states its usage when the engine is asked directly."""


class Stand:
    """One engine in one setting."""

    name = ""
    """Unique among the stands."""
    family = ""
    """What ENGINES calls it."""
    folder = ""
    """Its folder of recordings."""
    kind = ""
    """What Pharos must take it for."""
    model = "tiny"
    """Its chat model, as it lists it."""
    slots = SLOTS
    """Requests for its chat model that run at once; what cannot be told how many gets no more than these."""
    other: str | None = None
    """Another one, that may be loaded in its place."""
    reads_residency = True
    states_cached = True
    """Whether its replies state the tokens found in the cache."""
    is_truth_whole = True
    """Whether `truth` has everything that may be read."""
    shows_restart = True
    """Whether another process can be told from the last one by what it answers."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where it keeps what it writes."""
        self.work = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "engine.log"
        self._program: Program | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.version} {self.url}>"

    # What subclasses say.

    @property
    def version(self) -> str:
        """Its folder under that of the engine: the version, and what is special about the setting."""
        raise NotImplementedError

    @property
    def truth(self) -> Truth:
        raise NotImplementedError

    def missing(self) -> str | None:
        """What this machine lacks to run it; `None`: nothing."""
        raise NotImplementedError

    def program(self) -> Program:
        """What to start; called once, after `prepare`."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make what it needs before its first start."""

    def prepare_running(self) -> None:
        """Make what needs the running engine; called after every start."""

    def replies(self) -> list[Reply]:
        """Every kind of request that clients send to this engine."""
        raise NotImplementedError

    def unloads(self, model: str) -> tuple[str, dict[str, Any]] | None:
        """Path and body of a POST that takes a model out of memory; `None`: there is none."""
        del model
        return None

    # What all share.

    @property
    def backend(self) -> str:
        """What Pharos calls it."""
        return f"127.0.0.1:{self.port}"

    def settings(self) -> dict[str, Any]:
        """Its entry in the configuration."""
        return {"url": self.url}

    @property
    def dialect(self) -> Dialect:
        return by_kind(self.kind).dialect(self.truth.version)

    def is_ready(self) -> bool:
        return answers(f"{self.url}/health")

    def ensure(self) -> None:
        """Start it unless it runs."""
        if self._program is None:
            self.prepare()
            self._program = self.program()
        if not self._program.is_running:
            self._program.start(self.is_ready)
            self.prepare_running()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._program is not None:
            self._program.kill()

    def restart(self) -> None:
        """Have a process that has done nothing yet."""
        self.kill()
        self.ensure()

    @property
    def process(self) -> Program:
        assert self._program is not None
        return self._program

    def chat(self, max_tokens: int, text: str = "hello", **more: Any) -> tuple[str, dict[str, Any]]:
        """Path and body of a chat."""
        messages = [{"role": "user", "content": text}]
        return "/v1/chat/completions", {"model": self.model, "max_tokens": max_tokens, "messages": messages, **more}

    def slow(self, number: int) -> tuple[str, dict[str, Any]]:
        """Path and body of a stream that lasts; each number has a prompt of its own."""
        return self.chat(LONG, f"the story of number {number}", stream=True)

    def get(self, path: str) -> bytes:
        """What it says to anybody who asks."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as reply:  # noqa: S310 (loopback)
            return bytes(reply.read())


def script(name: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command line of one of the repository's programs for engines."""
    return [python, str(TOOLS / name), *arguments]


def write_gguf(path: Path, *flags: str) -> None:
    """Write a tiny model."""
    subprocess.run(script("tiny_gguf.py", str(path), "--name", path.stem, *flags), check=True)


def tensor_bytes(path: Path) -> int:
    """Bytes of all tensors of a GGUF file, as its own index says."""
    import gguf

    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(str(path)).tensors)


MESSAGES = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Greet the harbor at dawn."}]
TOOLS_ASKED = [
    {
        "type": "function",
        "function": {
            "name": "get_tide",
            "parameters": {"type": "object", "properties": {"harbor": {"type": "string"}}, "required": ["harbor"]},
        },
    }
]
PREFIX = "the signal drifts over the reef while the bell rolls and the hull hails a gull in the mist at dawn. " * 12


def openai_replies(model: str, *, plain_is_told: bool, has_tools: bool = True) -> list[Reply]:
    """Requests of OpenAI's two text routes. `plain_is_told`: a stream states its usage without being asked."""

    def chat(name: str, completion: int, *, is_told: bool = True, **more: Any) -> Reply:
        body = {"model": model, "max_tokens": completion, "messages": MESSAGES, **more}
        return Reply(name, "/v1/chat/completions", body, completion, is_told)

    def complete(name: str, completion: int, *, is_told: bool = True, **more: Any) -> Reply:
        body = {"model": model, "prompt": "Once upon a tide", "max_tokens": completion, **more}
        return Reply(name, "/v1/completions", body, completion, is_told)

    asked = {"include_usage": True}
    found = [
        chat("chat_full", 12),
        chat("chat_stream_plain", 12, is_told=plain_is_told, stream=True),
        chat("chat_stream_usage", 12, stream=True, stream_options=asked),
        complete("completion_full", 8),
        complete("completion_stream", 8, is_told=plain_is_told, stream=True),
        complete("completion_stream_usage", 8, stream=True, stream_options=asked),
    ]
    if has_tools:
        found.append(chat("tools_stream", 12, is_told=plain_is_told, stream=True, tools=TOOLS_ASKED))
    return found


def other_replies(model: str) -> list[Reply]:
    """Requests of the newer routes: Anthropic's messages and OpenAI's responses."""
    message = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
    response = {"model": model, "input": "hello", "max_output_tokens": 8}
    return [
        Reply("messages_full", "/v1/messages", message, 8),
        Reply("messages_stream", "/v1/messages", {**message, "stream": True}, 8),
        Reply("responses_full", "/v1/responses", response, 8),
        Reply("responses_stream", "/v1/responses", {**response, "stream": True}, 8),
    ]


def embeddings(model: str, *, is_served: bool = True) -> Reply:
    """Ask for embeddings."""
    body = {"model": model, "input": ["hello", "two words"]}
    return Reply("embeddings", "/v1/embeddings", body, 0 if is_served else None)


def refused(replies: list[Reply]) -> list[Reply]:
    """The same requests to an engine that has no such route."""
    return [msgspec.structs.replace(reply, completion=None) for reply in replies]
