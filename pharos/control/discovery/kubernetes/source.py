"""Backends from annotations: three kinds of object in the namespaces wanted, looked at together after each change.

Forbidden here: how objects are read (`reflector`) and what they mean (`finding`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import aiohttp
import msgspec

from pharos.clock import Clock, monotonic
from pharos.config.schema import Credential, Kubernetes
from pharos.control.discovery.kubernetes.api import Api, DeniedError, Resource, rule
from pharos.control.discovery.kubernetes.finding import Finder, Found, Seen, Subject
from pharos.control.discovery.kubernetes.login import Login, LoginError
from pharos.control.discovery.kubernetes.objects import EndpointSlice, Pod, Service
from pharos.control.discovery.kubernetes.reflector import Reflector
from pharos.control.tasks import LONGEST_DELAY_S, Sleep, Tasks
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.events import Event

PATIENCE_S: Final = 60.0
"""Seconds that a start waits for the first list while the API server does not answer: meanwhile other instances serve,
and one that says it is ready without knowing an engine would refuse everything."""
SETTLE_S: Final = 0.1
"""Seconds after a change before everything is looked at: a rollout is many changes."""
STAGE: Final = "discovery"
CORE: Final = "api/v1"
SLICES: Final = "apis/discovery.k8s.io/v1"


class Trouble(msgspec.Struct, frozen=True):
    """What cannot be read."""

    resource: str
    text: str
    fix: str | None
    """The rule that is missing, where it is one."""


def _nobody(api: Api, subject: Subject, why: str) -> None:
    """For whom a refusal is no news."""


class Hooks(NamedTuple):
    """Who is told what."""

    tell: Callable[[Iterable[BackendSpec]], None]
    """Gets all backends, at first and after each change."""
    credentials: Callable[[], Mapping[str, Credential]]
    """Those configured now."""
    on_event: Callable[[Event], None]
    on_refusal: Callable[[Api, Subject, str], None] = _nobody
    """Told once of each object that is left out, and again when the reason changes."""


class Pace(NamedTuple):
    """Chance and time."""

    rng: random.Random
    clock: Clock = monotonic
    sleep: Sleep = asyncio.sleep


class KubernetesObjects:
    """Watches one cluster. `run` it as a task."""

    def __init__(
        self,
        settings: Kubernetes,
        session: aiohttp.ClientSession,
        enter: Callable[[], Awaitable[Login]],
        hooks: Hooks,
        pace: Pace,
        *,
        own_uid: str | None = None,
    ) -> None:
        """`session`: without a limit on the total time of a request. `enter` finds the way in.

        `own_uid`: of the Pod that Pharos runs in, which is no backend.
        """
        self._settings = settings
        self._session = session
        self._enter = enter
        self._hooks = hooks
        self._pace = pace
        self._finder = Finder(own_uid=own_uid, allow_url=settings.allow_url, pod_logs=settings.pod_logs)
        self._changed = asyncio.Event()
        self._told: list[BackendSpec] | None = None
        self._noted: dict[str, str] = {}
        self._troubled: dict[str, str] = {}
        """What was said of each thing, and is not said again while it is so."""
        self._refused: dict[Subject, str] = {}
        self.api: Api | None = None
        """The way in, once there is one."""
        self.reflectors: list[Reflector[Pod] | Reflector[Service] | Reflector[EndpointSlice]] = []
        self.seen = Seen()
        self.found = Found()
        """What the last look saw, and what it made."""
        self._began = 0.0
        self._no_way_in: str | None = None

    def __repr__(self) -> str:
        return f"<KubernetesObjects {len(self.found.specs)} backends>"

    @property
    def namespaces(self) -> list[str | None]:
        """Those that are looked in; `None`: all."""
        return list(dict.fromkeys(one.resource.namespace for one in self.reflectors))

    @property
    def is_complete(self) -> bool:
        """Whether every kind was listed, or it is known that some will not be soon."""
        is_late = self._pace.clock() - self._began >= PATIENCE_S
        return bool(self.reflectors) and all(
            one.has_listed or isinstance(one.fault, DeniedError) or (one.fault is not None and is_late)
            for one in self.reflectors
        )

    @property
    def troubles(self) -> list[Trouble]:
        """What cannot be read now, and the right that is missing."""
        if self._no_way_in is not None:
            return [Trouble("the API server", f"Kubernetes cannot be asked: {self._no_way_in}", None)]
        return [
            Trouble(
                str(one.resource), str(one.fault), _rule(one.resource) if isinstance(one.fault, DeniedError) else None
            )
            for one in self.reflectors
            if one.fault is not None
        ]

    async def run(self) -> None:
        """Watch until cancelled."""
        login = await self._login()
        self.api = Api(self._session, login)
        self._plan(login)
        self._began = self._pace.clock()
        async with Tasks(lambda restart: self._hooks.on_event(_died(restart.name))) as tasks:
            for one in self.reflectors:
                tasks.start(f"Kubernetes {one.resource}", one.run)
            while True:
                await self._changed.wait()
                await self._pace.sleep(SETTLE_S)
                self._changed.clear()
                await self.look()

    async def _login(self) -> Login:
        """The way in, however long that takes. Without one there are no backends from here, which is told."""
        while True:
            try:
                made = await self._enter()
            except LoginError as error:
                if str(error) != self._no_way_in:
                    self._no_way_in = str(error)
                    self._hooks.on_event(Event(STAGE, "lost", "", "warning", f"Kubernetes cannot be asked: {error}"))
                if self._told is None:
                    self._give([])
                await self._pace.sleep(LONGEST_DELAY_S)
            else:
                self._no_way_in = None
                return made

    def _plan(self, login: Login) -> None:
        self.reflectors.clear()  # this task died and is begun anew
        namespaces: Sequence[str | None]
        namespaces = [None] if self._settings.cluster_wide else (self._settings.namespaces or [login.namespace])
        for namespace in dict.fromkeys(namespaces):
            for group, name, kind in (
                (CORE, "pods", Pod),
                (CORE, "services", Service),
                (SLICES, "endpointslices", EndpointSlice),
            ):
                made: Reflector[Pod] | Reflector[Service] | Reflector[EndpointSlice] = Reflector(  # type: ignore[assignment]
                    self._current, Resource(group, name, namespace), kind,
                    on_change=self._changed.set, rng=self._pace.rng, clock=self._pace.clock, sleep=self._pace.sleep,
                )  # fmt: skip
                self.reflectors.append(made)

    def wake(self) -> None:
        """Look again, since credentials may have changed."""
        if self.reflectors:
            self._changed.set()

    def _current(self) -> Api:
        if self.api is None:
            raise RuntimeError("nobody has logged in")
        return self.api

    async def look(self) -> None:
        """Make backends of what is known now, and tell what is new. Others have their turns between its steps.

        Whoever asks meanwhile is told of the last look, and what changes meanwhile is the next one's.
        """
        self._say_troubles()
        if not self.is_complete:
            return
        seen = self._see()
        for found in self._finder.steps(seen, self._hooks.credentials()):
            if found is None:
                await asyncio.sleep(0)
            else:
                self.seen, self.found = seen, found
        self._say_refusals()
        if self.found.specs != self._told:
            self._give(self.found.specs)

    def _see(self) -> Seen:
        pods: dict[str, Pod] = {}
        services: dict[str, Service] = {}
        slices: dict[str, EndpointSlice] = {}
        blind = set()
        for one in self.reflectors:
            if one.kind is Pod:
                pods |= one.objects
                # Who is only away for a moment is waited for: a Pod may say that it is none, or another port.
                if isinstance(one.fault, DeniedError) or not one.has_listed:
                    blind.add(one.resource.namespace)
            elif one.kind is Service:
                services |= one.objects
            else:
                slices |= one.objects  # type: ignore[arg-type]
        return Seen(pods, services, slices, frozenset(blind))

    def _give(self, specs: list[BackendSpec]) -> None:
        self._told = specs
        self._hooks.tell(specs)

    def _say_refusals(self) -> None:
        for subject, why in self.found.refused.items():
            if self._refused.get(subject) != why:
                self._hooks.on_event(Event(STAGE, "refused", str(subject), "warning", f"{subject} is left out: {why}"))
                if self.api is not None:
                    self._hooks.on_refusal(self.api, subject, why)
        self._refused = self.found.refused
        notes = {str(subject): f"{subject}: {why}" for subject, why in self.found.notes.items()}
        for one in self.reflectors:
            for key in one.unreadable:
                name = f"{one.kind.__name__} {key}"
                notes[name] = f"{name} is left out: the API describes it in a way that is not understood"
        self._say(notes, self._noted, "")
        self._noted = notes

    def _say_troubles(self) -> None:
        texts = {}
        for one in self.troubles:
            fix = f"; it needs {one.fix}" if one.fix is not None else ""
            texts[one.resource] = f"Kubernetes: {one.text}{fix}. What was seen before stays; it is tried again"
        for name in self._troubled:
            if name not in texts:
                self._hooks.on_event(Event(STAGE, "", "", "info", f"Kubernetes: {name} can be read again"))
        self._say(texts, self._troubled, "lost")
        self._troubled = texts

    def _say(self, texts: Mapping[str, str], said: Mapping[str, str], outcome: str) -> None:
        """Say what was not said before of the same thing."""
        for name, text in texts.items():
            if said.get(name) != text:
                self._hooks.on_event(Event(STAGE, outcome, "", "warning", text))


def _rule(resource: Resource) -> str:
    """The rule that lets it be followed."""
    group = "" if resource.group == CORE else resource.group.split("/")[1]
    return rule(group, resource.name, ("get", "list", "watch"), resource.namespace)


def _died(name: str) -> Event:
    return Event("task", "restarted", "", "warning", f"background task {name!r} died and is started again")
