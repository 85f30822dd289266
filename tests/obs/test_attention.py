from typing import Any

from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.obs import attention

from .test_overview import overview_of, whole


def texts(fleet: Fleet, **parts: Any) -> list[tuple[str, str]]:
    return [(one["tone"], one["text"]) for one in attention.items(whole(overview_of(fleet, **parts).described()))]


def test_the_worst_comes_first_each_with_its_reason(fleet: Fleet) -> None:
    fleet.unreachable(fleet.backends["gpu-2"], "connection refused")
    fleet.cordons.put("gpu-1")
    fleet.calibration.fallen.add("tiny")
    found = texts(
        fleet,
        waiting=lambda: {"tiny": 1},
        busted=lambda: [Busted("alice", "tiny", 64, 32, 5)],
        config=lambda: {"error": "line 1: no"},
    )
    assert [tone for tone, _ in found] == ["bad", "bad", "warn", "warn", "warn", "note", "note"]
    assert found[0][1] == "the configuration was not taken over, the last good one counts: line 1: no"
    assert found[1][1] == "gpu-2 is down: connection refused"
    assert ("warn", "1 request for tiny in the queue") in found
    assert ("warn", "least-load chooses for tiny, as its estimates mislead") in found
    assert found[5][1] == (
        "gpu-1 gets no new requests, drained by an operator (pharos backend undrain); nothing in flight"
    )
    assert found[6][1] == "1 signal could be known: gpu-1 says how"


def test_what_an_engine_cannot_tell_is_no_reason_to_look(fleet: Fleet) -> None:
    status = whole(overview_of(fleet).described())
    for backend in status["backends"]:
        for row in backend["unknown"]:
            row["expected"] = True
    assert attention.items(status) == []
