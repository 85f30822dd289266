"""Generated requests, a tenth of what `make fuzz` sends: none hangs, none leaks, none reaches an engine changed."""

import logging

import pytest

from tests.proxy.malformed import fuzzing
from tests.proxy.malformed.case import MARK

SEED = 1
REQUESTS = 1000


def test_generated_requests_never_hang_nor_leak_nor_reach_an_engine_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tally = fuzzing.run(SEED, REQUESTS)
    assert tally.requests >= REQUESTS
    assert tally.reached > REQUESTS // 10, "most are spoiled, not all"
    assert set(tally.ends) == {"clean", "short", "bad"}
    assert MARK.decode() not in caplog.text
    assert "fault of Pharos" not in caplog.text
