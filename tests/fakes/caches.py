"""What engine doubles keep of the prompts that they served: by slot, or in blocks that all share."""

from collections import OrderedDict

from pharos.core.assumptions import ASSUMPTIONS

BYTES_PER_TOKEN = ASSUMPTIONS["bytes_per_token"].value
BLOCK_TOKENS = int(ASSUMPTIONS["cache_block_tokens"].value)


def tokens_of(prompt: str) -> int:
    """Tokens of a prompt, as all doubles count them: at least one."""
    return max(1, round(len(prompt.encode()) / BYTES_PER_TOKEN))


SIMILAR = 0.1
"""Share of a prompt that a slot must hold to be taken for it: llama-server's `--slot-prompt-similarity`."""

KEPT = 0.5
"""A slot of which a smaller share is kept saves what it holds first: llama-server's own figure."""
WORTH = 0.25
"""A prompt in the host's memory of which less would be kept stays there: llama-server's own figure."""


class SlotCache:
    """One prompt for each slot: the last it served.

    A new request takes the free slot with the longest common beginning, if that is long enough, else an empty one, else
    the one that was used longest ago; what the slot held is gone then. With `host_bytes` it goes to the host's memory,
    as in llama-server with `--cache-ram`, unless more than half of it stays; a slot may get a prompt back from there.
    """

    def __init__(self, slots: int, host_bytes: int = 0) -> None:
        self.slots = slots
        self.host_bytes = host_bytes
        self.host: list[str] = []
        """Prompts in the host's memory, the oldest first."""
        self.busy = 0
        """Slots that are in use: nobody finds a prompt there."""
        self.prompts: list[str] = []
        """Of free slots, the least recently used first."""

    def begin(self, prompt: str, tokens: int) -> int:
        """Take a slot: tokens of a prompt that it holds already, without the last one, which is always worked on."""
        best, place = 0, -1
        for number, kept in enumerate(self.prompts):
            there = common(prompt, kept)
            if there > best and there > SIMILAR * len(prompt):
                best, place = there, number
        if place < 0 and self.prompts and len(self.prompts) + self.busy >= self.slots:
            best, place = common(prompt, self.prompts[0]), 0
        held = self.prompts.pop(place) if place >= 0 else ""
        if best < KEPT * len(held) or not held:
            best = self._swapped(prompt, held, best)
        self.busy += 1
        share = best / len(prompt) if prompt else 0.0
        return min(int(tokens * share), tokens - 1)

    def _swapped(self, prompt: str, held: str, best: int) -> int:
        """Move what a slot held to the host's memory, and the best prompt from there into it: what it holds then."""
        found = None
        for other in self.host:
            there = common(prompt, other)
            if there > best and there >= WORTH * len(other):
                best, found = there, other
        if found is not None:
            self.host.remove(found)
        if held and self.host_bytes:
            self.host = [*(one for one in self.host if not held.startswith(one)), held]
            while self.host and sum(map(len, self.host)) > self.host_bytes:
                del self.host[0]
        return best

    def end(self, prompt: str, *, is_whole: bool) -> None:
        """Free the slot. It holds a prompt for others only if its request came to its end."""
        self.busy -= 1
        if is_whole:
            self.prompts.append(prompt)

    def clear(self) -> None:
        self.prompts.clear()
        self.host.clear()


class BlockCache:
    """Whole blocks of prompts, shared by all requests; the least recently used ones make room."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._kept: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, prompt: str, tokens: int) -> int:
        """Tokens in the blocks from the start of a prompt on that are kept; its last token is always worked on."""
        found = 0
        for block in self._blocks(prompt):
            if block not in self._kept:
                break
            found += BLOCK_TOKENS
        return min(found, (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)

    def end(self, prompt: str, *, is_whole: bool) -> None:
        """Hold the blocks of a prompt whose request came to its end."""
        if not is_whole:
            return
        for block in self._blocks(prompt):
            self._kept[block] = None
            self._kept.move_to_end(block)
        while len(self._kept) > self.blocks:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()

    @staticmethod
    def _blocks(prompt: str) -> list[str]:
        """The beginnings of a prompt that end with a whole block: what is the same up to there shares the block."""
        size = int(BLOCK_TOKENS * BYTES_PER_TOKEN)
        return [prompt[:end] for end in range(size, len(prompt) + 1, size)]


def common(one: str, other: str) -> int:
    """Characters that two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # halving: whole slices are compared at once
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
