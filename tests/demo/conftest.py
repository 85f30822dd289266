"""Processes that a test did not start itself."""

import os
import select
from pathlib import Path


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process that is not ours to wait for ends in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
