import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import yaml

from pharos.control import inspect, recorder
from pharos.control.fetch import Fetcher
from pharos.control.follow.fault import Fault, FeedError
from pharos.core.engine import plan, recipes
from pharos.core.engine.probe import Page, SideEffect
from pharos.core.fleet.backend import BackendSpec
from tests.core.engine.pages import fetched
from tests.fakes.http import Hang, HttpDouble, Raw, Reply
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.llamacpp_router import FakeRouter
from tests.fakes.ollama import FakeOllama
from tests.fakes.patience import Patient

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SECRET = "sk-very-secret"


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*")]


async def record(
    session: aiohttp.ClientSession, engine: HttpDouble, folder: Path, *, log: recorder.OpenLog | None = None
) -> recorder.Recording:
    spec = BackendSpec(name="gpu", url=engine.url)
    fetcher = Patient(session, engine, clock=lambda: 1000.0)
    found = await inspect.resolve(fetcher, spec)
    return await recorder.record(fetcher, spec, found, folder, now=NOW, log=log)


def table(folder: Path) -> dict[str, list[str]]:
    head, *rows = [line.split("\t") for line in (folder / "paths.tsv").read_text().splitlines()]
    assert head == ["path", "status", "content_type", "file", "ms", "server"]
    return {row[0]: row[1:] for row in rows}


