import gc
import os
from pathlib import Path

import pytest

from pharos.obs import process
from pharos.obs.process import FILES_AT_ONCE, ProcessGauges, open_files

from .reading import Samples, samples


def shown() -> Samples:
    return samples(b"".join(ProcessGauges().pieces()).decode())


def test_the_process_is_shown_under_the_names_that_other_programs_use() -> None:
    told = shown()
    assert told["process_resident_memory_bytes", ()] > 1_000_000
    assert told["process_virtual_memory_bytes", ()] >= told["process_resident_memory_bytes", ()]
    assert told["process_cpu_seconds_total", ()] > 0
    assert 1.5e9 < told["process_start_time_seconds", ()] < 1e11
    assert 0 < told["process_open_fds", ()] < told["process_max_fds", ()]


def test_searches_for_garbage_are_counted() -> None:
    before = shown()["python_gc_collections_total", ("2",)]
    gc.collect()
    assert shown()["python_gc_collections_total", ("2",)] == before + 1


def test_a_file_more_is_counted_as_one_more(tmp_path: Path) -> None:
    before = list(open_files())[-1]
    with (tmp_path / "x").open("w"):
        assert list(open_files())[-1] == before + 1


def test_a_system_that_does_not_tell_their_number_has_them_counted_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * FILES_AT_ONCE + 7
    for number in range(count):
        (tmp_path / str(number)).touch()
    stat = os.stat
    monkeypatch.setattr(process.os, "stat", lambda path: os.stat_result((*stat(path)[:6], 0, *stat(path)[7:10])))
    assert list(open_files(str(tmp_path))) == [FILES_AT_ONCE, 2 * FILES_AT_ONCE, count - 1]


def test_a_system_without_proc_leaves_out_what_it_cannot_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STAT", tmp_path / "none")
    monkeypatch.setattr(process, "open_files", lambda: open_files(str(tmp_path / "none")))
    told = shown()
    assert told["process_cpu_seconds_total", ()] > 0
    assert not {"process_open_fds", "process_resident_memory_bytes"} & {name for name, _ in told}
