"""The state file is a whole snapshot at every moment, and what it is not is set aside, said, and never written over."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from pharos.core.fleet import Event
from pharos.peer import statefile, wire
from pharos.peer.statefile import StateFile


class File:
    """A state file with what was said of it, and what was read."""

    def __init__(self, path: Path) -> None:
        self.events = list[Event]()
        self.frames: list[str] = []
        self.file = StateFile(str(path), on_event=self.events.append)

    async def load(self) -> str:
        return (await self.file.load(lambda _, frame: self.frames.append(frame.section))).what

    async def save(self, *sections: str) -> bool:
        return await self.file.save(blocks(*sections))

    @property
    def said(self) -> str:
        return "\n".join(event.text for event in self.events)


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def blocks(*sections: str, proto: int = 1) -> AsyncIterator[bytes]:
    yield wire.MAGIC + wire.block(wire.Head(proto=proto, origin="a", at=5.0))
    for name in sections:
        yield wire.block(wire.Frame(section=name))
    yield wire.block(wire.Frame(section="", count=len(sections)))


async def test_what_was_saved_is_loaded_and_readable_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state"
    one = File(path)
    assert await one.load() == "none"
    assert await one.save("x", "y")
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["state"], "nothing is left beside it"
    again = File(path)
    assert await again.load() == "whole"
    assert again.frames == ["x", "y"]
    assert again.events == []


async def test_a_folder_that_is_not_there_is_said_at_the_start_and_once(tmp_path: Path) -> None:
    one = File(tmp_path / "none" / "state")
    assert await one.load() == "none"
    assert "cannot be written (No such file or directory)" in one.said
    assert not await one.save("x")
    assert len(one.events) == 1
    (tmp_path / "none").mkdir()
    assert await one.save("x")
    assert one.events[-1].text.endswith("can be written again")


@pytest.mark.parametrize(
    ("content", "what", "why"),
    [
        (b"notes of somebody", "foreign", "is not a state of Pharos"),
        (b"", "foreign", "is empty"),
        (wire.MAGIC, "foreign", "only the beginning"),
        (wire.MAGIC + wire.block(wire.Head(proto=9, origin="a", at=5.0)), "newer", "speaks protocol 9"),
        (wire.MAGIC + wire.block(wire.Head(proto=1, origin="a", at=5.0)) + wire.block(wire.Frame(section="x")),
         "damaged", "ends in the middle"),
        (wire.MAGIC + wire.block(wire.Head(proto=1, origin="a", at=5.0)) + b"\0\0\0\1\0\0\0\0x",
         "damaged", "damaged block"),
    ],
)  # fmt: skip
async def test_a_foreign_newer_or_torn_file_is_set_aside_and_said(
    tmp_path: Path, content: bytes, what: str, why: str
) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    one = File(path)
    assert await one.load() == what
    assert why in one.said
    aside = tmp_path / f"state.{what}-1"
    assert aside.name in one.said
    assert aside.read_bytes() == content
    assert await one.save("z")
    assert aside.read_bytes() == content
    assert await File(path).load() == "whole"


async def test_what_is_no_regular_file_is_neither_waited_for_nor_written_over(tmp_path: Path) -> None:
    path = tmp_path / "state"
    os.mkfifo(path)
    one = File(path)
    assert await one.load() == "unreadable"
    assert "cannot be read (it is no regular file)" in one.said
    assert not await one.save("x")
    assert path.is_fifo()


async def test_the_good_part_of_a_torn_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "state"
    await File(path).save("x", "y", "z")
    path.write_bytes(path.read_bytes()[:-40])
    one = File(path)
    assert await one.load() == "damaged"
    assert one.frames[:2] == ["x", "y"]


async def test_two_torn_files_are_both_kept_and_at_some_time_no_more_are_made(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for number in range(statefile.MOST_ASIDE):
        path.write_text(f"note {number}")
        assert await File(path).load() == "foreign"
    assert (tmp_path / "state.foreign-1").read_text() == "note 0"
    assert (tmp_path / "state.foreign-2").read_text() == "note 1"
    path.write_text("one more")
    one = File(path)
    assert await one.load() == "foreign"
    assert "remove some" in one.said
    assert not await one.save("x")
    assert path.read_text() == "one more"


async def test_a_file_that_cannot_be_set_aside_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.write_text("note")

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    one = File(path)
    assert await one.load() == "foreign"
    assert "Read-only file system" in one.said
    assert not await one.save("x")
    assert path.read_text() == "note"


async def test_what_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    one = File(path)
    assert await one.load() == "unreadable"
    assert "cannot be read" in one.said
    assert not await one.save("x")


async def test_a_full_disk_is_said_once_leaves_the_old_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    one = File(path)
    assert await one.save("x")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(statefile.os, "fsync", full)
        assert not await one.save("y")
        assert not await one.save("y")
    assert one.said.count("No space left on device") == 1
    assert one.file.trouble
    assert names(tmp_path) == ["state"]
    again = File(path)
    assert await again.load() == "whole"
    assert again.frames == ["x"]
    assert await one.save("z")
    assert "can be written again" in one.said
    assert not one.file.trouble


async def test_a_folder_that_is_not_there_is_said_and_no_more(tmp_path: Path) -> None:
    one = File(tmp_path / "nowhere" / "state")
    assert await one.load() == "none"
    assert not await one.save("x")
    assert "No such file or directory" in one.said


async def test_a_save_that_is_broken_off_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    one = File(path)
    await one.save("x")

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise msgspec.MsgspecError

    with pytest.raises(msgspec.MsgspecError):
        await one.file.save(broken())
    assert names(tmp_path) == ["state"]
    again = File(path)
    assert await again.load() == "whole"


async def test_a_large_state_is_written_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "state"
    one = File(path)

    async def large() -> AsyncIterator[bytes]:
        async for block in blocks(*("x" * 60 for _ in range(20_000))):
            yield block

    assert await one.file.save(large())
    assert path.stat().st_size > 2 * statefile.WRITE_SIZE
    again = File(path)
    assert await again.load() == "whole"
    assert len(again.frames) == 20_000


async def test_what_lies_where_it_is_written_first_is_neither_followed_nor_filled(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "other"
    other.write_text("of somebody else")
    one = File(path)
    await one.load()
    one.file._temporary.symlink_to(other)
    assert await one.save("x")
    assert other.read_text() == "of somebody else"
    assert not path.is_symlink()
    one.file._temporary.touch(0o666)
    one.file._temporary.chmod(0o666)  # whatever the umask
    assert await one.save("x", "y")
    assert path.stat().st_mode & 0o777 == 0o600
