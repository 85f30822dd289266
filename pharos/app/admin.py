"""The admin listener: what `pharos doctor`, `explain` and `backend` ask of this process. Its routes are in obs.

Forbidden here: refusing to serve because it cannot be had; clients come first.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from pharos.app.pages import Pages
from pharos.app.reporting import Reporting
from pharos.core.fleet import Event, Fleet
from pharos.obs.admin import Admin, AdminListener

log = logging.getLogger(__name__)


class Administration:
    """The listener of one instance."""

    def __init__(
        self,
        listen: str,
        pages: Pages,
        fleet: Fleet,
        reporting: Reporting,
        *,
        on_change: Callable[[], None],
        config: Callable[[], dict[str, Any]],
        before_doctor: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`config`: the effective one, secrets masked. `on_change`: a backend may take requests again."""
        self._listen = listen
        self._reporting = reporting
        self._listener = AdminListener(
            Admin(
                pages.overview,
                pages.status,
                fleet,
                on_event=reporting.event,
                on_change=on_change,
                config=config,
                before_page=reporting.count,
                before_doctor=before_doctor,
            )
        )

    def __repr__(self) -> str:
        return f"<Administration {self._listener!r}>"

    @property
    def port(self) -> int:
        """Once it has started; 0 when it could not."""
        return self._listener.port

    async def start(self) -> None:
        """Open it; where it cannot be had, that is said and all else goes on."""
        try:
            await self._listener.start(self._listen)
        except OSError as fault:
            # Its own words repeat the address.
            why = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else str(fault)
            text = (
                f"the admin listener cannot have {self._listen} ({why}): who runs `pharos doctor` here may ask another "
                "Pharos. Give this one another admin_listen."
            )
            self._reporting.event(Event("admin", "", "", "warning", text))
        else:
            log.debug("admin listener on port %d", self.port)

    async def close(self) -> None:
        """Close it at once."""
        await self._listener.close()
