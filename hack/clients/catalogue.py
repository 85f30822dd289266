"""Every client that is run against Pharos: how it is started, what it is asked to do, what its user must set.

Forbidden here: starting anything.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

PROMPT = "Greet the harbor at dawn."
LIMIT = "8"
NOT_MANAGED = r"does not manage models|manages neither models nor accounts"
SAID = r"at last"
UNKNOWN = "no-such-model"


class Place(msgspec.Struct, frozen=True):
    """Where a client runs, and what it talks to."""

    base: str
    """Pharos, as the client reaches it."""
    key: str
    wrong_key: str
    home: Path
    """A folder of its own."""
    engines: Sequence[dict[str, str]]
    tools: Path
    """Where `hack/setup-clients` has put the clients."""
    ollama: Path


class Command(msgspec.Struct, frozen=True):
    """One step of a client that is a program."""

    step: str
    argv: Sequence[str]
    says: str
    """What it prints, as a regular expression; anywhere in its two outputs."""
    code: int | None = 0
    """Its exit code; `None`: any but 0."""
    environ: dict[str, str] = {}
    within_s: float = 0.0
    """It is asked again for so long until it says so: lists of Pharos follow the engines at their own pace."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client."""

    name: str
    """Its folder of recordings."""
    title: str
    setting: str
    """What its user must set, for the page."""
    script: str | None = None
    """In `scripts/`; `None`: it is a program, and `commands` says what it is asked."""
    runs_on: Literal["python", "node", "program"] = "python"
    version: Sequence[str] = ()
    """Of a program: what tells its version."""
    commands: Callable[[Place], Sequence[Command]] | None = None
    is_open: bool = False
    """It cannot send a key."""
    against: tuple[str, ...] = ("llama.cpp", "Ollama")
    """The engines that its steps ask."""
    is_foreign: bool = False
    """Its requests hold texts of others, which are not kept."""
    note: str = ""
    """What else is worth knowing."""

    @property
    def needs_ollama(self) -> bool:
        """Whether it speaks to an Ollama only."""
        return self.against == ("Ollama",)


def llm_commands(place: Place) -> list[Command]:
    """Simon Willison's command line, with its file of models."""
    folder = place.home / "llm"
    folder.mkdir(exist_ok=True)
    names = [*(one["chat"] for one in place.engines), "waits", UNKNOWN]
    shape = {"api_base": f"{place.base}/v1", "api_key_name": "pharos", "supports_tools": True}
    models = [{"model_id": name, "model_name": name, **shape} for name in names]
    (folder / "extra-openai-models.yaml").write_text(json.dumps(models), encoding="utf-8")  # JSON is YAML
    (folder / "keys.json").write_text(json.dumps({"pharos": place.key}), encoding="utf-8")
    environ = {"LLM_USER_PATH": str(folder)}
    base = [str(place.tools / "python" / "bin" / "llm"), "-m"]
    limit = ["-o", "max_tokens", LIMIT]

    def ask(step: str, model: str, *more: str, says: str = r"\S", code: int = 0) -> Command:
        return Command(step, [*base, model, *limit, *more, PROMPT], says, code, environ)

    found = []
    for one in place.engines:
        found += [
            ask(f"chat ({one['kind']})", one["chat"], "--no-stream"),
            ask(f"streamed chat ({one['kind']})", one["chat"]),
            ask(f"chat with tools ({one['kind']})", one["chat"], "-T", "llm_version"),
        ]
    return [
        *found,
        ask("comments while waiting", "waits", says=SAID),
        ask("unknown model", UNKNOWN, says=UNKNOWN, code=1),
        ask("wrong key", place.engines[0]["chat"], "--key", place.wrong_key, says="[Kk]ey", code=1),
    ]


def ollama_commands(place: Place) -> list[Command]:
    """The command of Ollama itself."""
    environ = {"OLLAMA_HOST": place.base}
    model = next(one["chat"] for one in place.engines if one["kind"] == "ollama")
    (place.home / "Modelfile").write_text(f"FROM {model}\nPARAMETER num_ctx 2048\n", encoding="utf-8")

    def ask(step: str, *argv: str, says: str = "", code: int | None = 0, within_s: float = 0.0) -> Command:
        return Command(step, [str(place.ollama), *argv], says, code, environ, within_s)

    return [
        ask("list", "list", says=rf"{model}:latest"),
        ask("show", "show", model, says="context length"),
        ask("run", "run", model, PROMPT, says=r"\S"),
        ask("ps", "ps", says=rf"{model}:latest", within_s=20.0),
        ask("stop", "stop", model),
        ask("pull", "pull", model, says=NOT_MANAGED, code=None),
        ask("push", "push", f"me/{model}", says=NOT_MANAGED, code=None),
        ask("create", "create", "mine", "-f", "Modelfile", says=NOT_MANAGED, code=None),
        ask("cp", "cp", model, "other", says=NOT_MANAGED, code=None),
        ask("rm", "rm", model, says=NOT_MANAGED, code=None),
        ask("unknown model", "run", UNKNOWN, PROMPT, says=NOT_MANAGED, code=None),
    ]


