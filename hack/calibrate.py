"""Measures a real engine for the simulator: seconds per token of prompt and reply, the fixed part, the cost of company.

    python hack/calibrate.py http://gpu-box:8080 MODEL [--slots 4] [--lengths 64,256,512,1024] [--json]

It asks some twenty chats whose prompts nobody has sent before, one at a time and then several at once, and prints what
a fleet file of `pharos sim` takes, beside what `pharos/core/assumptions.py` has. Nobody else should use the engine, or
on a processor the machine, meanwhile. `--unloaded`: the model is not in memory now; the first chat then shows how long
loading takes. Progress goes to standard error.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
from typing import NamedTuple
from urllib.parse import urlsplit

WORDS = "river stone lamp bread cloud garden paper window silver market candle winter orchard bridge thunder basket"
LENGTHS = (64, 256, 512, 1024)
"""Words of the prompts, about as many tokens."""
REPEATS = 3
REPLY = 48
"""Tokens of a reply."""
TIMEOUT_S = 600.0
COMPARED = {
    "prefill_s_per_token": "sim_prefill_s_per_token",
    "decode_s_per_token": "sim_decode_s_per_token",
    "base_s": "base_s",
    "slowdown": "sim_slowdown",
    "load_s": "sim_load_s",
}
"""Figure to the assumption that stands for it."""


class CannotMeasure(Exception):  # noqa: N818 - said as a sentence
    """The engine does not tell enough; the message says what is missing."""


class Chat:
    """One streamed chat: when its tokens came, and what the engine counted."""

    def __init__(self, url: str, model: str, words: int, chance: random.Random) -> None:
        self.first_s = self.whole_s = 0.0
        self.prompt_tokens = self.cached_tokens = self.reply_tokens = 0
        self.fault: str | None = None
        text = f"{chance.getrandbits(60):x} " + " ".join(chance.choice(WORDS.split()) for _ in range(words))
        # ignore_eos: llama.cpp, vLLM and SGLang; others may end sooner, which is counted.
        self._body = json.dumps({
            "model": model, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": REPLY,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": f"{text}\nTell a long story with these words."}],
        })  # fmt: skip
        self._url = url

    def run(self) -> "Chat":
        """Ask, and read to the end; what went wrong is in `fault`."""
        parts = urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        began = time.perf_counter()
        try:
            connection.request("POST", "/v1/chat/completions", self._body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                self.fault = f"{self._url} answers {reply.status}: {reply.read(300).decode(errors='replace')}"
                return self
            for line in reply:
                if line.startswith(b"data: {"):
                    self.take(json.loads(line[6:]), time.perf_counter() - began)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            self.fault = f"{self._url}: {type(fault).__name__}: {fault}"
            return self
        finally:
            connection.close()
        if not self.first_s:
            self.fault = "the reply has no token: nothing can be measured"
        elif not self.prompt_tokens:
            self.fault = "the engine tells no usage in streams: nothing can be measured"
        return self

    def take(self, event: dict[str, object], at: float) -> None:
        """Take what an event shows that came so many seconds after the question."""
        choices = event.get("choices")
        delta = choices[0].get("delta", {}) if isinstance(choices, list) and choices else {}
        if any(delta.get(part) for part in ("content", "reasoning_content", "reasoning")):
            self.first_s = self.first_s or at
            self.whole_s = at
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens, self.reply_tokens = usage["prompt_tokens"], usage["completion_tokens"]
            self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    @property
    def decode_s(self) -> float:
        """Seconds per token after the first."""
        return (self.whole_s - self.first_s) / max(self.reply_tokens - 1, 1)


class Figures(NamedTuple):
    """What was measured; `None`: it was not."""

    slots: int
    prefill_s_per_token: float
    decode_s_per_token: float
    base_s: float
    slowdown: float | None
    load_s: float | None


def line_through(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope and height at 0 of the line with the least squares; neither below 0."""
    mean_x, mean_y = (statistics.fmean(values) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        raise CannotMeasure("all prompts have the same length: --lengths takes at least two")
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return max(slope, 0.0), max(mean_y - slope * mean_x, 0.0)


def together(chats: list[Chat]) -> list[Chat]:
    """Run all at once."""
    threads = [threading.Thread(target=chat.run) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return chats


def figures(first: Chat, alone: list[Chat], company: list[Chat], slots: int, *, unloaded: bool) -> Figures:
    """What the chats show. Raises `CannotMeasure`.

    The fastest of prompts of one length counts: what else ran on the machine makes others slower, never faster.
    """
    for chat in (first, *alone, *company):
        if chat.fault is not None:
            raise CannotMeasure(chat.fault)
    fastest: dict[int, Chat] = {}
    for place, chat in enumerate(alone):
        length = place // REPEATS
        if length not in fastest or chat.first_s < fastest[length].first_s:
            fastest[length] = chat
    prefill, base = line_through([(one.prompt_tokens - one.cached_tokens, one.first_s) for one in fastest.values()])
    decode = statistics.median(one.decode_s for one in alone)
    slowdown = load = None
    if len(company) > 1 and decode:
        slower = statistics.median(one.decode_s for one in company) / decode
        slowdown = max(slower - 1, 0.0) / (len(company) - 1)
    if unloaded:
        load = max(first.first_s - statistics.median(one.first_s for one in alone[:REPEATS]), 0.0)
    return Figures(slots, prefill, decode, base, slowdown, load)


def shown(found: Figures) -> dict[str, float]:
    """What is known, rounded."""
    return {field: round(value, 6) for field, value in found._asdict().items() if value is not None}


def measure(url: str, model: str, slots: int, lengths: list[int], *, unloaded: bool) -> Figures:
    """Ask, and say what came of it. Raises `CannotMeasure`."""
    chance = random.Random()  # noqa: S311 - prompts that differ from those of other runs
    first = Chat(url, model, lengths[0], chance).run()
    alone = []
    for number, words in enumerate([words for words in lengths for _ in range(REPEATS)], 1):
        alone.append(Chat(url, model, words, chance).run())
        if alone[-1].fault is not None:
            break
        print(f"{number}/{len(lengths) * REPEATS}: {alone[-1].prompt_tokens} tokens, {alone[-1].first_s:.2f} s",
              file=sys.stderr)  # fmt: skip
    middle = lengths[min(1, len(lengths) - 1)]
    company = together([Chat(url, model, middle, chance) for _ in range(slots)]) if slots > 1 else []
    return figures(first, alone, company, slots, unloaded=unloaded)


def assumed(field: str) -> float | None:
    """What the assumptions have in a figure's place; `None`: nothing, or they cannot be read from here."""
    try:
        from pharos.core.assumptions import ASSUMPTIONS
    except ImportError:
        return None
    return ASSUMPTIONS[COMPARED[field]].value if field in COMPARED else None


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=4, help="requests that the engine runs at once")
    parser.add_argument(
        "--lengths", default=",".join(map(str, LENGTHS)), help="words of the prompts, about as many tokens"
    )
    parser.add_argument("--unloaded", action="store_true", help="the model is not in memory now")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        lengths = [int(word) for word in asked.lengths.split(",")]
        found = shown(measure(asked.url, asked.model, asked.slots, lengths, unloaded=asked.unloaded))
    except (CannotMeasure, ValueError) as fault:
        sys.exit(f"hack/calibrate.py: {fault}")
    if asked.json:
        print(json.dumps(found))
        return 0
    print(f"- name: measured\n  models: [{{name: {json.dumps(asked.model)}}}]\n  kind: llamacpp  # what it is")
    for field, value in found.items():
        stands = assumed(field)
        print(f"  {field}: {value:g}" + ("" if stands is None else f"  # assumed: {stands:g}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
