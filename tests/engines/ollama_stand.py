"""Ollama: built from its Go module, or a newer one on PATH."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engines.program import Program, answers
from tests.engines.stand import (
    CACHE,
    SLOTS,
    TOOLS,
    Reply,
    Stand,
    Truth,
    embeddings,
    openai_replies,
    other_replies,
    write_gguf,
)

PINNED = "0.17.4"
CONTEXT = 4096
CHILD_HAS_SERVER = (0, 30)
"""From this version on Ollama starts a llama-server for each model."""
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.[0-9]+\S*")
_TEMPLATE = '"""{{ range .Messages }}({{ .Role }}) {{ .Content }}</s>\n{{ end }}(assistant) """'


class Ollama(Stand):
    """Two models, two slots, and its log where Pharos may read it."""

    name = "ollama"
    family = "ollama"
    folder = "ollama"
    kind = "ollama"
    model = "tiny:latest"
    other = "tiny-embed:latest"
    states_cached = False
    shows_restart = False

    def executable(self) -> Path | None:
        """The program that is tested."""
        found = CACHE / f"ollama-{PINNED}"
        if os.environ.get("PHAROS_LIVE_VERSION") == "latest":
            built = CACHE.glob("ollama-*")
            found = max(built, key=lambda path: [int(n) for n in re.findall(r"[0-9]+", path.name)], default=found)
        return found if found.exists() else None

    def missing(self) -> str | None:
        return None if self.executable() is not None else f"no Ollama {PINNED} built (hack/setup-engines ollama)"

    @property
    def version(self) -> str:
        done = subprocess.run([str(self.executable()), "--version"], capture_output=True, check=True, env=self._environ)
        found = _VERSION.search(done.stdout.decode())
        assert found is not None
        return found[0]

    @property
    def is_newer(self) -> bool:
        """Whether it starts a server for each model."""
        numbers = tuple(map(int, self.version.split(".")[:2]))
        return numbers >= CHILD_HAS_SERVER

    @property
    def _environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.work),
            "PATH": os.environ.get("PATH", os.defpath),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_MODELS": str(self.work / "models"),
            "OLLAMA_NO_CLOUD": "1",
            "OLLAMA_NUM_PARALLEL": str(SLOTS),
            "LLAMA_PYTHON": sys.executable,
            "LLAMA_SERVER_PY": str(TOOLS / "llama_server.py"),
        }

    @property
    def truth(self) -> Truth:
        models = (self.model, str(self.other))
        return Truth(
            version=self.version,
            models=models,
            capacity={self.model: SLOTS, str(self.other): 1},
            context_length={self.model: CONTEXT, str(self.other): CONTEXT},
            size_bytes={model: self._stored(model) for model in models},
            vram_bytes={self.model: 0},  # of what is in memory, on a machine without GPU
            capabilities={self.model: ("completion",), str(self.other): ("embedding",)},
            physical_group={model: self._weights(model) for model in models},
        )

    def _manifest(self, model: str) -> dict[str, Any]:
        """What its disk says a model is made of."""
        name, _, tag = model.partition(":")
        (manifest,) = (self.work / "models" / "manifests").glob(f"*/*/{name}/{tag}")
        told: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        return told

    def _stored(self, model: str) -> int:
        """Bytes of all files of a model on the disk."""
        told = self._manifest(model)
        blobs = [told["config"]["digest"], *(layer["digest"] for layer in told["layers"])]
        return sum((self.work / "models" / "blobs" / blob.replace(":", "-")).stat().st_size for blob in blobs)

    def _weights(self, model: str) -> str:
        """Name of the file that has the weights of a model: one server runs for each."""
        layers = self._manifest(model)["layers"]
        (digest,) = [layer["digest"] for layer in layers if layer["mediaType"].endswith("image.model")]
        return str(digest).replace(":", "-")

    def settings(self) -> dict[str, Any]:
        return {"url": self.url, "logs": self.log.as_uri()}

    def is_ready(self) -> bool:
        return answers(f"{self.url}/api/version")

    def prepare(self) -> None:
        write_gguf(self.work / "tiny.gguf", "--context", "32768")
        write_gguf(self.work / "tiny-embed.gguf", "--embedding")
        chat = f"FROM ./tiny.gguf\nPARAMETER num_ctx {CONTEXT}\nPARAMETER num_thread 1\nTEMPLATE {_TEMPLATE}\n"
        (self.work / "tiny.modelfile").write_text(chat, encoding="utf-8")
        embed = f"FROM ./tiny-embed.gguf\nPARAMETER num_ctx {CONTEXT}\nPARAMETER num_thread 1\n"
        (self.work / "tiny-embed.modelfile").write_text(embed, encoding="utf-8")

    def prepare_running(self) -> None:
        if (self.work / "models" / "manifests").exists():
            return
        for name in ("tiny", "tiny-embed"):
            subprocess.run(
                [str(self.executable()), "create", name, "-f", f"{name}.modelfile"],
                cwd=self.work,
                env=self._environ,
                capture_output=True,
                check=True,
            )

    def program(self) -> Program:
        return Program([str(self.executable()), "serve"], log=self.log, folder=self.work, environ=self._environ)

    def loaded(self) -> set[str]:
        """Models in memory, in its own words."""
        return {model["name"] for model in json.loads(self.get("/api/ps"))["models"]}

    def unloads(self, model: str) -> tuple[str, dict[str, Any]]:
        return "/api/generate", {"model": model, "keep_alive": 0}

    def replies(self) -> list[Reply]:
        chat = {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "options": {"num_predict": 8}}
        generate = {"model": self.model, "prompt": "hello", "options": {"num_predict": 8}}
        embed = {"model": self.other, "input": ["hello", "two words"]}
        return [
            *openai_replies(self.model, plain_is_told=False, has_tools=False),
            *other_replies(self.model),
            embeddings(str(self.other)),
            Reply("api_chat_full", "/api/chat", {**chat, "stream": False}, 8),
            Reply("api_chat_stream", "/api/chat", chat, 8),
            Reply("api_generate_full", "/api/generate", {**generate, "stream": False}, 8),
            Reply("api_generate_stream", "/api/generate", generate, 8),
            Reply("api_embed", "/api/embed", embed, 0),
        ]


class NewerOllama(Ollama):
    """The one on PATH, with the stand-ins for the programs that it starts when none of its own are there."""

    name = "ollama-on-path"

    def executable(self) -> Path | None:
        found = shutil.which("ollama")
        return Path(found).resolve() if found is not None else None

    def missing(self) -> str | None:
        found = self.executable()
        if found is None:
            return "no ollama on PATH (no package registry has one newer than 0.17.4)"
        return None

    def prepare(self) -> None:
        super().prepare()
        found = self.executable()
        assert found is not None
        if not self.is_newer or (found.parent.parent / "lib" / "ollama" / "llama-server").exists():
            return
        tree = self.work / "tree"
        for folder in ("bin", "lib/ollama"):
            (tree / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(found, tree / "bin" / "ollama")
        for stand_in in ("llama-server", "llama-quantize"):
            shutil.copy(TOOLS / stand_in, tree / "lib" / "ollama" / stand_in)

    def program(self) -> Program:
        copied = self.work / "tree" / "bin" / "ollama"
        argv = [str(copied if copied.exists() else self.executable()), "serve"]
        return Program(argv, log=self.log, folder=self.work, environ=self._environ)
