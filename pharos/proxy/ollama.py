"""Ollama's own routes that Pharos answers itself: what all Ollama backends have together, as one Ollama would say it.

Entries are the engines' own, from the pages that scraping read last: no request waits for an engine here.

Forbidden here: asking an engine, and naming a model that the key may not use.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from pharos.core.fleet import Backend, Fleet, Target
from pharos.core.fleet.names import canonical
from pharos.proxy.auth import Key
from pharos.proxy.errors import PharosFault
from pharos.proxy.table import OLLAMA

RUNNING: Final = b"Ollama is running"
"""What Ollama says at `/`; its clients look for nothing else there."""
TAGS: Final = "/api/tags"
LOADED: Final = "/api/ps"
VERSION: Final = "/api/version"
LISTS: Final = (TAGS, LOADED, VERSION)
PAGES: Final = (TAGS, LOADED)
"""Pages of an engine that the lists are made from."""
MANAGEMENT: Final = frozenset({"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"})
BLOBS: Final = "/api/blobs/"
ACCOUNT: Final = frozenset({"/api/me", "/api/signout", "/api/experimental/aliases"})
"""What belongs to one Ollama, asked for by its command: who is signed in (before a push), and aliases (0.17.4)."""
ACCOUNT_KEYS: Final = "/api/user/keys/"
RETRY_AFTER_S: Final = 5

LastPage = Callable[[str, str], bytes | None]
"""(name of a backend, path) -> the body that it last answered there with 200; `None`: none was read."""

_VERSION: Final = re.compile(r"[0-9]+")


def no_page(_backend: str, _path: str) -> bytes | None:
    """For a data plane without scraping."""
    return None


def manages_models(path: str) -> bool:
    """Whether a path is one that changes which models an engine has, or whose they are."""
    return path in MANAGEMENT or path in ACCOUNT or path.startswith((BLOBS, ACCOUNT_KEYS))


def not_managed(path: str) -> PharosFault:
    """501: Pharos routes requests; models are pulled and deleted at the engines."""
    what = path.removeprefix("/api/").partition("/")[0]
    is_account = path in ACCOUNT or path.startswith(ACCOUNT_KEYS)
    why = "manages neither models nor accounts" if is_account else "does not manage models"
    return PharosFault(501, "not_implemented", f"Pharos {why}, so it has no `{what}`: do it on the backend itself.")


class OllamaLists:
    """Answers lists from the last pages of the engines."""

    def __init__(self, fleet: Fleet, last_page: LastPage) -> None:
        self._fleet = fleet
        self._last_page = last_page
        self._read: dict[tuple[str, str], tuple[bytes, dict[str, dict[str, Any]]]] = {}
        """By backend and path: the page, and its entries by name."""

    def __repr__(self) -> str:
        return f"<OllamaLists of {len(self._read)} pages>"

    def answer(self, path: str, key: Key | None, now: float) -> bytes:
        """The body of a list. `key`: `None` for the version only. Raises PharosFault (503) when no Ollama is up."""
        backends = [b for b in self._fleet.backends.values() if _is_ollama(b) and b.is_up(now)]
        if path == VERSION:
            return msgspec.json.encode({"version": _oldest(backends)})
        found: dict[str, dict[str, Any]] = {}
        for backend in backends:
            for target in backend.targets.values():
                if target.listed and target.model not in found and key is not None and key.allows(target.model):
                    entry = self._entry(target, path)
                    if entry is not None:
                        found[target.model] = entry
        return msgspec.json.encode({"models": list(found.values())})

    def _entry(self, target: Target, path: str) -> dict[str, Any] | None:
        """A model as its engine tells of it, under the clients' name in the engine's own spelling.

        `None` when the engine does not tell of it.
        """
        entry = self._entries(target.backend, path).get(target.served)
        name = target.served if canonical(target.served) == target.model else target.model
        if entry is None:  # in no page yet: it can be asked for all the same
            return {"name": name, "model": name} if path == TAGS else None
        return entry if name == target.served else {**entry, "name": name, "model": name}

    def _entries(self, backend: Backend, path: str) -> dict[str, dict[str, Any]]:
        place = (backend.name, path)
        page = self._last_page(*place)
        if page is None:
            self._read.pop(place, None)
            return {}
        read = self._read.get(place)
        if read is None or read[0] is not page:
            read = self._read[place] = (page, dict(_named(page)))
            self._read = {one: kept for one, kept in self._read.items() if one[0] in self._fleet.backends}
        return read[1]


def _named(page: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries of a page by name; what is no entry is left out."""
    try:
        document = msgspec.json.decode(page)
    except (msgspec.DecodeError, RecursionError):
        return
    entries = document.get("models") if isinstance(document, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str):
            yield name, entry


def _is_ollama(backend: Backend) -> bool:
    return backend.plan is not None and backend.plan.kind in OLLAMA


def _oldest(backends: list[Backend]) -> str:
    """The oldest version among some backends: clients use what a version has. Raises PharosFault for none."""
    if not backends:
        raise PharosFault(503, "service_unavailable", "no Ollama backend is up", retry_after_s=RETRY_AFTER_S)
    known = [b.version for b in backends if b.version is not None]
    return min(known, key=_numbers, default="0.0.0")  # what Ollama says whose builder gave it no version


def _numbers(version: str) -> tuple[list[int], bool]:
    """A version to be compared; one with a suffix (`-rc2`) comes before the same one without."""
    first, dash, _ = version.partition("-")
    return [int(part) for part in _VERSION.findall(first)], not dash
