"""What an engine that caches by slot still holds: the last prompts that ended there, less those in use.

The index knows what an engine was ever asked. A slot keeps only its last prompt, lends it to one request at a time, and
what moves to the host's memory is bounded; so of two chats that begin alike one finds the beginning in use, and an old
prompt is gone though nobody has lost it.

# ops: begin, end, reach · goal: a dispatch costs O(prompts + links of one prompt), a look-up O(log links)
# plan: prompts in the order of their use, and how many of them have each link; a request takes the longest beginning
# warning: how many prompts an engine keeps is learned: a prediction that fails makes it fewer, a surprise one more

Forbidden here: the index, and what a match is worth.
"""

from typing import Final

from msgspec import Struct

from pharos.core.prefix import Chain

MOST_PROMPTS: Final = 64
"""Of one target; an engine with a cache in the host's memory keeps tens."""
MOST_LINKS: Final = 16_384
"""Of all its prompts: eight bytes each, and some 50 in the table of links."""
TAKEN_FROM: Final = 0.1
"""Share of a prompt that a slot must hold to be chosen for it: llama-server's --slot-prompt-similarity."""
SURPRISE: Final = 0.5
"""Share of a prompt that came from the cache though nobody thought so: then the engine keeps more than was thought."""
WRONG_BELOW: Final = 0.5
"""Share of what was thought to be there below which it was not."""


class Prompt(Struct, frozen=True, gc=False):
    """One that an engine holds."""

    links: tuple[int, ...]
    """One at least."""
    reply_bytes: int
    """Of the reply that it made of it, about: the next turn begins with that, and it is held, too."""


class Busy(Struct, frozen=True, gc=False):
    """A request that uses a slot now; what it found there is nobody else's."""

    rank: int | None
    """How many newer ones there were than the prompt that it took; `None`: it took none."""
    depth: int
    """Links that the two have in common: whatever becomes of the request, the slot keeps those."""
    links: tuple[int, ...] = ()
    """None: what it took is nobody else's."""


class Held:
    """The prompts of one target, the one used longest ago first."""

    __slots__ = ("_count", "_links", "_prompts", "generation", "most")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        """The target's, when this began: with another one all of it is gone."""
        self.most = MOST_PROMPTS
        """So many are kept, requests that run included, as far as has been learned."""
        self._prompts: dict[int, Prompt | Busy] = {}
        """By lease, in the order of their use."""
        self._links: dict[int, int] = {}
        """How many of the prompts that are free have a link; others are not in it."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._prompts)

    def __repr__(self) -> str:
        return f"<Held {len(self)} prompts of {self.most}>"

    def reach(self, chain: Chain) -> int:
        """Bytes of a prompt that a free slot, or the host's memory, holds the beginning of; 0 for none."""
        place = self._depth(chain.hashes)
        if not place:
            return 0
        end = chain.ends[place - 1]
        if place < len(chain.ends) - 1:  # what follows may be the reply, and more follows that
            prompt = self._find(chain.hashes, place)[2]
            if len(prompt.links) == place:
                end += min(prompt.reply_bytes, chain.ends[place] - end)
        return end

    def begin(self, lease_id: int, chain: Chain) -> None:
        """A request goes there: it takes what begins it best."""
        place, depth, rank = self._depth(chain.hashes), 0, None
        if place and chain.ends[place - 1] >= chain.ends[-1] * TAKEN_FROM:
            at, key, prompt = self._find(chain.hashes, place)
            rank = len(self._prompts) - 1 - at
            self._drop(key, prompt)
            depth = place
        self._prompts[lease_id] = Busy(rank, depth)
        if len(self._prompts) > self.most:
            self._trim()

    def end(self, lease_id: int, chain: Chain, reply_bytes: int | None) -> int | None:
        """It ended, and its slot holds its prompt; `reply_bytes` `None`: it failed, and may not have been read whole.

        The rank of what it took.
        """
        busy = self._prompts.pop(lease_id, None)
        if not isinstance(busy, Busy):
            return None
        links = chain.hashes if reply_bytes is not None else chain.hashes[: busy.depth]
        if 0 < len(links) <= MOST_LINKS:
            self._prompts[lease_id] = Prompt(links, reply_bytes if reply_bytes is not None else 0)
            counts = self._links
            known = counts.get
            for link in links:
                counts[link] = known(link, 0) + 1
            self._count += len(links)
            if self._count > MOST_LINKS or len(self._prompts) > self.most:
                self._trim()
        return busy.rank

    @staticmethod
    def teaches(predicted: float, cached: int, prompt: int) -> bool:
        """Whether a request had far less than was predicted, or far more, so that `learn` is worth a call."""
        return not predicted * WRONG_BELOW <= cached <= predicted + prompt * SURPRISE

    def learn(self, rank: int | None, slots: int, predicted: float, cached: int, prompt: int) -> None:
        """Hold what was predicted of a request against what its engine told, in tokens. `slots`: it has that many."""
        if rank is not None and cached < predicted * WRONG_BELOW:
            if rank >= slots:
                self.most = max((min(self.most, len(self) + 1) + rank) // 2, slots)
                self._trim()
        elif cached - predicted > prompt * SURPRISE and self.most < MOST_PROMPTS:
            self.most = min(2 * self.most, MOST_PROMPTS)

    # --- inside

    def _depth(self, hashes: tuple[int, ...]) -> int:
        """Links of a prompt that some free one begins with: each link stands for all before it."""
        low, high, links = 0, len(hashes), self._links
        while low < high:
            middle = (low + high) // 2
            if hashes[middle] in links:
                low = middle + 1
            else:
                high = middle
        return low

    def _find(self, hashes: tuple[int, ...], depth: int) -> tuple[int, int, Prompt]:
        """The prompt with so many links of this one, of several the one used longest ago, as engines search.

        With its place among all of them, and its lease.
        """
        place, link = depth - 1, hashes[depth - 1]
        each = enumerate(self._prompts.items())
        at, (key, one) = next(each)
        while len(one.links) <= place or one.links[place] != link or not isinstance(one, Prompt):
            at, (key, one) = next(each)
        return at, key, one

    def _trim(self) -> None:
        while self._links and (len(self._prompts) > self.most or self._count > MOST_LINKS):
            self._drop(*next((key, one) for key, one in self._prompts.items() if isinstance(one, Prompt)))

    def _drop(self, key: int, prompt: Prompt) -> None:
        del self._prompts[key]
        counts = self._links
        for link in prompt.links:
            count = counts[link]
            if count == 1:
                del counts[link]
            else:
                counts[link] = count - 1
        self._count -= len(prompt.links)
