"""What all scripts of Python clients share: where Pharos is, the steps, and telling how each went.

Runs with the clients' own packages. A step is announced on standard output and waits for a line on standard input, so
that whoever records requests knows which step they belong to. Lines of the protocol begin with `@@ `.
"""

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BASE = os.environ["PHAROS_BASE"]
KEY = os.environ["PHAROS_KEY"]
WRONG_KEY = os.environ["PHAROS_WRONG_KEY"]
WAITS = "waits"
"""A model whose streams begin with comments, as those of a request that waits."""
WAITS_SAYS = "at last"
UNKNOWN = "no-such-model"
LIMIT = 8
"""Tokens of a reply."""
PROMPT = "Greet the harbor at dawn."
MESSAGES: Any = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": PROMPT}]
TEXTS = ["hello", "two words"]
PARAMETERS: Any = {"type": "object", "properties": {"harbor": {"type": "string"}}, "required": ["harbor"]}
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_tide", "description": "When the tide comes.", "parameters": PARAMETERS},
}


@dataclass(frozen=True)
class Engine:
    """One engine behind Pharos, and its models by the names that clients use."""

    kind: str
    chat: str
    embed: str
    agent: str
    """Its replies end by themselves."""


ENGINES = [Engine(**one) for one in json.loads(os.environ["PHAROS_ENGINES"])]
OLLAMA = next((engine for engine in ENGINES if engine.kind == "ollama"), Engine("ollama", "", "", ""))
"""With empty names where no Ollama is there."""
LLAMACPP = next(engine for engine in ENGINES if engine.kind == "llamacpp")

_STEPS: list[tuple[str, Callable[[], Any]]] = []


def once(name: str, *, needs: Engine = LLAMACPP) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a step, unless the engine that it needs is not there."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        if needs in ENGINES:
            _STEPS.append((name, function))
        return function

    return add


def on_each(name: str) -> Callable[[Callable[[Engine], Any]], Callable[[Engine], Any]]:
    """Add a step for each engine."""

    def add(function: Callable[[Engine], Any]) -> Callable[[Engine], Any]:
        _STEPS.extend((f"{name} ({one.kind})", functools.partial(function, one)) for one in ENGINES)
        return function

    return add


def check(claim: object, what: object = "") -> None:
    """Fail the step when a claim is false."""
    if not claim:
        raise AssertionError(what)


def fails(kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], Any], *words: str) -> str:
    """Expect an error that says these words; what it says."""
    try:
        call()
    except kind as error:
        said = str(error)
        check(all(word in said for word in words), f"it says: {said}")
        return said
    raise AssertionError(f"no {kind} was raised")


def main(version: str) -> None:
    """Run every step, then end."""
    _say({"version": version})
    for name, function in _STEPS:
        _say({"begin": name})
        sys.stdin.readline()
        try:
            given = function()
            if inspect.isawaitable(given):
                asyncio.run(_whole(given))
        except Exception as error:  # noqa: BLE001 - told, and the next step runs
            _say({"end": name, "fault": f"{type(error).__name__}: {error}"[:2000]})
        else:
            _say({"end": name})


async def _whole(given: Any) -> None:  # noqa: ANN401 - whatever a step gives
    await given


def _say(told: dict[str, str]) -> None:
    print(f"@@ {json.dumps(told)}", flush=True)
