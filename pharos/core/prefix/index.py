"""The prefix index: which target was asked with which beginnings of prompts, most recently used ones kept.

# ops: lookup · record · correct · forget_target · export · take
# plan: three dictionaries from hash to packed slots; the order of a dictionary is the order of use
# warning: two entries' values may be the same object; both the order and the sharing are what makes it cheap

Forbidden here: text of prompts, I/O, and what a match is worth.

**Who has to go.** A beginning that was recorded a second time has shown that it comes back; one that was recorded once
has not. What came once goes first, so that a flood of prompts that nobody sends again pushes out one another and
nothing else. What came again may take three quarters of the room, so that new ones always get their chance.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from pharos.core.prefix import slots
from pharos.core.prefix.chain import Chain, Match, PrefixOp, Source
from pharos.core.prefix.pending import PendingOps

CAPACITY: Final = 200_000
MOST_NEW: Final = 128
"""Links that one request may add. Of a longer new chain the last ones and some between enter, and more when it comes
again: nobody shall take the room of many by one request with thousands of short messages."""
FRAME: Final = 1000
"""Hashes of one exported operation at most."""

GenerationOf = Callable[[int], int | None]
"""Id of a target -> its generation; `None`: it is gone, or shall not count."""


class PrefixIndex:
    """Hashes of beginnings, with up to four targets each."""

    def __init__(self, capacity: int = CAPACITY, *, pending: PendingOps | None = None) -> None:
        """`pending`: where to put what peers shall be told; `None`: there are none."""
        self._capacity = capacity
        self._share = capacity * 3 // 4
        self._step = max(1, capacity // 100)  # the front of a dictionary is found by walking: not for each single entry
        self._again: dict[int, int] = {}
        """Recorded more than once; the least recently used first."""
        self._once: dict[int, int] = {}
        """Recorded once, or long ago; the least recently used first."""
        self._restored: dict[int, int] = {}
        """Out of snapshots, which begin with what matters most: the least recently used LAST. Counts as `_again`."""
        self._tables = (self._again, self._once, self._restored)
        self._epochs: dict[int, int] = {}
        """By number of a target: how often it was given to another one."""
        self.pending = pending

    def __repr__(self) -> str:
        return f"<PrefixIndex {len(self)} of {self._capacity}, {len(self._again)} used again>"

    def __len__(self) -> int:
        return len(self._again) + len(self._once) + len(self._restored)

    # --- asking

    def lookup(self, chain: Chain, generation_of: GenerationOf) -> dict[int, Match]:
        """The longest match of each target that has one. Slots of another generation do not count."""
        again, once, restored = self._tables
        marks: dict[int, int] = {}
        found: dict[int, Match] = {}
        last: int | None = None
        place = len(chain.hashes)
        for link in reversed(chain.hashes):
            place -= 1
            value = again.get(link)
            if value is None:
                value = once.get(link)
                if value is None:
                    value = restored.get(link)
            if value is None or value is last:
                continue
            is_first, last = last is None, value  # links that were recorded together share it: it tells no more
            while value:
                target_id = value >> slots.TARGET_AT & slots.TARGET
                if target_id not in found:
                    mark = marks.get(target_id)
                    if mark is None:
                        marks[target_id] = mark = self._mark(target_id, generation_of)
                    if value >> slots.MARK_AT & slots.MARK == mark:
                        found[target_id] = Match(chain.ends[place], slots.SOURCES[value & slots.SOURCE])
                value >>= slots.SLOT_BITS
            if is_first and last is again.get(chain.hashes[0]):
                break  # whoever was asked with what is between was asked with the first link: nobody was, since
        return found

    # --- learning

    def record(self, chain: Chain, target_id: int, generation: int, now: float, source: Source = "local") -> None:
        """A target holds this prompt from now on. `now`: seconds on a clock that instances share."""
        slot = self._slot(target_id, generation, slots.ticks(now), source)
        hashes = self._enter(self._bounded(chain.hashes), slot)
        if self.pending is not None and source == "local":
            self.pending.add(PrefixOp(target_id, hashes, (slot >> slots.USED_AT) / slots.TICKS))

    def correct(self, chain: Chain, target_id: int, kept_bytes: int = 0) -> None:
        """A target turned out not to hold this prompt beyond its first `kept_bytes`."""
        hashes = [link for link, end in zip(chain.hashes, chain.ends, strict=True) if end > kept_bytes]
        gone, latest = self._take_out(hashes, target_id)
        if self.pending is not None and gone:
            self.pending.add(PrefixOp(target_id, tuple(gone), latest / slots.TICKS, remove=True))

    def forget_target(self, target_id: int) -> None:
        """The number will name another target: none of its slots count any more. They go as their entries do."""
        self._epochs[target_id] = self._epochs.get(target_id, 0) + 1

    # --- sharing

    def export(self, now: float, generation_of: GenerationOf | None = None) -> Iterator[PrefixOp]:
        """All that is known: what was used again first, each part from the most recently used on.

        The index may change between two operations. Slots of the future, and with `generation_of` those of another
        generation, are left out. Ends of the same chain stand in one operation as far as they have the same slots.
        """
        until = slots.ticks(now)
        links = [*reversed(self._again), *self._restored, *reversed(self._once)]
        run: list[int] = []
        shared = 0
        for link in links:
            value = self._value(link)
            if value != shared or len(run) == FRAME:
                yield from self._ops_of(run, shared, until, generation_of)
                run, shared = [], value
            run.append(link)
        yield from self._ops_of(run, shared, until, generation_of)

    def take(self, op: PrefixOp, target_id: int, generation: int, now: float, source: Source) -> None:
        """Do what another instance tells; in which order records come does not matter.

        `target_id`, `generation`: the target's here. A record of the future counts as of now: no peer's clock may make
        entries that never leave.
        """
        used = slots.ticks(op.used_at)
        if op.remove:
            self._take_out(op.hashes, target_id, used)
            return
        slot = self._slot(target_id, generation, min(used, slots.ticks(now)), source)
        if source == "restored":
            self._lay_in(op.hashes, slot)
        else:
            self._enter(op.hashes, slot)

    # --- inside

    def _mark(self, target_id: int, generation_of: GenerationOf) -> int:
        generation = generation_of(target_id)
        return -1 if generation is None else slots.mark(generation, self._epochs.get(target_id, 0))

    def _slot(self, target_id: int, generation: int, used: int, source: Source) -> int:
        return slots.pack(target_id, slots.mark(generation, self._epochs.get(target_id, 0)), used, source)

    def _value(self, link: int) -> int:
        """What is known of a link; 0 for nothing."""
        return next((table[link] for table in self._tables if link in table), 0)

    def _bounded(self, hashes: tuple[int, ...]) -> tuple[int, ...]:
        """The links that may enter: all that are known, and not too many others."""
        if len(hashes) <= MOST_NEW:
            return hashes
        again, once, restored = self._tables
        is_new = [not (link in again or link in once or link in restored) for link in hashes]
        if sum(is_new) <= MOST_NEW:
            return hashes
        half = MOST_NEW // 2
        step = -(-len(hashes) // half)
        last = len(hashes) - half
        return tuple(
            link for place, link in enumerate(hashes) if not is_new[place] or place >= last or place % step == 0
        )

    def _enter(self, hashes: tuple[int, ...], slot: int) -> tuple[int, ...]:
        """Put a slot into links, which are the most recently used then, the shortest last: it shall go last."""
        again, once, restored = self._tables
        before, after = 0, 0
        for link in reversed(hashes):
            value = again.pop(link, None)
            if value is None:
                value = once.pop(link, None)
                if value is None:
                    value = restored.pop(link, None)
                    if value is None:
                        once[link] = slot
                        continue
            if value is not before:
                before, after = value, slots.put(value, slot)
            again[link] = after
        self._trim()
        return hashes

    def _lay_in(self, hashes: tuple[int, ...], slot: int) -> None:
        """Put a slot of a snapshot into links; that is no use of them."""
        for link in hashes:
            table = next((table for table in self._tables if link in table), None)
            if table is None:
                self._restored[link] = slot
            else:
                table[link] = slots.put(table[link], slot)
        self._trim()

    def _trim(self) -> None:
        """Bring everything back to its share."""
        again, once, restored = self._tables
        excess = len(again) + len(restored) - self._share
        while restored and excess > 0:
            restored.popitem()
            excess -= 1
        if excess > 0:
            for link in [*islice(again, excess + self._step)]:
                once[link] = again.pop(link)
        excess = len(self) - self._capacity
        if excess > 0:
            for link in [*islice(once, excess + self._step)]:
                del once[link]

    def _take_out(
        self, hashes: list[int] | tuple[int, ...], target_id: int, until: int | None = None
    ) -> tuple[list[int], int]:
        """Take a target's slot out of links. Those that had it, and when it was last used."""
        gone: list[int] = []
        latest = before = rest = used = 0
        for link in hashes:
            for table in self._tables:
                value = table.get(link)
                if value is not None:
                    break
            else:
                continue
            if value is not before:  # links that were recorded together share it
                before = value
                rest, used = slots.without(value, target_id, until)
            if used < 0:
                continue
            gone.append(link)
            latest = max(latest, used)
            if rest:
                table[link] = rest
            else:
                del table[link]
        return gone, latest

    def _ops_of(
        self, links: list[int], shared: int, until: int, generation_of: GenerationOf | None
    ) -> Iterator[PrefixOp]:
        """What links with the same slots have to tell."""
        for slot in slots.split(shared):
            target_id = slot >> slots.TARGET_AT & slots.TARGET
            used = slot >> slots.USED_AT
            mark = slot >> slots.MARK_AT & slots.MARK
            if generation_of is None:
                is_live = slots.is_of(mark, self._epochs.get(target_id, 0))
            else:
                is_live = mark == self._mark(target_id, generation_of)
            if is_live and used <= until:
                yield PrefixOp(target_id, tuple(links), used / slots.TICKS)
