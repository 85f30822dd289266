"""The last pages of some paths, as engines gave them: for lists that clients ask Pharos for, without asking anybody.

Forbidden here: reading what a page means.
"""

from collections.abc import Collection, Iterable
from typing import Final

from pharos.core.engine.probe import Page
from pharos.core.fleet.backend import BackendSpec

OK: Final = 200


class Shelf:
    """One body for each backend and path. A page that is no success leaves the one before it where it is."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = frozenset(paths)
        self._bodies: dict[tuple[str, str], bytes] = {}

    def __repr__(self) -> str:
        return f"<Shelf of {len(self._bodies)} pages>"

    def put(self, spec: BackendSpec, path: str, page: Page) -> None:
        """Keep a page that was fetched, if it is of a path that is wanted."""
        if path in self._paths and page.status == OK:
            place = (spec.name, path)
            if self._bodies.get(place) != page.body:  # the same object as long as nothing changes: it was read already
                self._bodies[place] = page.body

    def last(self, backend: str, path: str) -> bytes | None:
        """The last body of a path, by the name of the backend; `None`: none came yet."""
        return self._bodies.get((backend, path))

    def keep(self, backends: Iterable[str]) -> None:
        """Let the pages of all other backends go."""
        wanted = set(backends)
        self._bodies = {place: body for place, body in self._bodies.items() if place[0] in wanted}
