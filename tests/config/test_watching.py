"""Files that change under us, in every way that they are changed in."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pharos.config.watching import Files
from tests.fakes.nobody import as_nobody


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pharos.yaml"
    path.write_text("one", encoding="utf-8")
    return path


def watched(*paths: Path) -> Files:
    files = Files(paths)
    assert files.has_changed(), "what was read before may be old already"
    assert not files.has_changed()
    return files


def looks(files: Files) -> list[bool]:
    """What three looks find: a change counts only once nothing has moved between two of them."""
    return [files.has_changed() for _ in range(3)]


class ConfigMap:
    """A folder as the kubelet mounts and swaps it: `file` leads through `..data` to a folder of its own time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0

    @property
    def path(self) -> Path:
        return self._root / "pharos.yaml"

    def put(self, text: str, *, mtime: float | None = None) -> None:
        self._count += 1
        folder = self._root / f"..2026_11_30_{self._count}"
        folder.mkdir()
        (folder / "pharos.yaml").write_text(text, encoding="utf-8")
        if mtime is not None:
            os.utime(folder / "pharos.yaml", (mtime, mtime))
        fresh = self._root / "..data_tmp"
        fresh.symlink_to(folder.name)
        before = (self._root / "..data").readlink() if (self._root / "..data").is_symlink() else None
        fresh.rename(self._root / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/pharos.yaml")
        if before is not None:
            (self._root / before / "pharos.yaml").unlink()
            (self._root / before).rmdir()


def _rewrite(path: Path) -> None:
    path.write_text("three", encoding="utf-8")


def _replace(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text("two", encoding="utf-8")
    fresh.replace(path)


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("two", encoding="utf-8")
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("change", [_rewrite, _replace, _link, Path.unlink])
def test_each_way_to_change_a_file_counts_once_and_only_when_it_rests(
    file: Path, change: Callable[[Path], None]
) -> None:
    files = watched(file)
    change(file)
    assert looks(files) == [False, True, False]


def test_a_file_that_still_moves_is_not_read_yet(file: Path) -> None:
    files = watched(file)
    for text in ("b", "ba", "bac"):
        file.write_text(text, encoding="utf-8")
        assert not files.has_changed()
    assert looks(files) == [True, False, False]


def test_the_same_content_under_another_name_or_time_is_no_change(file: Path) -> None:
    files = watched(file)
    fresh = file.with_name("fresh")
    fresh.write_text("one", encoding="utf-8")
    fresh.replace(file)
    assert looks(files) == [False, False, False]


def test_each_swap_of_a_mounted_config_map_counts_once_even_with_an_older_time(tmp_path: Path) -> None:
    mounted = ConfigMap(tmp_path)
    mounted.put("one", mtime=2000.0)
    files = watched(mounted.path)
    mounted.put("two", mtime=2000.0)
    assert looks(files) == [False, True, False]
    mounted.put("tri", mtime=1000.0)
    assert looks(files) == [False, True, False]
    mounted.put("tri", mtime=3000.0)
    assert looks(files) == [False, False, False]


def test_a_file_that_was_missing_for_a_moment_is_no_change_when_it_is_as_before(file: Path) -> None:
    files = watched(file)
    file.unlink()
    assert not files.has_changed()
    file.write_text("one", encoding="utf-8")
    assert looks(files) == [False, False, False]


def test_every_file_is_watched(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_text("one", encoding="utf-8")
    files = watched(*paths)
    for path in paths:
        path.write_text("three", encoding="utf-8")
        assert looks(files) == [False, True, False]


def test_another_set_of_files_is_read_at_the_next_look(file: Path, tmp_path: Path) -> None:
    files = watched(file)
    files.watch([file])
    assert looks(files) == [False, False, False]
    files.watch([file, tmp_path / "keys.yaml"])
    assert looks(files) == [True, False, False]


def test_what_is_no_regular_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert looks(watched(tmp_path / "pipe")) == [False, False, False]


def test_a_file_that_may_be_read_at_last_counts_although_nothing_was_written(open_folder: Path) -> None:
    file = open_folder / "pharos.yaml"
    file.write_text("one", encoding="utf-8")
    file.chmod(0)
    with as_nobody():
        files = watched(file)
    file.chmod(0o644)
    with as_nobody():
        assert looks(files) == [False, True, False]


def test_a_name_that_no_file_can_have_is_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert looks(watched(tmp_path / "a\0b")) == [False, False, False]
