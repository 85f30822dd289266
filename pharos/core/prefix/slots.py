"""Who was asked with a beginning, up to four targets of them in one integer.

An entry of the index must be small, and nothing that the garbage collector looks at: 200,000 of them live for hours.
Forbidden here: state.

From the highest bit to the lowest: when (38 bits, hundredths of a second), target (16), mark (19), source (2). Slots
stand in one integer from the most recently used, in the lowest bits, to the least. Four of 75 bits are an object of
64 bytes; one bit more each makes it 80.
"""

from typing import Final

from pharos.core.prefix.chain import Source

MOST_SLOTS: Final = 4
"""Targets of one entry. A beginning that more targets hold is so common that any of four will do."""
SLOT_BITS: Final = 75
SLOT: Final = (1 << SLOT_BITS) - 1
SOURCES: Final[tuple[Source, ...]] = ("local", "peer", "restored")
SOURCE: Final = 0b11
MARK_AT: Final = 2
MARK: Final = (1 << 19) - 1
TARGET_AT: Final = 21
TARGET: Final = (1 << 16) - 1
USED_AT: Final = 37
TICKS: Final = 100
"""Ticks of a second: the unit of time in slots."""
_USED: Final = (1 << 38) - 1
_GENERATIONS: Final = (1 << 13) - 1
_EPOCHS: Final = (1 << 6) - 1
_TARGET_BITS: Final = TARGET << TARGET_AT
_EPOCH_BITS: Final = _EPOCHS << MARK_AT


def mark(generation: int, epoch: int) -> int:
    """What must be equal for a slot to count: the target's generation, and which target bears the number now.

    Both wrap around, after 8,192 losses of a cache and 64 owners of a number: older slots are long gone by then.
    """
    return (generation & _GENERATIONS) << 6 | (epoch & _EPOCHS)


def is_of(mark_: int, epoch: int) -> bool:
    """Whether a mark is of the target that bears the number now, in whatever generation."""
    return mark_ & _EPOCHS == epoch & _EPOCHS


def ticks(at: float) -> int:
    """A time in seconds as slots hold it; what they cannot hold (from 2057 on) as the nearest.

    Never 0: a slot is no empty place.
    """
    return min(max(round(at * TICKS), 1), _USED)


def pack(target_id: int, mark_: int, used: int, source: Source) -> int:
    """One slot. Raises ValueError for a target whose number is too large."""
    if not 0 <= target_id <= TARGET:
        raise ValueError(f"the number of a target is 0 to {TARGET}, not {target_id}")
    return used << USED_AT | target_id << TARGET_AT | mark_ << MARK_AT | SOURCES.index(source)


def split(value: int) -> list[int]:
    """The slots of an entry, the most recently used first."""
    slots = []
    while value:
        slots.append(value & SLOT)
        value >>= SLOT_BITS
    return slots


def join(slots: list[int]) -> int:
    """An entry of these slots; 0 of none."""
    value = 0
    for slot in reversed(slots):
        value = value << SLOT_BITS | slot
    return value


def put(value: int, slot: int) -> int:
    """The entry with one slot more; the least recently used one goes when there are too many."""
    if not value >> SLOT_BITS and not (value ^ slot) & _TARGET_BITS:
        return _newer(value, slot)
    slots = split(value)
    for place, other in enumerate(slots):
        if not (other ^ slot) & _TARGET_BITS:
            slots[place] = _newer(other, slot)
            break
    else:
        slots.append(slot)
    slots.sort(reverse=True)  # of equal times the rest decides, not who came first: merges come in any order
    return join(slots[:MOST_SLOTS])


def _newer(old: int, new: int) -> int:
    """What is left of two slots of one target: the later one; of two at the same time, the first one's source."""
    if (old ^ new) & _EPOCH_BITS or new >> USED_AT > old >> USED_AT:
        return new
    if new >> USED_AT < old >> USED_AT:
        return old
    return new & ~SOURCE | old & SOURCE


def without(value: int, target_id: int, until: int | None = None) -> tuple[int, int]:
    """The entry without a target's slot, and when that was used, in ticks; -1 when there is no such slot.

    `until`: a slot that was used later stays.
    """
    slots = split(value)
    for place, slot in enumerate(slots):
        if slot >> TARGET_AT & TARGET == target_id:
            used = slot >> USED_AT
            if until is not None and used > until:
                break
            del slots[place]
            return join(slots), used
    return value, -1
