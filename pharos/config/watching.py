"""Tells when the content of files has changed: by what their paths lead to now, then by a hash of what is in there.

Kubernetes replaces a whole folder behind a link, editors put another file in place, and some programs write into the
file that is there. So a change counts only once nothing about a file has moved between two looks.

Forbidden here: keeping what is in the files, and judging it.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

MAX_BYTES = 8 * 1024 * 1024
"""Bytes of a file that are hashed: whoever reads it refuses a larger one anyway."""

_Stamp = tuple[str, int, int, int, int, int]


class Files:
    """Some files that are watched. Not for two threads at once."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        """What was read of them before may be old already: the first look always finds a change."""
        self._begin(paths)

    def __repr__(self) -> str:
        return f"<Files {', '.join(map(str, self._paths))}>"

    def watch(self, paths: Sequence[str | Path]) -> None:
        """Watch these from now on; with others than before the next look finds a change."""
        if tuple(map(Path, paths)) != self._paths:
            self._begin(paths)

    def _begin(self, paths: Sequence[str | Path]) -> None:
        self._paths = tuple(map(Path, paths))
        self._stamps = [_stamp(path) for path in self._paths]
        self._seen: list[bytes | None] = []
        self._is_moving = True

    def has_changed(self) -> bool:
        """Whether they have another content since this last said so, and do not move any more."""
        stamps = [_stamp(path) for path in self._paths]
        if stamps != self._stamps:
            self._stamps, self._is_moving = stamps, True
            return False
        if not self._is_moving:
            return False
        self._is_moving = False
        found = [_hash(path) for path in self._paths]
        if found == self._seen:
            return False
        self._seen = found
        return True


def _stamp(path: Path) -> _Stamp | None:
    """What tells one content of a file from another; `None` while there is none to be had."""
    try:
        real = os.path.realpath(path)
        found = path.stat()
    except (OSError, ValueError):  # the latter: no file can have such a name
        return None
    # The time of its last change of any kind also tells that somebody gave the right to read it.
    return real, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _hash(path: Path) -> bytes | None:
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return None
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MAX_BYTES)).digest()
    except (OSError, ValueError):
        return None
