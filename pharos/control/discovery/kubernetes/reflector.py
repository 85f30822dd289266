"""Keeps one kind of object as the API server has it: list, watch from there, list again whenever anything was missed.

While the server is away, what was seen stays: stale is better than empty, and whether an engine lives is seen by asking
it. A list that succeeds is the truth, also when it is empty. Forbidden here: knowing what the objects mean.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from pharos.clock import Clock, monotonic
from pharos.control.discovery.kubernetes.api import (
    OPENED,
    Api,
    ApiError,
    DeniedError,
    GoneError,
    Resource,
    UnauthorizedError,
)
from pharos.control.discovery.kubernetes.objects import Change, Head
from pharos.control.tasks import Sleep

WATCH_S: Final = (240, 300)
"""Seconds that one watch is asked to last: drawn anew each time, so that instances do not come all at once."""
LIST_EVERY_S: Final = 300.0
"""Seconds between two whole lists, whatever the watch says: silent watches happen."""
DELAYS_S: Final = (0.8, 30.0)
"""Shortest and longest pause after a fault."""
DENIED_S: Final = (1.0, 60.0)
"""Seconds until a right that is missing is tried again, at first and at most. An API server that has just started
denies everything for some seconds, until it knows the Roles."""
TOO_SOON_S: Final = 1.0
"""A watch that ends, or must begin anew, before this is a fault too, though none was told."""
STEP: Final = 100
"""Objects that are read before streams get a turn."""
HEALTHY_S: Final = 60.0
"""A watch that lasted this long begins with the shortest pause again."""

_head: Final = msgspec.json.Decoder(Head)


T = TypeVar("T")
"""One of the records of `objects`, with `metadata`."""


class Reflector(Generic[T]):
    """One kind in one namespace. `run` it as a task."""

    def __init__(
        self,
        api: Callable[[], Api],
        resource: Resource,
        kind: type[T],
        *,
        on_change: Callable[[], None],
        rng: random.Random,
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`on_change` is told after each list and each change, and when the state of `fault` changes."""
        self._api = api
        self.resource = resource
        self.kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._on_change = on_change
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self._delay = DELAYS_S[0]
        self._denied_s = DENIED_S[0]
        self._version = ""
        self._listed_at: float | None = None
        self._whole = False
        """Whether pages came so slowly that the next list is asked for in one piece."""
        self.objects: dict[str, T] = {}
        """By namespace and name."""
        self.fault: ApiError | None = None
        """Why it cannot be read now."""
        self.has_listed = False
        """Whether a list ever succeeded."""
        self.unreadable: set[str] = set()
        """Objects that are not as the API describes them."""

    def __repr__(self) -> str:
        return f"<Reflector {self.resource}: {len(self.objects)} objects, fault {self.fault}>"

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            began = self._clock()
            fault: ApiError | None = None
            try:
                if self._is_due():
                    await self._list()
                await self._watch()
            except GoneError:
                self._listed_at = None
            except ApiError as error:
                fault = error
                self._fail(error)
            took = self._clock() - began
            if took >= HEALTHY_S:
                self._delay = DELAYS_S[0]
            if isinstance(fault, DeniedError | UnauthorizedError):
                self._listed_at = None
            if not isinstance(fault, DeniedError):
                self._denied_s = DENIED_S[0]
            else:
                wait, self._denied_s = self._denied_s, min(DENIED_S[1], 2 * self._denied_s)
                await self._sleep(wait)
                continue
            if fault is not None or took < TOO_SOON_S:
                await self._pause(fault.retry_s if fault is not None else None)

    def _is_due(self) -> bool:
        return self._listed_at is None or self._clock() - self._listed_at >= LIST_EVERY_S

    async def _pause(self, asked_s: float | None) -> None:
        """Wait, longer each time, by chance: all instances and all kinds meet the same fault at once."""
        shortest, longest = DELAYS_S
        delay, self._delay = self._delay, min(longest, self._rng.uniform(shortest, 3 * self._delay))
        await self._sleep(max(delay, min(asked_s, longest)) if asked_s is not None else delay)

    async def _list(self) -> None:
        found: dict[str, T] = {}
        unreadable: set[str] = set()
        pages, whole, version = 0, self._whole, ""
        listing = self._api().list(self.resource, whole=whole)
        try:
            async with contextlib.aclosing(listing) as listed:
                async for page in listed:
                    pages, version = pages + 1, page.metadata.resource_version
                    for number, item in enumerate(page.items or (), 1):
                        key, _, made = self._decoded(item)
                        if made is not None:
                            found[key] = made
                        elif key:
                            unreadable.add(key)
                        if number % STEP == 0:
                            await asyncio.sleep(0)
        except GoneError:
            self._whole = pages > 0  # later pages are kept for some five minutes
            raise
        self._whole = False
        self._version, self._listed_at = version, self._clock()
        is_news = found != self.objects or unreadable != self.unreadable or not self.has_listed
        self.objects, self.unreadable, self.has_listed = found, unreadable, True
        if is_news:
            self._on_change()

    async def _watch(self) -> None:
        watch = self._api().watch(self.resource, self._version, self._rng.randint(*WATCH_S))
        async with contextlib.aclosing(watch) as changes:
            async for change in changes:
                self._recover()
                if change.type != OPENED:
                    self._apply(change)
                    if self._is_due():
                        return

    def _apply(self, change: Change) -> None:
        key, version, made = self._decoded(change.object)
        if version:
            self._version = version
        if change.type == "BOOKMARK" or not key:
            return
        is_deleted = change.type == "DELETED"
        after = None if is_deleted else made
        is_news = self.objects.get(key) != after or key in self.unreadable
        self.unreadable.discard(key)
        if after is not None:
            self.objects[key] = after
        else:
            self.objects.pop(key, None)
            if not is_deleted:
                self.unreadable.add(key)
        if is_news:
            self._on_change()

    def _decoded(self, item: msgspec.Raw) -> tuple[str, str, T | None]:
        """Key, resourceVersion and, when it can be read, the object."""
        try:
            head = _head.decode(item).metadata
        except (msgspec.DecodeError, RecursionError):
            return "", "", None
        try:
            made: T | None = self._decoder.decode(item)
        except (msgspec.DecodeError, RecursionError):
            made = None
        return head.key, head.resource_version, made

    def _recover(self) -> None:
        if self.fault is not None:
            self.fault = None
            self._on_change()

    def _fail(self, error: ApiError) -> None:
        is_news = str(error) != str(self.fault) or not self.has_listed
        self.fault = error
        if is_news:
            self._on_change()
