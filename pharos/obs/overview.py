"""All that pages tell of a running instance, as plain data, made in small steps so that streams go on.

Forbidden here: HTML, and asking anything that waits.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pharos.clock import Clock
from pharos.core.fleet import Backend, Fleet, State
from pharos.core.prefix.buster import Busted
from pharos.obs import describe, estimates, remarks
from pharos.obs.happened import Happened
from pharos.obs.pulse import Pulse
from pharos.obs.recent import Recent

REQUESTS: Final = 50
"""Last requests that are told of together; `explain` knows all that are remembered."""
EXIT_COMPLETE: Final = 0
EXIT_WRONG: Final = 1
EXIT_UNREACHABLE: Final = 2
UNREACHED: Final = frozenset({State.DOWN, State.EJECTED})

Described = dict[str, Any]
Part = Callable[[], Any]
"""What another part of the program says of itself, as JSON has it; `None`: nothing."""


def nothing() -> None:
    """What a part says that is not there."""


class Parts(msgspec.Struct, kw_only=True, frozen=True):
    """What is told by others. Called when a page is made."""

    phase: Callable[[], str]
    """What the instance is doing: starting, ready or draining."""
    waiting: Callable[[], Mapping[str, int]]
    """How many requests wait for which model."""
    policy: Callable[[], str]
    busted: Callable[[], Sequence[Busted]] = list
    """Whose prompts no cache ever holds."""
    usage: Part = nothing
    """`{today, days, keys}`: a date; `{day, requests, tokens}` of each of 30 days; and of each key `{key, today, month,
    tokens_per_day, tokens_left, rpm, rpm_left}`, whose `today` and `month` have the fields of `core.usage.Count`."""
    peers: Part = nothing
    """A list of other instances, each with the fields of `peer.PeerRecord`."""
    config: Part = nothing
    """How the configuration stands: `{file, in_use_since, last_read_at, error, waits_for_a_restart}`; times in seconds
    since 1970, the last one a list of fields."""
    cluster: Part = nothing
    """What the doctor tells of the Kubernetes cluster in which engines are looked for."""


class Overview:
    """One instance, for whoever asks how it is."""

    def __init__(
        self,
        fleet: Fleet,
        recent: Recent,
        parts: Parts,
        *,
        version: str,
        monotonic: Clock,
        wall: Clock,
        pulse: Pulse | None = None,
        happened: Happened | None = None,
    ) -> None:
        self.fleet = fleet
        self.recent = recent
        self.parts = parts
        self.pulse = pulse if pulse is not None else Pulse()
        self.happened = happened if happened is not None else Happened()
        self._version = version
        self._monotonic = monotonic
        self._wall = wall
        self._began = monotonic()

    def __repr__(self) -> str:
        return f"<Overview {self.fleet!r}>"

    def instance(self) -> Described:
        """Who answers, and how it is."""
        return {
            "schema": describe.SCHEMA,
            "version": self._version,
            "pid": os.getpid(),
            "phase": self.parts.phase(),
            "policy": self.parts.policy(),
            "at": self._wall(),
            "running_for_s": self._monotonic() - self._began,
        }

    def described(self) -> Generator[None, None, Described]:
        """Everything that the status page shows, a backend or a request at each step."""
        self.pulse.keep(self.fleet.backends)
        parts = self.parts
        told = self.instance() | {
            "waiting": dict(parts.waiting()),
            "fallen": sorted(self.fleet.calibration.fallen),
            "cache_busters": [msgspec.to_builtins(one) for one in parts.busted()],
            "pulse": self.pulse.described(self._wall()),
            "events": self.happened.described(),
            "usage": parts.usage(),
            "peers": parts.peers(),
            "config": parts.config(),
        }
        yield
        backends: list[Described] = []
        requests: list[Described] = []
        models: dict[str, Described] = {}
        for backend in list(self.fleet.backends.values()):
            backends.append(self._backend(backend, self._monotonic()))
            self._note_models(models, backends[-1])
            yield
        for done in list(self.recent)[:REQUESTS]:
            requests.append(describe.request(done))
            yield
        return told | {"backends": backends, "models": list(models.values()), "requests": requests}

    def doctor(self) -> Generator[None, None, Described]:
        """What the doctor would find now, without asking any engine: it was asked a moment ago."""
        told = self.instance() | {
            "fallen": sorted(self.fleet.calibration.fallen),
            "cache_busters": [msgspec.to_builtins(one) for one in self.parts.busted()],
        }
        rows = []
        for backend in list(self.fleet.backends.values()):
            rows.append(self._examined(backend, self._monotonic()))
            yield
        return told | {"backends": rows, "kubernetes": self.parts.cluster()}

    def backends(self) -> list[Described]:
        """Every backend in a few words."""
        now = self._monotonic()
        return [self._brief(it, now) for it in self.fleet.backends.values()]

    def brief(self, name: str) -> Described:
        """One of them. Raises `KeyError`."""
        return self._brief(self.fleet.backends[name], self._monotonic())

    def explain(self, request_id: str) -> Described | None:
        """One of the last requests; `None`: it is not remembered."""
        done = next((one for one in self.recent if one.request_id == request_id), None)
        return describe.request(done) if done is not None else None

    # --- inside

    def _brief(self, it: Backend, now: float) -> Described:
        return {
            "name": it.name,
            "url": it.spec.url,
            "up": None if it.state is State.UNKNOWN else it.is_alive(now),
        } | describe.standing(it)

    def _backend(self, it: Backend, now: float) -> Described:
        return (
            describe.backend(it, now)
            | describe.standing(it)
            | {
                "last_full_s": None if it.last_full_at is None else now - it.last_full_at,
                "last_load_s": None if it.last_load_at is None else now - it.last_load_at,
                "ttft_s": self.pulse.of(it.name),
                "targets": [
                    describe.target(target, now) | {"calibration": estimates.described(self.fleet, target)}
                    for target in it.targets.values()
                    if target.listed or target.inflight
                ],
            }
        )

    def _note_models(self, models: dict[str, Described], backend: Described) -> None:
        """Add each of a backend's models, with how good its estimates are there."""
        for target in backend["targets"]:
            one = models.get(target["model"])
            if one is None:
                one = models[target["model"]] = self._model(target["model"])
            where = {"backend": backend["name"], "residency": target["residency"]}
            one["targets"].append(where | target["calibration"])

    def _model(self, model: str) -> Described:
        calibration = self.fleet.calibration
        return {"model": model, "fallen": model in calibration.fallen, "off": calibration.error(model), "targets": []}

    def _examined(self, it: Backend, now: float) -> Described:
        """A row of the doctor's report, with the exit status that it stands for."""
        row = describe.backend(it, now) | describe.standing(it)
        row |= {
            "evidence": None,
            "remarks": list(remarks.of_backend(it, now)),
            "routes": {},
            "feeds": dict(it.feed_faults),
        }
        return row | {"exit_code": _exit_code(it, row)}


def _exit_code(it: Backend, row: Described) -> int:
    if it.state in UNREACHED:
        return EXIT_UNREACHABLE
    is_fine = it.state is State.UP and describe.is_complete(row) and not it.feed_faults
    return EXIT_COMPLETE if is_fine else EXIT_WRONG
