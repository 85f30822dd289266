"""Settings of all tests."""

import asyncio
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

# No test meets a Pharos that runs on this machine, or another test's: a port of its own, which nobody is told.
os.environ["PHAROS_ADMIN_LISTEN"] = "127.0.0.1:0"

# Whoever runs the tests in the background may have them ignore Ctrl-C, and a program started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline for each example would make results depend on the machine's load.
hypothesis.settings.register_profile("default", deadline=None, database=None)
hypothesis.settings.register_profile("ci", deadline=None, database=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def _loop_of_blocking_tests() -> Iterator[None]:
    """One event loop for tests that have none: the plugin for virtual time asks for one and would leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
