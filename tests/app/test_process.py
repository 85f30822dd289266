"""What a process is told once its instance runs: it holds for all of its threads."""

import gc
import sys
from collections.abc import Iterator

import pytest

from pharos import app
from pharos.config import load


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave this process, which runs other tests, as it was."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.unfreeze()


async def test_a_worker_thread_may_keep_the_loop_for_a_tenth_of_pythons_own_time_at_most() -> None:
    stop, seen, before = app.Stop(), [], sys.getswitchinterval()

    def ready(_: str) -> None:
        seen.append(sys.getswitchinterval())
        stop.set()

    text = '{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "drain": {"grace": 0, "timeout": 0}}'
    config = load.parse(text, {}, source="test")
    status = await app.serve(config, log_level="warning", log_format="text", on_ready=ready, stop=stop)
    assert status == 0
    assert seen[0] <= before / 10
