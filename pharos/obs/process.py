"""What the system says of this process: processor time, memory, open files; under the names that other programs use.

Forbidden here: waiting, and listing thousands of open files at once (5 ms of them, with 2,000 streams open).
"""

import gc
import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pharos.obs.exposition import Gauge, Labels, Tally

FILES = "/proc/self/fd"
FILES_AT_ONCE = 500
"""Open files that are counted before others get their turn, where the system does not tell their number."""
_STAT = Path("/proc/self/stat")
_UTIME, _STIME, _START, _VSIZE, _RSS = 11, 12, 19, 20, 21
"""Fields of that file, behind the name of the program: proc(5)."""


class ProcessGauges:
    """What is read of the process at each scrape. Where there is no `/proc`, most of it is left out."""

    def __init__(self) -> None:
        self._cpu = Tally("process_cpu_seconds_total", "Processor time used, in all")
        self._resident = Gauge("process_resident_memory_bytes", "Memory held")
        self._virtual = Gauge("process_virtual_memory_bytes", "Memory addressed")
        self._started = Gauge("process_start_time_seconds", "When the process was started, in seconds since 1970")
        self._files = Gauge("process_open_fds", "Open files and connections")
        self._most_files = Gauge("process_max_fds", "The most there may be")
        self._garbage = Tally(
            "python_gc_collections_total", "Searches for garbage in cycles, by how far they looked", ("generation",)
        )

    @property
    def families(self) -> tuple[Gauge, ...]:
        """All of them."""
        return (
            *(self._cpu, self._resident, self._virtual, self._started),
            *(self._files, self._most_files, self._garbage),
        )

    def pieces(self) -> Iterator[bytes]:
        """All of them as text."""
        yield from self._told()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            yield self._most_files.piece({(): limit})
        counts: dict[Labels, float] = {(str(at),): one["collections"] for at, one in enumerate(gc.get_stats())}
        yield self._garbage.piece(counts)
        count = None
        for counted in open_files():
            count = counted
            yield b""
        if count is not None:
            yield self._files.piece({(): count})

    def _told(self) -> Iterator[bytes]:
        try:
            fields = _STAT.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            used = resource.getrusage(resource.RUSAGE_SELF)
            yield self._cpu.piece({(): used.ru_utime + used.ru_stime})
            return
        tick = os.sysconf("SC_CLK_TCK")
        yield self._cpu.piece({(): (int(fields[_UTIME]) + int(fields[_STIME])) / tick})
        yield self._virtual.piece({(): int(fields[_VSIZE])})
        yield self._resident.piece({(): int(fields[_RSS]) * resource.getpagesize()})
        booted = _booted_at()
        if booted is not None:
            yield self._started.piece({(): booted + int(fields[_START]) / tick})


def open_files(path: str = FILES) -> Iterator[int]:
    """Count the entries of a folder of open files: the last number is all of them, none when there is no such folder.

    Linux tells it since 6.2 as the size of the folder. Before, they are counted, so many at once.
    """
    try:
        told = os.stat(path).st_size  # noqa: PTH116 - a path of the system, asked at each scrape
        if told:
            yield told
            return
        count = 0
        with os.scandir(path) as entries:
            for count, _ in enumerate(entries, 1):
                if count % FILES_AT_ONCE == 0:
                    yield count
        yield count - 1  # the folder itself was open
    except OSError:
        return


@cache
def _booted_at() -> float | None:
    """When the system was started, in seconds since 1970."""
    try:
        lines = Path("/proc/stat").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)
