"""What an engine's prompt caches hold: a slot its last prompt, or all slots together a pool of blocks.

Forbidden here: time. A prompt is known by the hashes of its beginnings, as in `core/prefix`.
"""

from collections import Counter, OrderedDict
from typing import Final, Protocol

from pharos.core.prefix import Chain
from pharos.sim.asks import Ask


class Cache(Protocol):
    """The caches of one loaded model."""

    def begin(self, ask: Ask) -> tuple[int, int]:
        """Take a free slot for a request: its number, and how many tokens of the prompt it holds already."""
        ...

    def read(self, slot: int, ask: Ask) -> None:
        """The prompt has been processed."""
        ...

    def end(self, slot: int, ask: Ask) -> None:
        """The reply has ended: the slot is free."""
        ...


SIMILAR: Final = 0.1
"""Share of a prompt that a slot must hold to be taken for it: llama-server's `--slot-prompt-similarity`."""
KEPT: Final = 0.5
"""A slot of which a smaller share is kept saves what it holds first: llama-server's own figure."""

WORTH: Final = 0.25
"""A prompt in the host's memory of which less than this share would be kept stays there: llama-server's own figure."""


def is_beginning(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """Whether one prompt begins with another: the hash of its last link stands for all of it."""
    return not short or (len(short) <= len(long) and long[len(short) - 1] == short[-1])


def held_bytes(chain: Chain, held: tuple[int, ...]) -> int:
    """Bytes of a prompt that one with these hashes begins with."""
    low, high = 0, min(len(chain.hashes), len(held))
    while low < high:  # each hash stands for all before it: the first that differs is found by halving
        middle = (low + high) // 2
        if chain.hashes[middle] == held[middle]:
            low = middle + 1
        else:
            high = middle
    return chain.ends[low - 1] if low else 0


class SlotCache:
    """Each slot holds the last prompt that it served; what it gives up may be kept in the host's memory.

    As llama-server does: a request takes the free slot that holds the longest beginning of it, if that is more than a
    tenth of it, else the one that was used longest ago. A slot of which less than half is kept saves its prompt in the
    host's memory before, and gets the best one back from there.
    """

    def __init__(self, slots: int, host_tokens: int = 0) -> None:
        self._free: OrderedDict[int, tuple[int, ...]] = OrderedDict((slot, ()) for slot in range(slots))
        """Free slots and what they hold; the least recently used first."""
        self._tokens: dict[int, int] = {}
        """Tokens of what each slot holds."""
        self._host: OrderedDict[tuple[int, ...], int] = OrderedDict()
        """Prompts that were moved to the host's memory, and their tokens; the oldest first."""
        self._host_tokens = host_tokens
        self._held_there = 0
        self._links = Counter[int]()
        """How many of those have a link."""

    def begin(self, ask: Ask) -> tuple[int, int]:
        """See `Cache.begin`."""
        least = ask.prompt_bytes * SIMILAR
        best, slot = 0, next(iter(self._free))
        for one, held in self._free.items():
            there = held_bytes(ask.chain, held)
            if there > best and there > least:
                best, slot = there, one
        held = self._free.pop(slot)
        if self._host_tokens and ask.tokens_to(best) < self._tokens.get(slot, 0) * KEPT:
            self._save(held, self._tokens[slot])
        if self._host and (not held or ask.tokens_to(best) < self._tokens.get(slot, 0) * KEPT):
            best = max(best, self._get_back(ask, best))
        return slot, ask.tokens_to(best)

    def read(self, slot: int, ask: Ask) -> None:
        """Nobody else can use it before the slot is free."""

    def end(self, slot: int, ask: Ask) -> None:
        """See `Cache.end`."""
        self._free[slot] = ask.after.hashes
        self._tokens[slot] = ask.prompt_tokens + ask.output_tokens

    def _save(self, held: tuple[int, ...], tokens: int) -> None:
        """Keep a prompt in the host's memory, in place of its own beginnings there; the oldest have to go."""
        if not held or held[-1] in self._links:  # its last link stands for all of it: it is there, or begins another
            return
        for other in [other for other in self._host if is_beginning(other, held)]:
            self._drop(other)
        self._host[held] = tokens
        self._links.update(held)
        self._held_there += tokens
        while self._held_there > self._host_tokens:
            self._drop(next(iter(self._host)))

    def _drop(self, held: tuple[int, ...]) -> None:
        self._held_there -= self._host.pop(held)
        for link in held:
            self._links[link] -= 1
            if not self._links[link]:
                del self._links[link]

    def _get_back(self, ask: Ask, here: int) -> int:
        """Move the best prompt from the host's memory into the slot, if it is better than what the slot has."""
        best, found = here, None
        if not self._has_longer(ask, here):
            return best
        for other, tokens in self._host.items():
            there = held_bytes(ask.chain, other)
            if there > best and ask.tokens_to(there) >= tokens * WORTH:
                best, found = there, other
        if found is not None:
            self._drop(found)
        return best

    def _has_longer(self, ask: Ask, here: int) -> bool:
        """Whether a prompt there begins with more of this one."""
        for link, end in zip(ask.chain.hashes, ask.chain.ends, strict=True):
            if end > here:
                return link in self._links
        return False


class SharedCache:
    """Blocks that all requests share, least recently used out first, ends of prompts before their beginnings.

    As vLLM and SGLang do.
    """

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens
        self._blocks: OrderedDict[int, int] = OrderedDict()
        """Hash of a link to its tokens; the least recently used first."""
        self._tokens = 0

    def begin(self, ask: Ask) -> tuple[int, int]:
        """See `Cache.begin`."""
        there = 0
        for link, end in zip(ask.chain.hashes, ask.chain.ends, strict=True):
            if link not in self._blocks:
                break
            there = end
        self._use(ask.chain, ask, known_only=True)
        return 0, ask.tokens_to(there)

    def read(self, slot: int, ask: Ask) -> None:
        """See `Cache.read`: from now on others find it."""
        del slot
        self._use(ask.chain, ask, known_only=False)

    def end(self, slot: int, ask: Ask) -> None:
        """See `Cache.end`."""
        del slot
        self._use(ask.after, ask, known_only=False)

    def _use(self, chain: Chain, ask: Ask, *, known_only: bool) -> None:
        """Count the links of a prompt as used now, the shortest last; the whole prompt unless `known_only`."""
        for place in reversed(range(len(chain.hashes))):
            link = chain.hashes[place]
            if link in self._blocks:
                self._blocks.move_to_end(link)
            elif not known_only:
                tokens = ask.tokens_to(chain.ends[place]) - (ask.tokens_to(chain.ends[place - 1]) if place else 0)
                self._blocks[link] = tokens
                self._tokens += tokens
        while self._tokens > self._capacity:
            self._tokens -= self._blocks.popitem(last=False)[1]
