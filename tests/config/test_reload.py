"""The configuration read again: good ones are served as a whole, bad and half-written ones change nothing."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pharos.config.reload import Reloader, Source
from tests.fakes.nobody import as_nobody

if TYPE_CHECKING:
    from pharos.config.schema import Config
    from pharos.core.fleet import Event

WAIT_S = 20.0
"""Longest wait for anything that a test waits for; reached only when the test fails."""
A, B = "a" * 64, "b" * 64
ONE_KEY = f"keys: [{{name: a, sha256: {A}}}]\n"
TWO_KEYS = f"keys: [{{name: a, sha256: {A}}}, {{name: b, sha256: {B}}}]\n"


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class Rig:
    """A file, what is served from it, and what was said. `settle` looks as often as a change needs."""

    def __init__(self, path: Path, text: str, **environ: str) -> None:
        self.path = path
        path.write_text(text, encoding="utf-8")
        self.served: list[Config] = []
        self.events: list[Event] = []
        self.now = 1000.0
        source = Source(path, environ)
        self.it = Reloader(
            source,
            source.read().config,
            adopt=self.served.append,
            on_event=self.events.append,
            wall=lambda: self.now,
        )

    async def put(self, text: str | None) -> "Rig":
        if text is None:
            self.path.unlink()
        else:
            self.path.write_text(text, encoding="utf-8")
        return await self.settle()

    async def settle(self) -> "Rig":
        self.now += 4.0
        for _ in range(3):
            await self.it.look()
        return self

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(event.outcome, event.text) for event in self.events]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pharos.yaml"


async def test_a_changed_file_is_served_and_said_once(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).put(TWO_KEYS)
    assert [len(config.keys) for config in rig.served] == [2]
    assert rig.said == [("applied", f"{path} was read again")]
    assert (rig.it.state.fault, rig.it.state.good_at, rig.it.state.waiting) == (None, 1004.0, ())
    await rig.settle()
    assert len(rig.served) == len(rig.events) == 1


async def test_a_change_between_the_start_and_the_first_look_is_not_missed(path: Path) -> None:
    rig = Rig(path, ONE_KEY)
    write(path, TWO_KEYS)
    assert len((await rig.settle()).served) == 1


async def test_a_file_that_stays_says_nothing(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).settle()
    assert (rig.served, rig.events) == ([], [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("keys: [", "it is not YAML"),
        (f"keys: [{{name: a, sha256: {A[:40]}", "it is not YAML"),
        (f"keys: [{{name: a, sha256: {A[:40]}}}]", "sha256"),
        (f"keys: [{{name: a, sha256: {A}}}, {{name: a, sha256: {B}}}]", "a is the name of keys[0] too"),
        (f"keys: [{{name: a, sha256: {A}, rpm: -1}}]", "must be of at least 1, got -1"),
        (ONE_KEY + "usage: {timezone: Europe/Berlim}\n", "did you mean Europe/Berlin?"),
        ("queue: {sizes: 3}", "did you mean size?"),
        ("", "is empty: is it being written?"),
        ("# nothing yet\n", "the last key is gone, which would let everybody in"),
        ("backends: [{url: http://a}]", "the last key is gone, which would let everybody in"),
        (None, "there is no such file"),
    ],
)
async def test_a_bad_or_half_written_file_changes_nothing_and_is_said_once(
    path: Path, text: str | None, told: str
) -> None:
    rig = await Rig(path, ONE_KEY).put(text)
    await rig.settle()
    assert rig.served == []
    [(outcome, said)] = rig.said
    assert outcome == "refused"
    assert "what was read before is" in said
    assert told in said
    assert rig.it.state.fault is not None
    assert rig.it.state.good_at == 1000.0
    await rig.put(TWO_KEYS)
    assert [len(config.keys) for config in rig.served] == [2]
    assert rig.it.state.fault is None
    assert [outcome for outcome, _ in rig.said] == ["refused", "applied"]


async def test_several_problems_are_told_on_one_line(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).put("listen: x\nqueue: {size: -1}\n")
    [(_, said)] = rig.said
    assert f"{path} has 2 problems: line 1, listen: " in said
    assert "; line 2, queue.size: must be" in said
    assert "\n" not in said


async def test_a_bad_file_that_becomes_as_it_was_is_said_to_be_well_again(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).put("keys: [")
    await rig.put(ONE_KEY)
    assert (rig.served, rig.it.state.fault) == ([], None)
    assert [outcome for outcome, _ in rig.said] == ["refused", "applied"]


async def test_what_needs_a_restart_is_named_until_it_is_taken_back(path: Path) -> None:
    rig = await Rig(path, "listen: :1\n").put("listen: :2\nqueue: {size: 5}\npolicy: least-load\n")
    assert [(config.listen, config.queue.size, config.policy) for config in rig.served] == [(":1", 5, "cost")]
    assert rig.said == [("applied", f"{path} was read again; used only after a restart: listen, policy")]
    assert rig.events[0].level == "warning"
    assert rig.it.state.waiting == ("listen", "policy")
    await rig.put("queue: {size: 5}\nlisten: :1\n")
    assert rig.it.state.waiting == ()
    assert len(rig.served) == 1


async def test_asking_reads_an_unchanged_file_and_says_that_nothing_has_changed(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).settle()
    rig.it.ask()
    await rig.settle()
    assert rig.served == []
    assert rig.said == [("applied", f"{path} was read again: nothing in it has changed")]


async def test_asking_does_not_wait_for_a_changed_file_to_rest(path: Path) -> None:
    rig = await Rig(path, ONE_KEY).settle()
    write(path, TWO_KEYS)
    rig.it.ask()
    await rig.it.look()
    assert len(rig.served) == 1
    await rig.settle()
    assert len(rig.served) == 1


async def test_variables_and_the_command_line_stay_over_the_file_that_is_read_again(path: Path) -> None:
    write(path, "queue: {size: 1}\n")
    served: list[Config] = []
    source = Source(path, {"PHAROS_QUEUE__SIZE": "7"}, lambda config: msgspec.structs.replace(config, listen=":9"))
    it = Reloader(source, source.read().config, adopt=served.append, on_event=lambda _: None, wall=lambda: 0.0)
    write(path, "queue: {size: 2}\nlisten: :2\nretry: {attempts: 0}\n")
    for _ in range(3):
        await it.look()
    assert [(config.queue.size, config.listen, config.retry.attempts) for config in served] == [(7, ":9", 0)]
    assert it.state.waiting == ()


async def test_everybody_may_be_let_in_again_where_that_was_so_before(path: Path) -> None:
    rig = await Rig(path, "queue: {size: 1}\n").put("queue: {size: 2}\n")
    assert [config.keys for config in rig.served] == [()]


async def test_a_file_of_keys_is_watched_too_and_an_emptied_one_changes_nothing(path: Path) -> None:
    keys = path.with_name("keys.yaml")
    write(keys, f"- {{name: b, sha256: {B}}}\n")
    rig = await Rig(path, f"{ONE_KEY}keys_file: {keys}\n").settle()
    assert rig.served == []
    write(keys, "")
    await rig.settle()
    assert rig.served == []
    assert f"{keys}: is empty: is it being written?" in rig.said[0][1]
    write(keys, f"- {{name: b, sha256: {B[:30]}")
    await rig.settle()
    assert rig.served == []
    write(keys, f"- {{name: c, sha256: {B}}}\n")
    await rig.settle()
    assert [[key.name for key in config.keys] for config in rig.served] == [["a", "c"]]


async def test_a_file_of_keys_that_is_named_anew_is_read_and_watched_from_then_on(path: Path) -> None:
    keys = path.with_name("keys.yaml")
    write(keys, f"- {{name: b, sha256: {B}}}\n")
    rig = await Rig(path, ONE_KEY).put(f"{ONE_KEY}keys_file: {keys}\n")
    write(keys, f"- {{name: cc, sha256: {B}}}\n")
    await rig.settle()
    assert [[key.name for key in config.keys] for config in rig.served] == [["a", "b"], ["a", "cc"]]


async def test_while_it_runs_it_looks_by_itself_and_at_once_when_asked(path: Path) -> None:
    write(path, ONE_KEY)
    for asks in (False, True):
        served: list[Config] = []
        source = Source(path)
        it = Reloader(
            source, source.read().config, adopt=served.append, on_event=lambda _: None, wall=lambda: 0.0,
            look_every_s=1000.0 if asks else 0.001,
        )  # fmt: skip
        running = asyncio.create_task(it.run())
        async with asyncio.timeout(WAIT_S):
            while not it.places:
                await asyncio.sleep(0.001)  # a thread is waited for
            write(path, ONE_KEY if asks else TWO_KEYS)
            if asks:
                it.ask()
            while not served:
                await asyncio.sleep(0.001)
        running.cancel()
        assert [len(config.keys) for config in served] == [1 if asks else 2]


async def test_each_state_is_told(path: Path) -> None:
    states = []
    rig = Rig(path, ONE_KEY)
    rig.it._on_state = states.append
    await rig.put("keys: [")
    await rig.put(TWO_KEYS)
    assert [state.fault is None for state in states] == [False, True]


async def test_what_is_no_regular_file_is_refused_and_never_waited_for(path: Path) -> None:
    rig = await Rig(path, "queue: {size: 1}\n").put(None)
    rig.events.clear()
    os.mkfifo(path)
    async with asyncio.timeout(WAIT_S):
        await rig.settle()
        rig.it.ask()
        await rig.settle()
    assert rig.served == []
    [(outcome, said)] = rig.said
    assert outcome == "refused"
    assert "is no regular file" in said
    await rig.put(None)
    await rig.put("queue: {size: 2}\n")
    assert [config.queue.size for config in rig.served] == [2]


async def test_keys_in_what_is_no_regular_file_are_refused_and_never_waited_for(path: Path) -> None:
    keys = path.with_name("keys.yaml")
    os.mkfifo(keys)
    async with asyncio.timeout(WAIT_S):
        rig = await Rig(path, ONE_KEY).put(f"{ONE_KEY}keys_file: {keys}\n")
    assert rig.served == []
    [(_, said)] = rig.said
    assert f"{keys}, keys_file: is no regular file" in said


async def test_a_folder_that_may_not_be_entered_any_more_is_said(open_folder: Path) -> None:
    folder = open_folder / "etc"
    folder.mkdir()
    rig = await Rig(folder / "pharos.yaml", ONE_KEY).settle()
    folder.chmod(0)
    try:
        with as_nobody():
            await rig.settle()
            rig.it.ask()
            await rig.settle()
    finally:
        folder.chmod(0o755)
    assert rig.served == []
    assert [outcome for outcome, _ in rig.said] == ["refused"]
    assert "cannot be read" in rig.said[0][1]


@pytest.mark.parametrize("at_first", [None, "keys: ["])
async def test_a_file_of_keys_is_watched_although_it_was_bad_when_it_was_named(
    path: Path, at_first: str | None
) -> None:
    keys = path.with_name("keys.yaml")
    if at_first is not None:
        write(keys, at_first)
    rig = await Rig(path, ONE_KEY).put(f"{ONE_KEY}keys_file: {keys}\n")
    assert [outcome for outcome, _ in rig.said] == ["refused"]
    write(keys, f"- {{name: b, sha256: {B}}}\n")
    await rig.settle()
    assert [[key.name for key in config.keys] for config in rig.served] == [["a", "b"]]
    assert rig.it.state.fault is None
