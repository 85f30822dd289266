"""Saves what an engine answers, in the form in which tests replay it: the one recorder.

It asks only paths on the list of the detected kind that no engine minds, and masks what must not be kept.

Forbidden here: asking for anything else, overwriting a recording, and a log that was not asked for.
"""

import asyncio
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml

from pharos.config.credentials import Credentials
from pharos.control.fetch import Fetcher
from pharos.control.inspect import MAX_REQUESTS, Inspection
from pharos.control.tasks import Sleep
from pharos.core.engine import recipes
from pharos.core.engine.asking import feeds_of
from pharos.core.engine.knownkeys import KnownKeys
from pharos.core.engine.probe import Page, SideEffect
from pharos.core.engine.recipe import Recipe
from pharos.core.fleet.backend import BackendSpec
from pharos.core.signals import BACKEND, Signal

TIMEOUT_S: Final = 10.0
"""A person waits, and would rather have all of it."""
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
"""Of a log the beginning is kept, where engines tell how they were started."""
LOG_S: Final = 5.0
"""Seconds for a log, which may be long, or have no lines."""
PAUSE_S: Final = 0.5
"""Before each request beyond as many as a visit makes: engines with hundreds of models have other work."""
_SAFE: Final = frozenset({SideEffect.NONE, SideEffect.HEAVY})

OpenLog = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
Progress = Callable[[int, int], None]
"""Told how many of how many requests are done."""


class Recording(msgspec.Struct, frozen=True):
    """What was saved."""

    folder: Path
    paths: int
    """Paths that were asked for."""
    log_lines: int | None
    """`None`: no log was asked for."""


def paths_of(recipe: Recipe, models: tuple[str, ...]) -> tuple[str, ...]:
    """The requests that a recording of this kind makes, those about single models included."""
    asks: list[str] = []
    for feed in feeds_of(recipe.probes).values():
        if feed.side_effect in _SAFE:
            asks += [feed.ask(model) for model in models] if feed.per_model else [feed.ask()]
    return tuple(dict.fromkeys([*asks, *recipe.record_paths]))


def keys_of(credentials: Credentials, spec: BackendSpec) -> KnownKeys:
    """What a backend is shown, and must not be seen in what it says."""
    return KnownKeys(value for _, value in credentials.headers_for(spec))


async def record(
    fetcher: Fetcher,
    spec: BackendSpec,
    found: Inspection,
    folder: Path,
    *,
    now: datetime,
    log: OpenLog | None = None,
    on_progress: Progress | None = None,
    sleep: Sleep = asyncio.sleep,
) -> Recording:
    """Save every path of the detected kind under `folder`, one request after the other; all of it or nothing.

    `now` is written down as the time of the recording. `log`: opens the engine's log, whose beginning is saved as well;
    it may hold prompts. Raises `FileExistsError` when there is anything in the folder, another `OSError` when nothing
    can be written, `FeedError` when the log cannot be read, and `ValueError` for a backend of no known kind.
    """
    if found.plan is None:
        raise ValueError(f"{spec.name}: {found.why}")
    asks = paths_of(recipes.by_kind(found.plan.kind), _models(found))
    with _unfinished(folder) as unfinished:
        keys = keys_of(fetcher.credentials, spec)
        pages: list[tuple[str, Page]] = []
        for done, ask in enumerate(asks):
            if done >= MAX_REQUESTS:
                await sleep(PAUSE_S)
            if on_progress is not None:
                on_progress(done, len(asks))
            pages.append((ask, await fetcher.ask(spec, ask, TIMEOUT_S)))
        _save(unfinished, pages, _meta(found, now, keys), keys)
        lines = await _save_log(log, unfinished / "engine.log", keys) if log is not None else None
    return Recording(folder, len(asks), lines)


@contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """Give a new folder whose files come to be in `folder` at the end, unless something fails: then nothing is left."""
    is_there = folder.exists()
    if is_there and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    made = [each for each in folder.parents if not each.exists()]
    unfinished = (folder if is_there else folder.parent) / f".{uuid.uuid4().hex}.part"
    try:
        _make(folder.parent)
        unfinished.mkdir()
        yield unfinished
        _finish(unfinished, folder, is_there=is_there)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def _make(folder: Path) -> None:
    """Have a folder there. Raises `NotADirectoryError` when something else is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(f"{folder} is not a folder") from None


def _finish(unfinished: Path, folder: Path, *, is_there: bool) -> None:
    """Put a recording in its place: nothing may have come there meanwhile."""
    if not is_there:
        unfinished.rename(folder)  # not onto a folder that holds anything
        return
    if any(each != unfinished for each in folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    for each in list(unfinished.iterdir()):
        each.rename(folder / each.name)
    unfinished.rmdir()


def _save(folder: Path, pages: Sequence[tuple[str, Page]], meta: str, keys: KnownKeys) -> None:
    files: set[str] = set()
    rows = ["path\tstatus\tcontent_type\tfile\tms\tserver"]
    for ask, page in pages:
        shown = keys.text(ask)
        name = _file_name(shown, files)
        rows.append("\t".join(_row(shown, page, name, keys)))
        if page.status is not None:
            (folder / name).write_bytes(keys.body(page.body))
    _write(folder / "paths.tsv", "\n".join(rows) + "\n")
    _write(folder / "meta.yaml", meta)


def _write(path: Path, text: str) -> None:
    """Write text in which there may be what is none: headers and names are an engine's own."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def _models(found: Inspection) -> tuple[str, ...]:
    reading = found.round.readings.get((Signal.MODELS, BACKEND)) if found.round is not None else None
    return reading.value if reading is not None and isinstance(reading.value, tuple) else ()


def _row(ask: str, page: Page, name: str, keys: KnownKeys) -> tuple[str, ...]:
    """One line of the table. Only two headers are kept: others may hold what is nobody's business."""
    status = str(page.status) if page.status is not None else (page.fault.value if page.fault is not None else "-")
    kept = [_one_line(keys.plain(page.headers.get(header, ""))) for header in ("content-type", "server")]
    return _printable(ask), status, kept[0], name, f"{page.took_s * 1000:.1f}", kept[1]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _printable(ask: str) -> str:
    """A request as one field of the table, whatever is in the name of its model."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in ask)


def _file_name(ask: str, taken: set[str]) -> str:
    """A file name for a request that no other one of this recording has."""
    plain = re.sub(r"[^A-Za-z0-9.-]+", "_", ask).strip("_")[:120]
    plain = plain if plain.strip(".") else "root"
    name, count = plain, 1
    while name in taken:
        count += 1
        name = f"{plain}_{count}"
    taken.add(name)
    return name


async def _save_log(log: OpenLog, path: Path, keys: KnownKeys) -> int:
    count = size = 0
    with path.open("xb") as file, suppress(TimeoutError):
        async with asyncio.timeout(LOG_S), log() as lines:
            async for line in lines:
                size += len(line) + 1
                if size > MAX_LOG_BYTES:
                    break
                shown = keys.line(line.decode("utf-8", "surrogateescape"))
                file.write(shown.encode("utf-8", "surrogateescape") + b"\n")
                count += 1
    return count


def _meta(found: Inspection, now: datetime, keys: KnownKeys) -> str:
    plan = found.plan
    version = plan.version if plan is not None else None
    told = {
        "kind": plan.kind if plan is not None else None,
        "version": keys.plain(version) if version is not None else None,
        "model": keys.plain(", ".join(_models(found))),
        "recorded": now.date().isoformat(),
        "notes": "",
        "how": "pharos doctor --record",
    }
    return yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
