"""What engine doubles keep of the prompts that they served: by slot, or in blocks that all share."""

from collections import OrderedDict

from pharos.core.assumptions import ASSUMPTIONS

BYTES_PER_TOKEN = ASSUMPTIONS["bytes_per_token"].value
BLOCK_TOKENS = int(ASSUMPTIONS["cache_block_tokens"].value)


def tokens_of(prompt: str) -> int:
    """Tokens of a prompt, as all doubles count them: at least one."""
    return max(1, round(len(prompt.encode()) / BYTES_PER_TOKEN))


class SlotCache:
    """One prompt for each slot: the last it served. A new request takes the slot with the longest common beginning."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.prompts: list[str] = []
        """Least recently used first."""

    def cached_tokens(self, prompt: str, tokens: int) -> int:
        """Tokens of a prompt that a slot still holds, without the last one, which is always worked on."""
        best = max((_common(prompt, kept) for kept in self.prompts), default=0)
        share = best / len(prompt) if prompt else 0.0
        return min(int(tokens * share), tokens - 1)

    def keep(self, prompt: str) -> None:
        """Hold a prompt; the least recently used one makes room."""
        if prompt in self.prompts:
            self.prompts.remove(prompt)
        self.prompts.append(prompt)
        del self.prompts[: -self.slots]

    def clear(self) -> None:
        self.prompts.clear()


class BlockCache:
    """Whole blocks of prompts, shared by all requests; the least recently used ones make room."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._kept: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def cached_tokens(self, prompt: str, tokens: int) -> int:
        """Tokens in the blocks from the start of a prompt on that are kept; its last token is always worked on."""
        found = 0
        for block in self._blocks(prompt):
            if block not in self._kept:
                break
            found += BLOCK_TOKENS
        return min(found, (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)

    def keep(self, prompt: str) -> None:
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


def _common(one: str, other: str) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length