def claude_commands(place: Place) -> list[Command]:
    """The coding agent, asked once and without a terminal."""
    environ = {
        "ANTHROPIC_BASE_URL": place.base,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CONFIG_DIR": str(place.home / "claude"),
        "DISABLE_AUTOUPDATER": "1",
    }
    base = [str(place.tools / "node" / "node_modules" / ".bin" / "claude"), "-p", PROMPT, "--max-turns", "1"]
    stream = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]

    def ask(step: str, model: str, *more: str, says: str, code: int | None = 0, **extra: str) -> Command:
        told = {**environ, "ANTHROPIC_DEFAULT_HAIKU_MODEL": model, **extra}
        return Command(step, [*base, "--model", model, *more], says, code, told)

    known = place.engines[0]["agent"]
    return [
        ask("answer as JSON", known, "--output-format", "json", says=r'"type":"result"'),
        ask("answer as a stream", known, *stream, says=r'"message_stop"'),
        ask("comments while waiting", "waits", says=SAID),
        ask("unknown model", UNKNOWN, says=UNKNOWN, code=None),
        ask("wrong key", known, says="(?i)key|auth", code=None, ANTHROPIC_AUTH_TOKEN=place.wrong_key),
    ]


CLIENTS = (
    Client(
        name="openai-python",
        title="openai (Python)",
        script="openai_sdk.py",
        setting='`base_url="http://pharos:8090/v1"`, `api_key`',
    ),
    Client(
        name="openai-node",
        title="openai (Node)",
        script="openai_node.mjs",
        runs_on="node",
        setting='`baseURL: "http://pharos:8090/v1"`, `apiKey`',
    ),
    Client(
        name="anthropic-python",
        title="anthropic (Python)",
        script="anthropic_sdk.py",
        setting='`base_url="http://pharos:8090"` (without `/v1`), `api_key` or `auth_token`',
    ),
    Client(
        name="ollama-python",
        title="ollama (Python)",
        script="ollama_sdk.py",
        against=("Ollama",),
        setting='`host="http://pharos:8090"`, and with keys `headers={"Authorization": "Bearer …"}`',
        note="its routes are served by Ollama backends only",
    ),
    Client(
        name="langchain-openai",
        title="langchain-openai",
        script="langchain_sdk.py",
        setting='`base_url="http://pharos:8090/v1"`, `api_key`; for embeddings `check_embedding_ctx_length=False`',
        note="without the last one it sends token numbers of OpenAI's vocabularies, which it fetches from the network",
    ),
    Client(
        name="llm",
        title="llm",
        runs_on="program",
        version=("python/bin/llm", "--version"),
        commands=llm_commands,
        setting="a model in `extra-openai-models.yaml` with `api_base: http://pharos:8090/v1` and an `api_key_name`",
    ),
    Client(
        name="litellm",
        title="LiteLLM (SDK)",
        script="litellm_sdk.py",
        setting='`api_base="http://pharos:8090/v1"` for `openai/…`; without `/v1` for `anthropic/…` and `ollama_chat/…`'
        "; `api_key`",
    ),
    Client(
        name="claude-code",
        title="Claude Code (`claude -p`)",
        runs_on="program",
        version=("node/node_modules/.bin/claude", "--version"),
        commands=claude_commands,
        is_foreign=True,
        against=("llama.cpp",),  # the tiny model of Ollama takes minutes for so long a prompt on a busy machine
        setting="`ANTHROPIC_BASE_URL=http://pharos:8090`, `ANTHROPIC_AUTH_TOKEN`, `--model`, and the same model in "
        "`ANTHROPIC_DEFAULT_HAIKU_MODEL`; `CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1` where there is no other network",
        note="its prompt is long: the engine's context must hold it",
    ),
    Client(
        name="ollama-cli",
        title="ollama (command)",
        runs_on="program",
        version=("--version",),
        commands=ollama_commands,
        is_open=True,
        against=("Ollama",),
        setting="`OLLAMA_HOST=http://pharos:8090`; it never sends a key, so it needs a Pharos without `keys`",
        note="`pull`, `push`, `create`, `cp` and `rm` end with a sentence that says that Pharos does not manage "
        "models; `ps` shows what Pharos read last, some seconds ago",
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}


def in_words(version: str) -> str:
    """The number in what a program says of its version."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?\S*", version)
    return found[0].rstrip(",)") if found is not None else "unknown"
