"""What a changed configuration changes in the running parts, all at once. Forbidden here: reading it (config does)."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from pharos import clock
from pharos.app.backends import Backends
from pharos.app.from_config import entries, settings
from pharos.config import aliases, load, show
from pharos.config.credentials import Credentials
from pharos.config.reload import Reloader, Source, State
from pharos.config.schema import Config
from pharos.control.tasks import Tasks
from pharos.core.fleet import Event, Fleet
from pharos.core.sched import Ledger
from pharos.obs.describe import SCHEMA
from pharos.proxy.auth import Keyring
from pharos.proxy.server import Proxy

STATIC = "the configuration"
"""The source of the backends that are listed in it."""


class Parts(msgspec.Struct, frozen=True):
    """What goes by the configuration while it runs."""

    proxy: Proxy
    fleet: Fleet
    ledger: Ledger
    keyring: Keyring
    credentials: Credentials
    backends: Backends


class Reloading:
    """The configuration that is served, and its changes."""

    def __init__(
        self,
        config: Config,
        source: Source | None,
        parts: Parts,
        *,
        on_event: Callable[[Event], None],
        on_state: Callable[[State], None],
    ) -> None:
        """`source`: `None` when it cannot change, because it was made on the command line."""
        self.config = config
        self.adopters: list[Callable[[Config], None]] = []
        """Told of each new configuration after the parts here have it."""
        self._parts = parts
        self.reloader = (
            Reloader(source, config, adopt=self.adopt, on_event=on_event, wall=clock.wall, on_state=on_state)
            if source is not None
            else None
        )

    def __repr__(self) -> str:
        return f"<Reloading {self.reloader!r}>"

    def told(self) -> dict[str, Any] | None:
        """How the configuration stands, as `Parts.config` has it; `None`: it was made on the command line."""
        if self.reloader is None:
            return None
        state = self.reloader.state
        return {
            "file": str(self.reloader.path),
            "in_use_since": state.good_at,
            "last_read_at": state.at,
            "error": state.fault,
            "waits_for_a_restart": list(state.waiting),
        }

    def shown(self) -> dict[str, Any]:
        """The effective configuration, field by field with where each value comes from; secrets are masked."""
        return {"schema": SCHEMA, "fields": [msgspec.to_builtins(row) for row in self._rows()]}

    def _rows(self) -> list[show.Row]:
        if self.reloader is None:
            return show.rows(self.config, {}, None)
        found = show.rows(self.config, self.reloader.places, str(self.reloader.path))
        waiting = self.reloader.state.waiting
        return [
            msgspec.structs.replace(row, origin=f"{row.origin}, which has another value that waits for a restart")
            if any(row.field == field or row.field.startswith(f"{field}.") for field in waiting)
            else row
            for row in found
        ]

    def start(self, tasks: Tasks) -> None:
        """Look after the files from now on."""
        if self.reloader is not None:
            tasks.start("watch the configuration", self.reloader.run)

    def ask(self) -> None:
        """Read it again soon (SIGHUP)."""
        if self.reloader is not None:
            self.reloader.ask()

    def adopt(self, config: Config) -> None:
        """Serve by this from now on. Requests in work end as they began."""
        parts, before = self._parts, self.config
        # Whatever may fail comes first, while nothing has changed yet.
        specs, keys, limits = load.backend_specs(config), entries(config), settings(config)
        self.config = config
        parts.keyring.replace(keys)
        parts.credentials.replace(config.credentials)
        parts.proxy.adopt(limits)
        parts.ledger.limit_queue(config.queue.size, config.queue.max_wait_s, config.queue.absent_wait_s)
        parts.fleet.aliases = aliases.of_fleet(config)
        parts.backends.tell(STATIC, specs)
        if config.log.level != before.log.level:
            logging.getLogger("pharos").setLevel(config.log.level.upper())
        for adopter in self.adopters:
            adopter(config)
