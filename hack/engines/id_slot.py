"""Would naming a slot save prefill on a llama.cpp server, which chooses slots by itself? See docs/adr/0018-id-slot.md.

    python hack/engines/id_slot.py SERVER MODEL.gguf

Counts the prompt tokens that the engine processed for one set of conversations, sent in one order: with the engine's
own choice of a slot, and with a slot named by each of two rules that a router could follow. Counts, not times: they
are the same on a busy machine.
"""

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

SLOTS: Final = 4
CONTEXT: Final = 8192
"""Tokens of each slot."""
WORDS: Final = (
    "harbor",
    "dawn",
    "signal",
    "reef",
    "bell",
    "hull",
    "gull",
    "mist",
    "tide",
    "rope",
    "deck",
    "sail",
    "knot",
)
TURNS: Final = 6

Choose = Callable[[int], int]
"""Number of a conversation -> the slot to name; -1: the engine's own choice."""


def own(_: int) -> int:
    """Leave it to the engine."""
    return -1


class Sticky:
    """The slot that a conversation had, else the one whose conversation was quiet for longest."""

    def __init__(self) -> None:
        self._slots: OrderedDict[int, int] = OrderedDict()

    def __call__(self, conversation: int) -> int:
        """Choose."""
        slot = self._slots.pop(conversation, None)
        if slot is None:
            free = set(range(SLOTS)) - set(self._slots.values())
            slot = min(free) if free else self._slots.popitem(last=False)[1]
        self._slots[conversation] = slot
        return slot


def hashed(conversation: int) -> int:
    """A fixed slot for each conversation, as routers without memory do it."""
    return conversation % SLOTS


@dataclass
class Talks:
    """Conversations that grow, some of them with a common beginning."""

    count: int
    common: int
    """Words that all begin with."""
    chance: random.Random
    said: dict[int, list[dict[str, str]]] = field(default_factory=dict)

    def words(self, count: int) -> str:
        """So many words."""
        return " ".join(self.chance.choices(WORDS, k=count))

    def turn(self, number: int, system: str) -> list[dict[str, str]]:
        """The next prompt of a conversation."""
        said = self.said.setdefault(number, [{"role": "system", "content": system}])
        said.append({"role": "user", "content": self.words(60)})
        return said


@dataclass(frozen=True)
class Case:
    """One load."""

    name: str
    conversations: int
    common: int
    at_once: int
    flags: tuple[str, ...] = ()


CASES: Final = (
    Case("as many conversations as slots, one at a time", SLOTS, 0, 1),
    Case("the same with a common beginning", SLOTS, 300, 1),
    Case("the same, no memory beside the slots", SLOTS, 300, 1, ("--cache-ram", "0")),
    Case("half as many again", SLOTS * 3 // 2, 300, 1),
    Case("half as many again, no memory beside the slots", SLOTS * 3 // 2, 300, 1, ("--cache-ram", "0")),
    Case("half as many again, four at a time", SLOTS * 3 // 2, 300, 4),
    Case(
        "half as many again, four at a time, no memory beside the slots", SLOTS * 3 // 2, 300, 4, ("--cache-ram", "0")
    ),
)
RULES: Final[dict[str, tuple[Callable[[], Choose], tuple[str, ...]]]] = {
    "its own choice": (lambda: own, ()),
    "with `-sps 0.5`": (lambda: own, ("-sps", "0.5")),
    "with `-sps 0.8`": (lambda: own, ("-sps", "0.8")),
    "named: the one it had": (Sticky, ()),
    "named: a fixed one": (lambda: hashed, ()),
}
"""How a slot is chosen, and flags of the server for it."""


def ask(port: int, messages: list[dict[str, str]], slot: int) -> dict[str, Any]:
    """One chat, without a stream."""
    body = {"messages": messages, "max_tokens": 16, "temperature": 0, "cache_prompt": True, "ignore_eos": True}
    if slot >= 0:
        body["id_slot"] = slot
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:  # noqa: S310 - of the loopback
        answer: dict[str, Any] = json.load(reply)
    return answer


def run(port: int, case: Case, choose: Choose, seed: int) -> tuple[int, int, float]:
    """Tokens of all prompts, those that were processed, and seconds."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    talks = Talks(case.conversations, case.common, chance)
    common = talks.words(case.common)
    systems = [f"{common} You are number {number}." for number in range(case.conversations)]
    order = [number for _ in range(TURNS) for number in chance.sample(range(case.conversations), case.conversations)]
    prompt = processed = 0
    began = time.perf_counter()
    with ThreadPoolExecutor(case.at_once) as pool:
        for at in range(0, len(order), case.at_once):
            some = list(dict.fromkeys(order[at : at + case.at_once]))
            sent = [(number, list(talks.turn(number, systems[number]))) for number in some]
            answers = pool.map(lambda one: ask(port, one[1], choose(one[0])), sent)
            for (number, _), answer in zip(sent, answers, strict=True):
                timings = answer["timings"]
                prompt += timings["prompt_n"] + timings["cache_n"]
                processed += timings["prompt_n"]
                text = answer["choices"][0]["message"]["content"] or "yes"
                talks.said[number].append({"role": "assistant", "content": text})
    return prompt, processed, time.perf_counter() - began


def started(server: str, model: str, port: int, flags: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    """A server that answers."""
    command = [server, "-m", model, "--port", str(port), "--host", "127.0.0.1", "-np", str(SLOTS)]
    command += ["-c", str(SLOTS * CONTEXT), "-t", "1", "-ngl", "0", *flags]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return child
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    child.kill()
    raise SystemExit("the server did not start")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=18399)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(f"| {SLOTS} slots | " + " | ".join(RULES) + " |\n|---|" + "---|" * len(RULES))
    for case in CASES:
        cells = []
        for make, flags in RULES.values():
            child = started(chosen.server, chosen.model, chosen.port, (*case.flags, *flags))
            try:
                prompt, processed, took = run(chosen.port, case, make(), chosen.seed)
            finally:
                child.terminate()
                child.wait()
            cells.append(f"{processed / prompt:.0%} of {prompt:,}, {took:.1f} s")
        print(f"| {case.name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
