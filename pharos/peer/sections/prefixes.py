"""Which target was asked with which beginnings of prompts: hints, so what is lost costs a miss and nothing more.

Entries: `[seed, backend, model, recorded, removed]`, the last two being lists of `[seconds since 1970, hashes]` with
64 bits of each hash, least significant byte first. Another seed means other hashes: such entries are left out.
Forbidden here: numbers of targets on the wire, and text.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

from pharos.core.fleet import Fleet, Target
from pharos.core.prefix import PrefixIndex, PrefixOp
from pharos.core.prefix.chain import SEED
from pharos.peer.section import FRAME, Section

LARGEST_ID: Final = 0xFFFF
"""Of a target in the index."""
WIDTH: Final = 8
MOST_HASHES: Final = 4096
"""Of one operation that is looked at."""
END_OF_TIME: Final = 1e11
"""Seconds since 1970; no clock is that far ahead."""
_SEED: Final = SEED.decode("ascii")

WAIT_S: Final = 600.0
"""What is about a target that is not known here waits so long for it: its engine may be starting, or slow to answer."""
MOST_WAITING: Final = 200_000
"""Hashes that wait, 8 bytes each."""

MOST_TOLD: Final = 10_000
"""Operations and hashes of one tick: to merge them takes their receiver some ten milliseconds, in one step."""
MOST_UNTOLD: Final = 1_000
"""Operations that are left for later ticks before no more are taken from the list of what is to be told."""

Name = tuple[str, str]
"""A backend and a model."""
Names = dict[int, Name]


class Waiting(NamedTuple):
    """What was told of a target that is not known here."""

    until: float
    recorded: list[Any]
    removed: list[Any]
    is_restored: bool
    hashes: int


class Prefixes(Section):
    """The index's own operations out, those of others in."""

    name: ClassVar[str] = "prefix"

    def __init__(self, fleet: Fleet, index: PrefixIndex, wall: Callable[[], float]) -> None:
        """`wall`: seconds since 1970, the clock that instances share."""
        self._fleet = fleet
        self._index = index
        self._wall = wall
        self._untold: list[PrefixOp] = []
        """What is left for the next tick."""
        self._waiting: dict[Name, list[Waiting]] = {}
        self._hashes = 0
        """Those that wait."""

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`."""
        del now
        pending = self._index.pending
        if pending is None or not (len(pending) or self._untold):
            return []
        if len(self._untold) < MOST_UNTOLD:  # else the list fills up, and drops and counts what is too much
            self._untold += pending.take_all()
        weight = told = 0
        for op in self._untold:
            weight += 1 + len(op.hashes)
            if weight > MOST_TOLD and told:
                break
            told += 1
        ops, self._untold = self._untold[:told], self._untold[told:]
        return _written(ops, self._names())

    def again(self, now: float) -> list[Any]:
        """See `Section.again`: nothing; a good moment to see whether targets have come."""
        wall = self._wall()
        for name, waiting in list(self._waiting.items()):
            target = self._target(*name)
            kept = [] if target is not None else [one for one in waiting if one.until > now]
            for one in waiting:
                if target is None:
                    break
                self._take(target, one.recorded, one.removed, wall, is_restored=one.is_restored)
            self._hashes -= sum(one.hashes for one in waiting) - sum(one.hashes for one in kept)
            if kept:
                self._waiting[name] = kept
            else:
                del self._waiting[name]
        return []

    def full(self, now: float) -> Iterator[list[Any]]:
        """See `Section.full`: of operations and hashes together, a frame has as many as there may be entries."""
        del now
        names = self._names()
        ops: list[PrefixOp] = []
        count = 0
        for op in self._index.export(self._wall(), self._fleet.generation_of):
            weight = 1 + len(op.hashes)
            if count + weight > FRAME and ops:
                yield _written(ops, names)
                ops, count = [], 0
            ops.append(op)
            count += weight
        if ops:
            yield _written(ops, names)

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`. What is about targets that are not known here waits for them."""
        del origin
        wall = self._wall()
        for entry in entries:
            match entry:
                case [str(seed), str(backend), str(model), list(recorded), list(removed), *_] if seed == _SEED:
                    target = self._target(backend, model)
                    if target is None:
                        self._keep((backend, model), recorded, removed, now, is_restored=is_restored)
                    else:
                        self._take(target, recorded, removed, wall, is_restored=is_restored)
                case _:
                    continue

    def _keep(self, name: Name, recorded: list[Any], removed: list[Any], now: float, *, is_restored: bool) -> None:
        count = 1 + sum(len(op[1]) // WIDTH for op in recorded if _is_op(op))
        if self._hashes + count <= MOST_WAITING:
            self._hashes += count
            one = Waiting(now + WAIT_S, recorded, removed, is_restored, count)
            self._waiting.setdefault(name, []).append(one)

    def _take(self, target: Target, recorded: list[Any], removed: list[Any], wall: float, *, is_restored: bool) -> None:
        self._do(target, recorded, wall, is_removal=False, is_restored=is_restored)
        self._do(target, removed, wall, is_removal=True, is_restored=is_restored)

    def _do(self, target: Target, ops: list[Any], wall: float, *, is_removal: bool, is_restored: bool) -> None:
        for at, packed in filter(_is_op, ops):
            self._index.take(
                PrefixOp(target.id, _unpacked(packed), float(at), remove=is_removal),
                target.id,
                target.generation,
                wall,
                "restored" if is_restored else "peer",
            )

    def _target(self, name: str, model: str) -> Target | None:
        backend = self._fleet.backends.get(name)
        target = backend.targets.get(model) if backend is not None else None
        return target if target is not None and target.id <= LARGEST_ID else None

    def _names(self) -> Names:
        return {
            target.id: (backend.name, target.model)
            for backend in self._fleet.backends.values()
            for target in backend.targets.values()
        }


def _written(ops: list[PrefixOp], names: Names) -> list[Any]:
    by_target: dict[int, list[Any]] = {}
    for op in ops:
        entry = by_target.get(op.target_id)
        if entry is None:
            name = names.get(op.target_id)
            if name is None:
                continue
            entry = by_target[op.target_id] = [_SEED, *name, [], []]
        entry[4 if op.remove else 3].append([op.used_at, struct.pack(f"<{len(op.hashes)}Q", *op.hashes)])
    return list(by_target.values())


def _is_op(op: Any) -> bool:  # noqa: ANN401 - whatever came
    match op:
        case [int() | float() as at, bytes()]:
            return 0 <= at < END_OF_TIME
        case _:
            return False


def _unpacked(packed: bytes) -> tuple[int, ...]:
    count = min(len(packed) // WIDTH, MOST_HASHES)
    return struct.unpack_from(f"<{count}Q", packed)
