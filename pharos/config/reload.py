"""The configuration, read again while it is served: when one of its files has changed, and when somebody asks for it.

A configuration that is wrong, or looks half written, changes nothing; it is told once.

Forbidden here: knowing what a field is used for. Who serves is told of a good one, as a whole.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from pharos.config import effects, load
from pharos.config.problems import ConfigError, Problem
from pharos.config.schema import Config
from pharos.config.show import COMMAND_LINE
from pharos.config.watching import Files
from pharos.core.fleet.events import Event

LOOK_EVERY_S: Final = 2.0
"""Seconds between two looks at the files: a change is served after two of them."""
STAGE: Final = "reload"


def _as_it_is(config: Config) -> Config:
    return config


class Source(msgspec.Struct, frozen=True):
    """Where a configuration comes from."""

    path: Path
    environ: Mapping[str, str] = {}
    options: Callable[[Config], Config] = _as_it_is
    """What the command line has over the file."""

    def read(self) -> load.Loaded:
        """Read it anew. Raises `ConfigError`."""
        found = load.read(self.path, self.environ, may_be_pipe=False)
        config = self.options(found.config)
        given = dict.fromkeys(effects.changed(found.config, config), COMMAND_LINE)
        return load.Loaded(config, {**found.places, **given})

    def files(self, keys_file: str | None) -> tuple[Path, ...]:
        """The files that it is read from."""
        return (self.path,) if keys_file is None else (self.path, Path(keys_file))


class State(msgspec.Struct, frozen=True):
    """How the last reading went, for people and for the metrics."""

    at: float
    """When, in seconds since 1970; of the start while there was none since."""
    fault: str | None = None
    """Why it is not served; `None`: it is."""
    good_at: float = 0.0
    """When the one that is served was read."""
    waiting: tuple[str, ...] = ()
    """Fields that were changed, and are used only after a restart."""


class Reloader:
    """Looks after one source. `run` it as a task; `ask` makes it look at once."""

    def __init__(
        self,
        source: Source,
        config: Config,
        *,
        adopt: Callable[[Config], None],
        on_event: Callable[[Event], None],
        wall: Callable[[], float],
        on_state: Callable[[State], None] = lambda _: None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """`config`: what is served now. `adopt` is told what to serve instead, all at once."""
        self.config = config
        """What is served."""
        self._source = source
        self._adopt = adopt
        self._on_event = on_event
        self._on_state = on_state
        self._wall = wall
        self._look_every_s = look_every_s
        self._files = Files(source.files(config.keys_file))
        self._asked = asyncio.Event()
        self.state = State(at=wall(), good_at=wall())
        self.places: Mapping[str, str] = {}
        """Where each field was written; known after the first look."""

    @property
    def path(self) -> Path:
        """The file it reads."""
        return self._source.path

    def __repr__(self) -> str:
        return f"<Reloader {self._source.path}: {'good' if self.state.fault is None else 'bad'}>"

    async def run(self) -> None:
        """Look again and again, and at once when asked, until cancelled."""
        while True:
            await self.look()
            try:
                async with asyncio.timeout(self._look_every_s):
                    await self._asked.wait()
            except TimeoutError:
                pass

    def ask(self) -> None:
        """Read everything again soon, changed or not."""
        self._asked.set()

    async def look(self) -> None:
        """Read it again if its files have changed or somebody asked, and have it served if it is good."""
        is_asked = self._asked.is_set()
        self._asked.clear()
        found = await asyncio.to_thread(self._read, is_asked=is_asked)  # a large file takes long to parse
        if isinstance(found, ConfigError):
            self._refuse(found)
        elif found is not None:
            self._take(found, is_asked=is_asked)

    def _read(self, *, is_asked: bool) -> Config | ConfigError | None:
        has_changed = self._files.has_changed()
        if not (is_asked or has_changed):
            return None
        try:
            _refuse_emptiness(self._source.path)
            found = self._source.read()
            config = found.config
            files = self._source.files(config.keys_file)
            self._files.watch(files)
            for path in files[1:]:
                _refuse_emptiness(path)
            _refuse_openness(self.config, config, str(self._source.path))
        except ConfigError as fault:
            if fault.keys_file is not None:  # or else nobody sees that it was mended
                self._files.watch(self._source.files(fault.keys_file))
            return fault
        self.places = found.places
        return config

    def _refuse(self, fault: ConfigError) -> None:
        now = self._wall()
        text = "; ".join(line.strip() for line in str(fault).splitlines()).replace(":; ", ": ")  # on one line
        is_news = text != self.state.fault
        self._become(msgspec.structs.replace(self.state, at=now, fault=text))
        if is_news:
            self._tell("refused", "warning", f"the changed configuration is not used, what was read before is: {text}")

    def _take(self, wanted: Config, *, is_asked: bool) -> None:
        config, waiting = effects.adopted(self.config, wanted)
        is_news = config != self.config or waiting != self.state.waiting or self.state.fault is not None
        if config != self.config:
            self._adopt(config)
            self.config = config
        now = self._wall()
        self._become(State(at=now, good_at=now, waiting=waiting))
        if is_news:
            later = f"; used only after a restart: {', '.join(waiting)}" if waiting else ""
            self._tell("applied", "warning" if waiting else "info", f"{self._source.path} was read again{later}")
        elif is_asked:
            self._tell("applied", "info", f"{self._source.path} was read again: nothing in it has changed")

    def _become(self, state: State) -> None:
        self.state = state
        self._on_state(state)

    def _tell(self, outcome: str, level: str, text: str) -> None:
        self._on_event(Event(STAGE, outcome, "", "warning" if level == "warning" else "info", text))


def _refuse_emptiness(path: Path) -> None:
    """Refuse a file without a byte, which is what one that is being written may look like."""
    try:
        is_empty = path.is_file() and path.stat().st_size == 0
    except OSError:  # whoever reads it says why
        return
    if is_empty:
        raise ConfigError([Problem("", "is empty: is it being written?")], str(path))


def _refuse_openness(running: Config, wanted: Config, source: str) -> None:
    """Refuse what would let everybody in: a file that is being written is empty for a moment."""
    if running.keys and not wanted.keys:
        message = (
            "the last key is gone, which would let everybody in: is it half written? If you mean it, restart Pharos"
        )
        raise ConfigError([Problem("keys", message)], source)
