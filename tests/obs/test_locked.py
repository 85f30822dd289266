from typing import Any

import pytest

from pharos.core.engine.plan import Dropped, Plan, Round
from pharos.core.engine.probe import DropReason
from pharos.core.fleet import BackendSpec, Fleet
from pharos.core.signals import Signal
from pharos.obs import describe


@pytest.mark.parametrize(
    ("described", "told"),
    [({}, "set `credential` of this backend"), ({"credential": "gpu-key"}, "it refuses gpu-key")],
)
def test_a_signal_that_is_unknown_for_want_of_a_key_is_mended_by_the_setting(
    described: dict[str, Any], told: str
) -> None:
    fleet = Fleet()
    fleet.set_backends((BackendSpec("gpu", "http://gpu", **described),), 0.0)
    dropped = (
        Dropped(probe="busy", signal=Signal.RUNNING, reason=DropReason.UNAUTHORIZED, detail="/metrics answers 401"),
        Dropped(probe="queue", signal=Signal.WAITING, reason=DropReason.NOT_FOUND),
    )
    plan = Plan(kind="llamacpp", kind_source="detected", version=None, active=(), dropped=dropped)
    found = Round(readings={}, failed=dropped, read=frozenset())
    fleet.publish(fleet.backends["gpu"], plan, found, 0.0, full=True, started_at=0.0)
    rows = {row["signal"]: row for row in describe.backend(fleet.backends["gpu"], 0.0)["unknown"]}
    assert told in rows["running"]["fix"]
    assert not rows["running"]["expected"]
    assert "credential" not in rows["waiting"]["fix"]
