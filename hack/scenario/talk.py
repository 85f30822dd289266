"""What people say: words of several languages, the same for the same seed, and bodies as different clients write them.

Forbidden here: the network.
"""

import json
import random
from typing import Any, Final

import msgspec

from hack.bench.routing.text import WORDS

_RUSSIAN: Final = "вода камень река мост окно письмо утро сад рынок зима история свет дом люди город"
_CHINESE: Final = "水 石 河 桥 窗 信 早 园 市 冬 故事 光 家 人 城"
_CODE: Final = "def return self.value = [for x in range( if not None: import json }; { await fetch( const let"
TONGUES: Final = (WORDS, *(tuple(words.split()) for words in (_RUSSIAN, _CHINESE, _CODE)))
SPREAD: Final = 0.5
"""Of the lengths of messages, in logarithms."""


class Voice:
    """One person: their language, and how their client writes JSON."""

    def __init__(self, seed: int, kind: str, number: int) -> None:
        self.chance = random.Random(f"{seed} {kind} {number}")  # noqa: S311 - a run is the same again
        self.words = TONGUES[number % len(TONGUES)]
        self.escapes = number % 2 == 1
        """Whether their client writes every character beyond ASCII as an escape."""

    def say(self, median: int) -> str:
        """A message of about so many bytes."""
        length = median * self.chance.lognormvariate(0.0, SPREAD)
        said = [f"{self.chance.getrandbits(20):05x}"]
        size = 5.0
        while size < length:
            word = self.chance.choice(self.words)
            said.append(word)
            size += len(word.encode()) + 1
        return " ".join(said)

    def pause(self, mean_s: float) -> float:
        """Seconds until the next turn."""
        return self.chance.expovariate(1 / mean_s)

    def body(self, asked: dict[str, Any]) -> bytes:
        """The request as their client writes it."""
        return json.dumps(asked).encode() if self.escapes else msgspec.json.encode(asked)


def instructions(kind: str, nbytes: int) -> str:
    """What all people of a kind begin with."""
    chance = random.Random(kind)  # noqa: S311 - the same for all of them
    said = [f"You are a {kind} helper."]
    while sum(map(len, said)) + len(said) < nbytes:
        said.append(chance.choice(WORDS))
    return " ".join(said)[:nbytes]
