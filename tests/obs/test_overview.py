from collections.abc import Callable
from typing import Any

import pytest

from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.core.signals import Signal
from pharos.obs.overview import Overview, Parts
from pharos.obs.recent import Recent
from pharos.proxy.done import Done

from .conftest import NOW, VALUES, publish
from .reading import whole


def overview_of(fleet: Fleet, recent: Recent | None = None, **parts: Any) -> Overview:
    told: dict[str, Any] = {"phase": lambda: "ready", "waiting": dict, "policy": lambda: "cost", **parts}
    return Overview(
        fleet,
        recent if recent is not None else Recent(),
        Parts(**told),
        version="1.2.3",
        monotonic=lambda: NOW,
        wall=lambda: 5.0,
    )


def test_the_doctor_s_rows_have_the_agreed_shape_and_an_exit_status_each(fleet: Fleet) -> None:
    told = whole(overview_of(fleet, busted=lambda: [Busted("k", "m", 64, 32, 5)]).doctor())
    assert (told["version"], told["phase"], told["policy"], told["schema"]) == ("1.2.3", "ready", "cost", 1)
    assert told["cache_busters"] == [{"key": "k", "model": "m", "position": 64, "size": 32, "seen": 5}]
    read, unread = told["backends"]
    for field in ("name", "url", "kind", "version", "up", "plan", "dropped", "unknown"):
        assert field in read
    assert (read["name"], read["exit_code"], unread["exit_code"]) == ("gpu-1", 1, 1), "waiting is 501: it need not be"
    assert (read["remarks"], read["routes"], read["feeds"], read["evidence"]) == ([], {}, {}, None)


def test_a_backend_that_is_down_is_out_of_reach_and_a_complete_one_is_fine(fleet: Fleet) -> None:
    overview = overview_of(fleet)
    fleet.unreachable(fleet.backends["gpu-2"], "connection refused")
    publish(fleet, "gpu-1", VALUES | {(Signal.WAITING, ""): 0, (Signal.VERSION, ""): "b1", (Signal.KV_USAGE, ""): 0.5})
    good, down = whole(overview.doctor())["backends"]
    assert (good["exit_code"], down["exit_code"], down["error"]) == (0, 2, "connection refused")


def test_what_would_surprise_is_among_the_remarks() -> None:
    fleet = Fleet()
    fleet.set_backends([BackendSpec("gpu-1", "http://gpu-1", capacity=2, aliases=(("nix", "there"),))], NOW)
    publish(fleet, "gpu-1", VALUES)
    (row,) = whole(overview_of(fleet).doctor())["backends"]
    assert [text.partition(":")[0] for text in row["remarks"]] == ["aliases", "capacity"]


def test_a_request_is_explained_while_it_is_remembered(fleet: Fleet, finished: Callable[..., Done]) -> None:
    recent = Recent()
    recent.add(finished(request_id="r-7"))
    overview = overview_of(fleet, recent)
    found = overview.explain("r-7")
    assert found is not None
    assert (found["target"], found["candidates"][0]["target"]) == ("tiny@gpu-1", "gpu-1")
    assert overview.explain("r-8") is None


def test_backends_in_a_few_words(fleet: Fleet) -> None:
    fleet.cordons.put("gpu-1")
    overview = overview_of(fleet)
    read, unread = overview.backends()
    assert read == {
        "name": "gpu-1", "url": "http://gpu-1:8080", "up": True, "state": "up", "error": None,
        "drained_by": "operator", "inflight": 0,
    }  # fmt: skip
    assert (unread["up"], unread["state"]) == (None, "unknown")
    assert overview.brief("gpu-1") == read
    with pytest.raises(KeyError):
        overview.brief("gpu-3")


def test_models_are_told_with_how_good_their_estimates_are_in_each_place(fleet: Fleet) -> None:
    publish(fleet, "gpu-2", VALUES)
    fleet.calibration.note("tiny", "gpu-2", 2.0, 1.0)
    (model,) = whole(overview_of(fleet).described())["models"]
    assert (model["model"], model["off"], model["fallen"]) == ("tiny", None, False)
    assert [(at["backend"], at["residency"], at["seen"]) for at in model["targets"]] == [
        ("gpu-1", "loaded", 0),
        ("gpu-2", "loaded", 1),
    ]
