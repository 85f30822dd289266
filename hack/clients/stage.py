"""The stage on which clients are run: real engines, one that makes its clients wait, and Pharos in front, twice.

One Pharos wants keys; the other is open, for the ollama command, which never sends one. Both are the program itself.
"""

import asyncio
import hashlib
import json
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from clients.recording import ROOT

from tests.engines.llamacpp_stands import Embeds, LlamaCpp
from tests.engines.ollama_stand import CONTEXT, Ollama
from tests.engines.program import Program, answers
from tests.fakes.http import Connection, HttpDouble, Reply, Seen
from tests.live.real import free_port

if TYPE_CHECKING:
    from tests.engines.stand import Stand

KEY, WRONG_KEY = "pk-clients", "pk-wrong"
WAITS, SAID = "waits", ("at", " last")
COMMENTS = b": pharos queue position=3 eta_s=12\n\n: pharos queue position=1 eta_s=2\n\n"
"""What a client gets that asked to be told that it waits."""
_TOKENS = 16
_TEMPLATE = (
    '"""{{ if .Tools }}{{ .Tools }}</s>\n{{ end }}{{ range .Messages }}({{ .Role }}) {{ .Content }}</s>\n{{ end }}'
    '(assistant) """'
)


class ChatLlama(LlamaCpp):
    """llama.cpp whose replies run to the limit that is asked for."""

    model = "tiny-chat"


class AgentLlama(LlamaCpp):
    """One whose context holds the prompts of coding agents, and whose replies end by themselves."""

    model = "tiny-agent"
    model_flags = ("--context", "131072", "--ends")
    context = 131072


class EmbedLlama(Embeds):
    """Makes embeddings, under a name of its own."""

    model = "tiny-vectors"


class ToolOllama(Ollama):
    """Ollama whose chat model takes tools and whose replies end by themselves."""

    def prepare(self) -> None:
        """Write its models."""
        super().prepare()
        chat = (
            f"FROM ./tiny.gguf\nPARAMETER num_ctx {CONTEXT}\nPARAMETER num_predict {_TOKENS}\nPARAMETER num_thread 1\n"
            f"TEMPLATE {_TEMPLATE}\n"
        )
        (self.work / "tiny.modelfile").write_text(chat, encoding="utf-8")


class Waiting(HttpDouble):
    """An engine whose streams begin with the comments of a request that waits."""

    async def respond(self, request: Seen, connection: Connection) -> None:
        """Answer what a plain engine does."""
        path = request.path.partition("?")[0]
        if path == "/v1/models":
            card = {"id": WAITS, "object": "model", "created": 1, "owned_by": "stage"}
            body = json.dumps({"object": "list", "data": [card]}).encode()
            await connection.send(Reply(200, body, {"Content-Type": "application/json"}))
        elif path in ("/v1/chat/completions", "/v1/messages"):
            await connection.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            for piece in (COMMENTS, *(_messages() if path == "/v1/messages" else _chat())):
                await connection.chunk(piece)
            await connection.chunk(b"")
        else:
            await super().respond(request, connection)


def _chat() -> list[bytes]:
    shape = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": WAITS}

    def event(delta: dict[str, str], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: " + json.dumps({**shape, "choices": [choice]}).encode() + b"\n\n"

    texts = [event({"content": word}, None) for word in SAID]
    return [event({"role": "assistant"}, None), *texts, event({}, "stop"), b"data: [DONE]\n\n"]


def _messages() -> list[bytes]:
    def event(kind: str, **told: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **told})}\n\n".encode()

    usage = {"input_tokens": 3, "output_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": WAITS, "content": []}
    block = {"type": "text", "text": ""}
    texts = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in SAID]
    return [
        event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage}),
        event("content_block_start", index=0, content_block=block),
        *texts,
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2}),
        event("message_stop"),
    ]


class Stage:
    """Everything that clients talk to; inside `async with`."""

    def __init__(self, work: Path) -> None:
        """`work`: a folder for models, logs and settings."""
        self._work = work
        self.waiting = Waiting()
        self.chat, self.embed = ChatLlama(_folder(work / "chat")), EmbedLlama(_folder(work / "embed"))
        self.agent, self.ollama = AgentLlama(_folder(work / "agent")), ToolOllama(_folder(work / "ollama"))
        self.no_ollama = self.ollama.missing()
        """Why there is no Ollama; `None`: there is."""
        self._stands: list[Stand] = [self.chat, self.embed, self.agent]
        if self.no_ollama is None:
            self._stands.append(self.ollama)
        self._programs: list[Program] = []
        self.keyed = self.open = 0
        """The ports of Pharos."""

    @property
    def engines(self) -> list[dict[str, str]]:
        """What scripts are told of them."""
        llamacpp = {"chat": self.chat.model, "embed": self.embed.model, "agent": self.agent.model}
        ollama = {"chat": "tiny", "embed": "tiny-embed", "agent": "tiny"}
        found = [{"kind": "llamacpp", **llamacpp}]
        return found if self.no_ollama is not None else [*found, {"kind": "ollama", **ollama}]

    @property
    def models(self) -> list[str]:
        """Names that clients ask for, in requests that are else the same."""
        return [WAITS, *(one[kind] for one in self.engines for kind in ("chat", "embed", "agent"))]

    @property
    def versions(self) -> dict[str, str]:
        """Of the engines."""
        told = {"llama.cpp": self.chat.version}
        return told if self.no_ollama is not None else {**told, "Ollama": self.ollama.version}

    def missing(self) -> str | None:
        """Return what this machine lacks to run any client."""
        return self.chat.missing()

    async def __aenter__(self) -> Self:
        await self.waiting.start()
        for stand in self._stands:
            stand.ensure()
        keys = [{"name": "clients", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "admin": True}]
        # In a thread: the engine that waits answers from this loop.
        self.keyed = await asyncio.to_thread(self._serve, "keyed", keys=keys)
        self.open = await asyncio.to_thread(self._serve, "open")
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in (*self._programs, *self._stands):
            one.kill()
        self.waiting.kill()

    def faults(self) -> list[str]:
        """What is wrong with Pharos now that all clients are done: errors in its log, slots that are still taken."""
        found = []
        for program, port in zip(self._programs, (self.keyed, self.open), strict=True):
            lines = program.log.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [f"Pharos says: {line}" for line in lines if " ERROR " in line or "Traceback" in line]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                metrics = page.read().decode().splitlines()
            taken = [line for line in metrics if line.startswith("pharos_target_inflight{")]
            found += [f"still taken: {line}" for line in taken if not line.endswith(" 0")]
        return found

    def _serve(self, name: str, **more: object) -> int:
        """Start a Pharos; its port."""
        port, folder = free_port(), _folder(self._work / name)
        backends = [one.settings() for one in self._stands]
        backends.append({"url": self.waiting.url, "kind": "openai"})
        settings = {"listen": f"127.0.0.1:{port}", "backends": backends, **more}
        (folder / "pharos.yaml").write_text(json.dumps(settings), encoding="utf-8")
        argv = [sys.executable, "-m", "pharos", "serve", "--config", str(folder / "pharos.yaml")]
        program = Program(argv, log=folder / "pharos.log", folder=folder, environ={"PYTHONPATH": str(ROOT)})
        program.start(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        self._programs.append(program)
        return port


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
