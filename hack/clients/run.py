"""Runs every client against Pharos in front of real engines, and prints what ran.

CLIENTS=openai-python,llm: only these. KEEP=DIR: a folder for logs, that stays. RECORD=1: writes their requests and the
result into testdata/clients, from which `make docs` makes docs/clients.md. Exits with 1 when a step failed, with 0 when
what is not installed was left out.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clients import ran
from clients.catalogue import BY_NAME, CLIENTS, Client, Place
from clients.playing import Outcome, play
from clients.recording import HOST, KEY, ROOT, WRONG_KEY, Recording
from clients.stage import KEY as OUR_KEY
from clients.stage import WRONG_KEY as OUR_WRONG_KEY
from clients.stage import Stage
from clients.tap import Tap

TOOLS = ROOT / ".cache" / "clients"
OLLAMA = ROOT / ".cache" / "engines" / "ollama-0.17.4"
IS_RECORDED = os.environ.get("RECORD", "") not in ("", "0")


def chosen() -> list[Client]:
    """The clients of this run. Raises `SystemExit` for a name that none has."""
    wanted = os.environ.get("CLIENTS", "").replace(",", " ").split()
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"CLIENTS names {', '.join(unknown)}; known: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in wanted] if wanted else list(CLIENTS)


async def run(client: Client, stage: Stage, work: Path) -> tuple[Outcome, Recording]:
    """Run one client, with its requests recorded as they come."""
    home = work / "homes" / client.name
    home.mkdir(parents=True)
    recording = Recording({OUR_KEY: KEY, OUR_WRONG_KEY: WRONG_KEY}, stage.models, is_foreign=client.is_foreign)
    outcome = Outcome()
    if client.needs_ollama and stage.no_ollama is not None:
        outcome.skipped = stage.no_ollama
        return outcome, recording
    async with Tap(
        stage.open if client.is_open else stage.keyed, lambda seen: recording.add(outcome.step, seen)
    ) as tap:
        place = Place(
            base=f"http://127.0.0.1:{tap.port}",
            key=OUR_KEY,
            wrong_key=OUR_WRONG_KEY,
            home=home,
            engines=stage.engines,
            tools=TOOLS,
            ollama=OLLAMA,
        )
        await play(client, place, outcome)
    return outcome, recording


def note(client: Client, outcome: Outcome, recording: Recording, stage: Stage) -> None:
    """Keep what a client sent, and that it ran."""
    meta: dict[str, object] = {
        "client": client.title,
        "version": outcome.version,
        "engines": {engine: stage.versions[engine] for engine in client.against},
        "notes": "Requests as they arrived at Pharos, in their order; one that differs from an earlier one in nothing "
        f"but the model's name is left out. Keys are {KEY} and {WRONG_KEY}, the address is {HOST}, ids and what tells "
        "of one machine are masked.",
    }
    if client.is_foreign:
        meta["texts"] = (
            "filler: every text in the bodies is replaced, line by line, by one of the same length in bytes; names, "
            "numbers and structure are the client's"
        )
    recording.write(client.name, outcome.version, meta)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Where models and logs are: `KEEP`, or one that goes when all is over."""
    kept = os.environ.get("KEEP", "")
    if kept:
        yield Path(kept).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="pharos-clients-", ignore_cleanup_errors=True) as made:
        yield Path(made)


async def run_all(stage: Stage, work: Path) -> list[tuple[Client, Outcome]]:
    """Run all clients, one after the other."""
    results: list[tuple[Client, Outcome]] = []
    for client in chosen():
        outcome, recording = await run(client, stage, work)
        results.append((client, outcome))
        print(outcome.line(client.title), flush=True)
        if IS_RECORDED and outcome.is_whole:
            note(client, outcome, recording, stage)
    return results


async def main() -> int:
    """Run all, print a table."""
    with folder() as work:
        stage = Stage(work)
        missing = stage.missing() or (stage.no_ollama if IS_RECORDED else None)
        if missing is not None:
            print(f"clients cannot be {'recorded' if IS_RECORDED else 'run'} here: {missing}")
            return 1
        async with stage:
            results = await run_all(stage, work)
            faults = stage.faults()
    if IS_RECORDED:
        ran.write(results, stage.versions)
    faults += [f"{client.name}: {step}: {fault}" for client, outcome in results for step, fault in outcome.faults]
    print(*faults, sep="\n")
    done = sum(len(outcome.steps) - len(outcome.faults) for _, outcome in results)
    print(f"{done} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
