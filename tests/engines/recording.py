"""Records the states and replies that a live run sees, in the form in which the replays read them.

States are saved by the one recorder of `pharos doctor --record`. A version that was recorded by hand, with another
model and more pages, is never written over: what is recorded here stands beside it, with `-live` in its name.
"""

import json
import platform
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from pharos.control import inspect, recorder
from pharos.control.fetch import Fetcher, new_session
from tests.engines.looking import spec_of
from tests.engines.stand import CACHE, Stand

META = "meta.yaml"
HOW = "make live"
"""How the `how` of a recording made here begins."""
OWN_WORDS = (platform.release(), platform.node())
"""What a machine's replies must not tell."""


class Recordings:
    """Where a run records to; nothing is recorded without a folder."""

    def __init__(self, root: Path | None) -> None:
        self.root = root

    def folder(self, stand: Stand) -> Path | None:
        """Where recordings of this engine go; `None`: nothing is recorded."""
        if self.root is None:
            return None
        folder = self.root / stand.folder / stand.version
        return folder if _is_ours(folder) else folder.with_name(f"{folder.name}-live")

    async def state(self, stand: Stand, name: str, scratch: Path) -> None:
        """Record the state that the engine is in now."""
        folder = self.folder(stand)
        if folder is None:
            return
        fresh = scratch / f"{stand.name}-{name}"
        await record(stand, fresh)
        clean(stand, fresh)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / META).write_text(_meta(stand, fresh / META), encoding="utf-8")
        (fresh / META).unlink()
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.move(fresh, folder / name)

    def reply(self, stand: Stand, name: str, request: tuple[str, dict[str, Any]], told: tuple[int, Any, bytes]) -> None:
        """Record one exchange: `told` is status, headers and body of the answer."""
        folder = self.folder(stand)
        if folder is None:
            return
        streams = folder / "streams"
        streams.mkdir(parents=True, exist_ok=True)
        (path, body), (status, headers, answer) = request, told
        sent = json.dumps({"path": path, "body": body})
        lines = [f"status: {status}", *(f"{key}: {value}" for key, value in headers.items())]
        for suffix, data in (
            ("request.json", sent.encode()),
            ("headers", "\n".join([*lines, ""]).encode()),
            ("response", answer),
        ):
            (streams / f"{name}.{suffix}").write_bytes(cleaned(stand, data))


async def record(stand: Stand, folder: Path) -> None:
    """Have the recorder save what the engine answers now."""
    async with new_session() as session:
        fetcher = Fetcher(session)
        found = await inspect.resolve(fetcher, spec_of(stand))
        await recorder.record(fetcher, spec_of(stand), found, folder, now=datetime.now(UTC))


def cleaned(stand: Stand, data: bytes) -> bytes:
    """Take out what is of this machine only."""
    data = data.replace(str(stand.work).encode(), b"/models").replace(f"{CACHE}/".encode(), b"")
    for word in OWN_WORDS:
        data = data.replace(word.encode(), b"machine") if word else data
    return data


def clean(stand: Stand, folder: Path) -> None:
    """Take out of a recording what is of this machine only."""
    for path in folder.iterdir():
        path.write_bytes(cleaned(stand, path.read_bytes()))


def _is_ours(folder: Path) -> bool:
    """Whether a version's folder was recorded here, or is yet to be."""
    meta = folder / META
    if not meta.exists():
        return True
    return str(yaml.safe_load(meta.read_text(encoding="utf-8")).get("how", "")).startswith(HOW)


def _meta(stand: Stand, told: Path) -> str:
    """Say what a version's recordings are."""
    said = yaml.safe_load(told.read_text(encoding="utf-8"))
    said["version"] = said["version"] if said["version"] is not None else stand.version
    said["notes"] = "CPU, a model of random weights"
    said["how"] = f"{HOW} RECORD=1, stand {stand.name} of tests/engines"
    return yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