def saved(folder: Path) -> dict[str, bytes]:
    """All files of a recording."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("make", [FakeLlamaCpp, FakeOllama, FakeRouter], ids=["llamacpp", "ollama", "router"])
async def test_a_recording_is_read_exactly_as_the_engine_was(
    session: aiohttp.ClientSession, tmp_path: Path, make: type[FakeLlamaCpp] | type[FakeOllama] | type[FakeRouter]
) -> None:
    async with make() as engine:
        spec = BackendSpec(name="gpu", url=engine.url)
        fetcher = Patient(session, engine, clock=lambda: 1000.0)
        found = await inspect.resolve(fetcher, spec)
        made = await recorder.record(fetcher, spec, found, tmp_path / "new", now=NOW)
    assert found.plan is not None
    assert found.round is not None
    rows = table(made.folder)
    assert made.paths == len(rows)
    there = {
        path: Page(int(row[0]), (made.folder / row[2]).read_bytes(), {"server": row[4]}, sent_at=1.0)
        for path, row in rows.items()
    }
    recipe = recipes.by_kind(found.plan.kind)
    got = fetched(lambda pages: plan.next_paths(recipe, (), pages), there)
    _, read = plan.resolve(recipe, (), got, kind_source="config", logs=False, now=2.0)
    recorded = {key: reading.value for key, reading in read.readings.items()}
    asked = {probe.name for probe in recipe.probes if probe.feed.side_effect in (SideEffect.NONE, SideEffect.HEAVY)}
    seen = {key: reading.value for key, reading in found.round.readings.items() if reading.probe in asked}
    assert recorded == seen
    meta = yaml.safe_load((made.folder / "meta.yaml").read_text())
    assert (meta["kind"], meta["recorded"]) == (found.plan.kind, "2026-11-30")


async def test_only_paths_of_the_list_that_no_engine_minds_are_asked(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    spec = BackendSpec(name="gpu", url=llamacpp.url)
    fetcher = Patient(session, llamacpp, clock=lambda: 1000.0)
    found = await inspect.resolve(fetcher, spec)
    before = len(llamacpp.seen)
    await recorder.record(fetcher, spec, found, tmp_path, now=NOW)
    asked = [seen.path for seen in llamacpp.seen[before:]]
    assert set(asked) == set(recorder.paths_of(recipes.by_kind("llamacpp"), ()))
    assert len(asked) == len(set(asked))
    assert "/slots" not in asked


@pytest.mark.parametrize("kind", list(recipes.RECIPES))
def test_no_recording_of_any_kind_asks_what_wakes_pins_loads_or_drains(kind: str) -> None:
    recipe = recipes.by_kind(kind)
    minded = {
        probe.feed.ask("m")
        for probe in recipe.probes
        if probe.feed.side_effect not in (SideEffect.NONE, SideEffect.HEAVY)
    }
    asked = recorder.paths_of(recipe, ("m",))
    assert not minded & set(asked)
    harmful = ("flush", "unload", "terminate", "release", "profile", "slow_down", "health_generate", "perf_metrics")
    assert not [path for path in asked if any(word in path for word in harmful)]


async def test_secrets_in_bodies_are_masked_and_other_headers_are_not_kept(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    props = json.loads((await Fetcher(session).get(llamacpp.url, "/props", 5.0)).body)
    told = json.dumps({**props, "args": ["--api-key", SECRET]}).encode()
    llamacpp.answers["/props"] = Reply(200, told, {"Server": "llama.cpp", "X-Key": SECRET})
    await record(session, llamacpp, tmp_path)
    assert not [path for path, kept in saved(tmp_path).items() if SECRET.encode() in kept]
    assert b"(masked)" in (tmp_path / "props").read_bytes()


async def test_what_gave_no_answer_is_in_the_table_without_a_file(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    spec = BackendSpec(name="gpu", url=llamacpp.url)
    fetcher = Patient(session, llamacpp, clock=lambda: 1000.0)
    found = await inspect.resolve(fetcher, spec)
    llamacpp.answers["/v1/models"] = Hang()
    await recorder.record(fetcher, spec, found, tmp_path, now=NOW)
    row = table(tmp_path)["/v1/models"]
    assert row[0] == "no answer in time"
    assert not (tmp_path / row[2]).exists()


async def test_a_recording_is_never_overwritten(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    await record(session, llamacpp, tmp_path)
    before = saved(tmp_path)
    with pytest.raises(FileExistsError):
        await record(session, llamacpp, tmp_path)
    assert saved(tmp_path) == before


async def test_what_is_of_unknown_kind_is_not_recorded(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with HttpDouble() as engine:
        with pytest.raises(ValueError, match="gpu"):
            await record(session, engine, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def log_of(*lines: bytes) -> recorder.OpenLog:
    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncIterator[bytes]]:
        async def each() -> AsyncIterator[bytes]:
            for line in lines:
                yield line

        yield each()

    return opened


async def test_the_beginning_of_the_log_is_saved_when_asked_for(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    assert (await record(session, llamacpp, tmp_path / "without")).log_lines is None
    assert not (tmp_path / "without" / "engine.log").exists()
    long = b"x" * (recorder.MAX_LOG_BYTES // 2)
    made = await record(session, llamacpp, tmp_path / "with", log=log_of(b"first", long, long, long))
    assert made.log_lines == 2
    assert (tmp_path / "with" / "engine.log").read_bytes().startswith(b"first\nxxx")


async def test_a_log_that_cannot_be_read_is_an_error_of_its_own(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[AsyncIterator[bytes]]:
        raise FeedError(Fault.NOT_FOUND, "no such file")
        yield

    with pytest.raises(FeedError):
        await record(session, llamacpp, tmp_path, log=broken)


def test_every_request_has_a_file_of_its_own() -> None:
    taken: set[str] = set()
    asks = ["/", "/a/b", "/a_b", "/props?model=x%2Fy", "POST /api/show x/y", "/.well-known/x", "/" + "long" * 99, "/.."]
    names = [recorder._file_name(ask, taken) for ask in asks]
    assert len(set(names)) == len(asks)
    assert all("/" not in name and name.strip(".") and len(name) < 130 for name in names)


async def test_what_the_engine_sends_back_of_our_key_is_nowhere_in_the_recording(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    spec = BackendSpec(name="gpu", url=llamacpp.url, headers=(("X-Key", SECRET),))
    fetcher = Patient(session, llamacpp, clock=lambda: 1000.0)
    models = {"data": [{"id": f"m {SECRET}", "owned_by": "llamacpp"}]}
    llamacpp.answers["/v1/models"] = Reply(200, json.dumps(models).encode(), {"Server": f"llama.cpp {SECRET}"})
    llamacpp.answers["/metrics"] = Reply(200, f"llamacpp:requests_processing 1\n# {SECRET}\n".encode())
    found = await inspect.resolve(fetcher, spec)
    await recorder.record(fetcher, spec, found, tmp_path / "new", now=NOW, log=log_of(f"key {SECRET}".encode()))
    files = saved(tmp_path / "new")
    assert "engine.log" in files
    assert not [path for path, kept in files.items() if SECRET.encode() in kept or SECRET in path]


async def test_names_and_headers_that_are_no_text_are_recorded(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    models = b'{"data": [{"id": "\\t\\u009b", "owned_by": "llamacpp"}]}'
    llamacpp.answers["/v1/models"] = Raw(
        b"HTTP/1.1 200 OK\r\nServer: \xff\r\nContent-Length: %d\r\n\r\n%s" % (len(models), models)
    )
    await record(session, llamacpp, tmp_path / "new")
    assert (tmp_path / "new" / "v1_models").read_bytes() == models
    assert table(tmp_path / "new")["/v1/models"][4] == "\\udcff"


@pytest.mark.parametrize("there", [(), ("new",)])
async def test_a_recording_that_fails_leaves_nothing_behind(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path, there: tuple[str, ...]
) -> None:
    for name in there:
        (tmp_path / name).mkdir()

    @asynccontextmanager
    async def broken() -> AsyncIterator[AsyncIterator[bytes]]:
        raise FeedError(Fault.NOT_FOUND)
        yield

    with pytest.raises(FeedError):
        await record(session, llamacpp, tmp_path / "new" if there else tmp_path / "new" / "deep", log=broken)
    assert names_in(tmp_path) == list(there)


async def test_nothing_is_put_beside_what_came_there_meanwhile(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path
) -> None:
    @asynccontextmanager
    async def meanwhile() -> AsyncIterator[AsyncIterator[bytes]]:
        async def each() -> AsyncIterator[bytes]:
            (tmp_path / "props").write_text("mine")
            yield b"line"

        yield each()

    with pytest.raises(FileExistsError):
        await record(session, llamacpp, tmp_path, log=meanwhile)
    assert saved(tmp_path) == {"props": b"mine"}


async def test_a_recording_of_many_models_takes_its_time_and_says_how_far_it_is(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    pauses: list[float] = []
    told: list[tuple[int, int]] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with FakeOllama(models={f"m{number}:latest": 1 for number in range(40)}) as engine:
        spec = BackendSpec(name="gpu", url=engine.url)
        fetcher = Patient(session, engine, clock=lambda: 1000.0)
        found = await inspect.resolve(fetcher, spec)
        made = await recorder.record(
            fetcher, spec, found, tmp_path, now=NOW, sleep=sleep, on_progress=lambda done, of: told.append((done, of))
        )
    assert made.paths > 40
    assert pauses == [recorder.PAUSE_S] * (made.paths - inspect.MAX_REQUESTS)
    assert told == [(done, made.paths) for done in range(made.paths)]


async def test_a_log_that_does_not_end_is_kept_as_far_as_it_came(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "LOG_S", 0.05)

    @asynccontextmanager
    async def endless() -> AsyncIterator[AsyncIterator[bytes]]:
        async def each() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.Event().wait()

        yield each()

    made = await record(session, llamacpp, tmp_path / "new", log=endless)
    assert made.log_lines == 1
    assert (made.folder / "engine.log").read_bytes() == b"first\n"


@pytest.mark.parametrize("below", ["", "deep"])
async def test_a_file_is_no_place_for_a_recording(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError):
        await record(session, llamacpp, tmp_path / "file" / below)
    assert saved(tmp_path) == {"file": b"mine"}
