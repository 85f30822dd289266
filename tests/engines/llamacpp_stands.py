"""llama.cpp: its server out of a package in four settings, a compiled one, and the compiled one as a router."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.engines.program import Program
from tests.engines.stand import (
    CACHE,
    CONTEXT,
    SLOTS,
    Reply,
    Stand,
    Truth,
    embeddings,
    openai_replies,
    other_replies,
    script,
    tensor_bytes,
    write_gguf,
)

PINNED = "llama-server-11434"
IS_LATEST = os.environ.get("PHAROS_LIVE_VERSION") == "latest"
_BUILD = re.compile(r"\(build ([0-9]+), commit ([0-9a-z]+)\)|^version: ([0-9]+) \(([0-9a-z]+)\)", re.MULTILINE)
"""What --version says, in newer builds and in older ones."""


def python() -> str | None:
    """Which Python has the package of the llama.cpp server; `None`: none."""
    newest = CACHE / "latest" / "xllamacpp" / "bin" / "python"
    if IS_LATEST and newest.exists():
        return str(newest)
    import sys

    return sys.executable if importlib.util.find_spec("xllamacpp") is not None else None


def package_version() -> str:
    """The build inside the package, which its own pages do not tell."""
    newest = CACHE / "latest" / "xllamacpp" / "version.txt"
    told = newest.read_text().strip() if IS_LATEST and newest.exists() else metadata.version("xllamacpp")
    return f"b{told.rpartition('.')[2]}"


def compiled() -> Path | None:
    """The compiled server: the pinned build, or with VERSION=latest the newest there is."""
    built = sorted(CACHE.glob("llama-server-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    if IS_LATEST and built:
        return built[-1]
    if (CACHE / PINNED).exists():
        return CACHE / PINNED
    found = shutil.which("llama-server")
    return Path(found) if found is not None else None


NOT_COMPILED = "no compiled llama-server in .cache/engines or on PATH (hack/setup-engines llama-server)"


class LlamaCpp(Stand):
    """One model, with everything that can be told."""

    name = "llamacpp"
    family = "llamacpp"
    folder = "llamacpp"
    kind = "llamacpp"
    variant = ""
    flags: tuple[str, ...] = ("--metrics",)
    model_flags: tuple[str, ...] = ("--context", "32768")
    context = CONTEXT

    @property
    def sizes(self) -> tuple[str, ...]:
        """Flags for slots and context."""
        return ("--parallel", str(self.slots), "--ctx-size", str(self.slots * self.context))

    @property
    def version(self) -> str:
        return package_version() + self.variant

    @property
    def truth(self) -> Truth:
        return Truth(
            version=None,  # this package says that it is build 0
            models=(self.model,),
            capacity={self.model: self.slots},
            context_length={self.model: self.context},
            size_bytes={self.model: tensor_bytes(self.work / f"{self.model}.gguf")},
            capabilities={self.model: ("completion",)},
            physical_group={self.model: self.model},
        )

    def missing(self) -> str | None:
        return None if python() is not None else "the package xllamacpp is not installed (make .venv/dev)"

    def prepare(self) -> None:
        write_gguf(self.work / f"{self.model}.gguf", *self.model_flags)

    def executable(self) -> list[str]:
        interpreter = python()
        assert interpreter is not None
        return script("llama_server.py", python=interpreter)

    def program(self) -> Program:
        options = {
            "--model": f"{self.model}.gguf",
            "--alias": self.model,
            "--host": "127.0.0.1",
            "--port": str(self.port),
        }
        words = [word for pair in options.items() for word in pair]
        return Program([*self.executable(), *words, *self.sizes, *self.flags], log=self.log, folder=self.work)

    def replies(self) -> list[Reply]:
        return [
            *openai_replies(self.model, plain_is_told=True),
            *other_replies(self.model),
            embeddings(self.model, is_served=False),
        ]


class NoMetrics(LlamaCpp):
    """As people start it who know nothing: without --metrics, and with its own four slots that share one context."""

    name = "llamacpp-no-metrics"
    variant = "-no-metrics"
    flags = ()
    model_flags = ("--context", "65536")
    slots = 4
    context = 65536
    shows_restart = False

    @property
    def sizes(self) -> tuple[str, ...]:
        return ("--ctx-size", str(self.context))


class Sleeps(LlamaCpp):
    """Puts its model to sleep when nobody asks."""

    name = "llamacpp-sleep"
    variant = "-sleep"
    flags = ("--metrics", "--sleep-idle-seconds", "3")

    def is_asleep(self) -> bool:
        """What it says on a page that does not wake it."""
        return bool(json.loads(self.get("/props"))["is_sleeping"])

    def times_woken(self) -> int:
        """How often it said in its log that it wakes."""
        return self.log.read_bytes().count(b"server is exiting sleeping state")


class Embeds(LlamaCpp):
    """Makes embeddings."""

    name = "llamacpp-embeddings"
    variant = "-embeddings"
    model = "tiny-embed"
    flags = ("--metrics", "--embeddings")
    model_flags = ("--context", "8192", "--embedding")
    context = 4096

    def replies(self) -> list[Reply]:
        return [embeddings(self.model)]


class Keyed(LlamaCpp):
    """Wants a key."""

    name = "llamacpp-key"
    variant = "-key"
    key = "a-key-of-this-test"
    flags = ("--metrics", "--api-key", key)

    def settings(self) -> dict[str, Any]:
        return {"url": self.url, "credential": "engine"}


class Compiled(LlamaCpp):
    """The same server compiled from source, which knows its build."""

    name = "llamacpp-compiled"
    flags = ("--metrics", "-t", "1", "--no-webui")

    @property
    def version(self) -> str:
        return f"b{build()[0]}"

    @property
    def truth(self) -> Truth:
        from msgspec.structs import replace

        number, commit = build()
        return replace(super().truth, version=f"b{number}-{commit}")

    def missing(self) -> str | None:
        return None if compiled() is not None else NOT_COMPILED

    def executable(self) -> list[str]:
        return [str(compiled())]


def build() -> tuple[str, str]:
    """Number and commit of the compiled server, as its command line tells."""
    done = subprocess.run([str(compiled()), "--version"], capture_output=True, check=True)
    found = _BUILD.search((done.stdout + done.stderr).decode())
    assert found is not None, done
    number, commit = [part for part in found.groups() if part is not None]
    return number, commit


class Router(Stand):
    """Many models behind one address, one in memory at a time."""

    name = "llamacpp-router"
    family = "llamacpp-router"
    folder = "llamacpp-router"
    kind = "llamacpp-router"
    other = "other"

    @property
    def version(self) -> str:
        return f"b{build()[0]}"

    @property
    def truth(self) -> Truth:
        number, commit = build()
        names = (self.model, str(self.other))
        return Truth(
            version=f"b{number}-{commit}",
            models=names,
            capacity=dict.fromkeys(names, SLOTS),
            context_length=dict.fromkeys(names, CONTEXT),
            size_bytes={name: tensor_bytes(self.work / "models" / f"{name}.gguf") for name in names},
            capabilities=dict.fromkeys(names, ("completion",)),
            physical_group={name: name for name in names},
        )

    def missing(self) -> str | None:
        return None if compiled() is not None else NOT_COMPILED

    def prepare(self) -> None:
        (self.work / "models").mkdir(exist_ok=True)
        for seed, name in enumerate((self.model, str(self.other)), 1):
            write_gguf(self.work / "models" / f"{name}.gguf", "--context", "32768", "--seed", str(seed))

    def program(self) -> Program:
        words = f"--models-dir models --models-max 1 -t 1 -np {SLOTS} -c {SLOTS * CONTEXT} --metrics --no-webui"
        argv = [str(compiled()), *words.split(), "--host", "127.0.0.1", "--port", str(self.port)]
        return Program(argv, log=self.log, folder=self.work)

    def states(self) -> dict[str, str]:
        """Model -> where it is, in the router's own words."""
        return {card["id"]: card["status"]["value"] for card in json.loads(self.get("/v1/models"))["data"]}

    def unloads(self, model: str) -> tuple[str, dict[str, Any]]:
        return "/models/unload", {"model": model}

    def replies(self) -> list[Reply]:
        return [
            *openai_replies(self.model, plain_is_told=True),
            *other_replies(self.model),
            embeddings(self.model, is_served=False),
        ]
