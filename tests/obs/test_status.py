import html
import html.parser
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.core.signals import Signal
from pharos.obs import words
from pharos.obs.happened import Happened
from pharos.obs.overview import REQUESTS, Overview, Parts
from pharos.obs.pulse import Pulse
from pharos.obs.recent import Recent
from pharos.obs.status import SHOWN, STEP_CHARS, Status
from pharos.peer.record import PeerRecord
from pharos.proxy.done import Done

from .conftest import NOW, VALUES, Chosen, publish
from .reading import whole

WALL = 1_800_000_000.0
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"


class Elements(html.parser.HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def recent() -> Recent:
    return Recent()


def status_of(
    fleet: Fleet,
    recent: Recent | None = None,
    pulse: Pulse | None = None,
    happened: Happened | None = None,
    **parts: Any,
) -> Status:
    told: dict[str, Any] = {
        "phase": lambda: "ready", "waiting": lambda: {"tiny": 2}, "policy": lambda: "cost", **parts,
    }  # fmt: skip
    overview = Overview(
        fleet,
        recent if recent is not None else Recent(),
        Parts(**told),
        version="1.2.3",
        monotonic=lambda: NOW,
        wall=lambda: WALL,
        pulse=pulse,
        happened=happened,
    )
    return Status(overview)


@pytest.fixture
def status(fleet: Fleet, recent: Recent) -> Status:
    return status_of(fleet, recent)


def text_of(status: Status, **query: str) -> str:
    code, content_type, body = whole(status.page(query, "text/html,*/*", True))  # noqa: FBT003
    assert (code, content_type) == (200, "text/html; charset=utf-8")
    return body.decode()


def test_the_page_shows_backends_targets_unknowns_and_requests(
    status: Status, recent: Recent, finished: Callable[..., Done]
) -> None:
    recent.add(finished())
    text = text_of(status)
    for shown in ("gpu-1", "not read yet", "tiny", "loaded", "/metrics answers 501", "warm, est 0.4 s", "alice"):
        assert shown in text
    assert "100 (60 cached) → 7" in html.unescape(re.sub("<[^>]*>", "", text))


def test_the_json_form_holds_the_agreed_shapes(status: Status, recent: Recent, finished: Callable[..., Done]) -> None:
    recent.add(finished())
    code, content_type, body = whole(status.page({"format": "json"}, "text/html", True))  # noqa: FBT003
    assert (code, content_type) == (200, "application/json")
    content = msgspec.json.decode(body)
    assert [backend["name"] for backend in content["backends"]] == ["gpu-1", "gpu-2"]
    assert content["backends"][1]["up"] is None
    assert content["backends"][0]["targets"][0]["waiting"] is None
    assert content["requests"][0]["reason"] == "warm, est 0.4 s"
    assert content["waiting"] == {"tiny": 2}


def test_it_shows_how_good_the_estimates_are_and_where_they_do_not_choose(status: Status, fleet: Fleet) -> None:
    unknown = {"ratio": None, "spread": None, "seen": 0, "wait_ratio": None, "fallen": False}
    _, _, body = whole(status.page({"format": "json"}, "", True))  # noqa: FBT003
    assert msgspec.json.decode(body)["backends"][0]["targets"][0]["calibration"] == unknown
    fleet.calibration.note("tiny", "gpu-1", 3.0, 1.0)
    fleet.calibration.fallen.add("tiny")
    _, _, body = whole(status.page({"format": "json"}, "", True))  # noqa: FBT003
    content = msgspec.json.decode(body)
    assert content["fallen"] == ["tiny"]
    calibration = content["backends"][0]["targets"][0]["calibration"]
    assert (calibration["ratio"], calibration["seen"], calibration["fallen"]) == (pytest.approx(3.0), 1, True)
    text = text_of(status)
    assert "foretold <b>3×</b> what came" in text
    assert "least-load chooses for tiny, as its estimates mislead" in text
    assert ">least load</span>" in text, "in the table of models, too"


def test_it_tells_whose_prompts_no_cache_holds_and_where_they_change(fleet: Fleet) -> None:
    status = status_of(fleet, busted=lambda: [Busted("<alice>", "tiny", 64, 32, 5)])
    _, _, body = whole(status.page({"format": "json"}, "", True))  # noqa: FBT003
    told = {"key": "<alice>", "model": "tiny", "position": 64, "size": 32, "seen": 5}
    assert msgspec.json.decode(body)["cache_busters"] == [told]
    text = text_of(status)
    assert "no cache ever holds what &lt;alice&gt; asks tiny" in text
    assert "32 B at byte 64" in text


def test_a_program_that_asks_for_json_gets_json(status: Status) -> None:
    assert whole(status.page({}, "application/json", True))[1] == "application/json"  # noqa: FBT003


def test_a_key_without_admin_sees_nothing(status: Status) -> None:
    code, _, body = whole(status.page({}, "", False))  # noqa: FBT003
    assert code == 403
    assert b"Authorization: Bearer KEY" in body
    assert b"gpu-1" not in body


@pytest.mark.parametrize("asked", [{}, {"format": "json"}], ids=["html", "json"])
def test_a_page_of_much_is_made_in_small_steps(
    asked: dict[str, str], status: Status, recent: Recent, finished: Callable[..., Done]
) -> None:
    """Between two of them streams go on: all at once held them up for tens of milliseconds."""
    looked = 0

    class Looked(Chosen):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looked
            looked += name == "scores"
            return super().__getattribute__(name)

    why = Looked()
    why.scores = why.scores * 64
    for _ in range(50):
        recent.add(finished(choice=why))
    steps, most, turns = status.page(asked, "text/html", True), 0, 0  # noqa: FBT003
    looked = 0
    try:
        while True:
            before = looked
            next(steps)
            turns += 1
            most = max(most, looked - before)
    except StopIteration as end:
        body = end.value[2]
    assert most == 1
    assert turns > 50
    if not asked:
        assert turns > 50 + len(body) / STEP_CHARS / 4, "one row of many candidates is several steps' worth of text"


def test_hostile_names_stay_text(status: Status, fleet: Fleet, recent: Recent, finished: Callable[..., Done]) -> None:
    publish(fleet, "gpu-2", VALUES | {(Signal.MODELS, ""): (HOSTILE, "\ud800", "x" * 5000)})
    why = Chosen(HOSTILE)
    recent.add(finished(model=HOSTILE, target=HOSTILE, choice=why, key=HOSTILE, request_id=HOSTILE, path=HOSTILE))
    recent.add(finished(model="\ud800", target="\udfff"))
    text = text_of(status)
    elements = Elements(text).found
    assert [tag for tag, _ in elements].count("script") == 1
    assert "img" not in {tag for tag, _ in elements}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert "&lt;img src=x" in text
    assert whole(status.page({"format": "json"}, "", True))[0] == 200  # noqa: FBT003


def test_the_page_loads_nothing_from_elsewhere_and_allows_only_its_own_script(status: Status) -> None:
    text = text_of(status)
    policy = next(attrs["content"] for tag, attrs in Elements(text).found if attrs.get("http-equiv", "") != "refresh" and tag == "meta" and "http-equiv" in attrs)  # fmt: skip  # noqa: E501
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    assert re.search(r"style-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    assert " style=" not in text, "the policy would drop it"
    assert not re.search(r"(?:src|href)=\"?(?:https?:)?//", text)


def test_an_empty_fleet_says_what_to_do() -> None:
    status = status_of(Fleet(), waiting=dict)
    text = text_of(status)
    assert "pharos serve http://" in text
    assert "No request yet" in text


def test_quantities_are_written_for_people() -> None:
    times = [words.seconds(value) for value in (None, 0.0, 0.0012, 0.05, 0.0996, 3.14, 99.6, 3725)]
    assert times == ["–", "0 s", "1.2 ms", "50 ms", "0.1 s", "3.1 s", "1 min 40 s", "1 h 02 min"]
    assert [words.amount(value) for value in (None, 0, 950, 1234, 3_400_000)] == ["–", "0", "950", "1.23k", "3.4M"]
    assert [words.size(value) for value in (None, 12, 98_000_000)] == ["–", "12 B", "93.5 MiB"]


def test_long_lists_end_early_and_lead_to_the_rest(recent: Recent, finished: Callable[..., Done]) -> None:
    fleet = Fleet()
    names = [f"gpu-{number}" for number in range(SHOWN["BACKENDS"] + 5)]
    fleet.set_backends([BackendSpec(name, f"http://{name}:80") for name in names], NOW)
    many = tuple(f"model-{number}" for number in range(40))
    publish(fleet, "gpu-0", VALUES | {(Signal.MODELS, ""): many})
    for number in range(SHOWN["REQUESTS"] + 5):
        recent.add(finished(request_id=f"request-{number}"))
    status = status_of(fleet, recent)
    text = text_of(status)
    assert text.count('<article class="backend"') == SHOWN["BACKENDS"]
    assert text.count('<article class="request"') == SHOWN["REQUESTS"]
    assert 'href="?show=backends#backends"' in text
    assert "show all 40 models" in text
    whole_backend = text_of(status, show="backend:gpu-0")
    assert whole_backend.count('<article class="backend"') == 1
    assert whole_backend.count('<div class="target">') == 40
    assert text_of(status, show="backends").count('<article class="backend"') == len(names)
    assert text_of(status, show="requests").count('<article class="request"') == SHOWN["REQUESTS"] + 5
    assert text_of(status, show="no such thing").count('<article class="backend"') == SHOWN["BACKENDS"]


def test_more_requests_are_remembered_than_are_told_of_together(recent: Recent, finished: Callable[..., Done]) -> None:
    for number in range(REQUESTS + 5):
        recent.add(finished(request_id=str(number)))
    _, _, body = whole(status_of(Fleet(), recent).page({"format": "json"}, "", True))  # noqa: FBT003
    assert [one["request_id"] for one in msgspec.json.decode(body)["requests"]][-1] == "5"


def test_a_drained_backend_is_up_and_says_who_keeps_requests_from_it(fleet: Fleet) -> None:
    fleet.cordons.put("gpu-1")
    status = status_of(fleet)
    _, _, body = whole(status.page({"format": "json"}, "", True))  # noqa: FBT003
    backend = msgspec.json.decode(body)["backends"][0]
    assert (backend["up"], backend["state"], backend["drained_by"]) == (True, "up", "operator")
    text = text_of(status)
    assert '<span class="pill drained">drained</span>' in text
    assert "pharos backend undrain gpu-1" in text


def test_events_are_on_the_page_with_how_often_they_came(fleet: Fleet) -> None:
    happened = Happened()
    for _ in range(3):
        happened.add("warning", f"{HOSTILE} is down", WALL)
    text = text_of(status_of(fleet, happened=happened))
    assert "(3 times)" in text
    assert "<script>alert(1)" not in text


def peer(name: str, **changes: Any) -> dict[str, Any]:
    """A peer as the peer plane describes it."""
    record = PeerRecord(
        name=name, origin=None, state="up", up=True, heard_ago_s=0.4, heard_at=None, config_differs=(),
        protocol=None, bytes_sent=2048, bytes_received=0, entries_sent=1, entries_received=0, dropped=0, error="",
    )  # fmt: skip
    told: dict[str, Any] = msgspec.to_builtins(record) | changes
    return told


def test_what_other_parts_say_has_a_section_each_and_none_when_they_say_nothing(fleet: Fleet) -> None:
    plain = text_of(status_of(fleet))
    for section in ("usage", "peers", "config"):
        assert f'<section id="{section}"' not in plain
    count = {"requests": 3, "prompt_tokens": 1000, "completion_tokens": 500, "cached_tokens": 20, "unmetered": 1}
    limits = {"tokens_per_day": 3000, "tokens_left": 1500, "rpm": 60, "rpm_left": 57}
    used = {
        "today": "2026-11-30",
        "days": [{"day": "2026-11-30", "requests": 3, "tokens": 1500}],
        "keys": [{"key": HOSTILE, "today": count, "month": count, **limits}],
    }
    text = text_of(
        status_of(
            fleet,
            usage=lambda: used,
            peers=lambda: [
                peer(HOSTILE),
                peer("p2", up=False, heard_ago_s=None, error="refused", config_differs=["keys"]),
            ],
            config=lambda: {
                "file": "pharos.yaml",
                "in_use_since": 5.0,
                "last_read_at": 6.0,
                "error": "line 3: no such field",
                "waits_for_a_restart": ["listen", "peers"],
            },
        )
    )
    assert "1.5k of 3k tokens left today; 57 of 60 requests left this minute" in text
    assert "+ 1 unmetered" in text
    assert "0.4 s ago" in text
    assert "refused; other keys there" in text
    assert "the peer p2 has other keys than this instance" in text
    assert "the configuration was not taken over, the last good one counts: line 3: no such field" in text
    assert "<dt>waits for a restart</dt><dd>listen, peers</dd>" in text
    assert "<script>alert(1)" not in text


def test_nothing_used_and_no_peer_yet_are_said(fleet: Fleet) -> None:
    used: dict[str, Any] = {"today": "2026-11-30", "days": [], "keys": []}
    text = text_of(status_of(fleet, usage=lambda: used, peers=list))
    assert "Nothing was used in the last 30 days" in text
    assert "this one stands alone" in text


def test_first_tokens_are_drawn_as_a_curve(fleet: Fleet, finished: Callable[..., Done]) -> None:
    pulse = Pulse()
    for ttft_s in (0.1, 0.2, 0.4):
        pulse.note(finished(ttft_s=ttft_s, at_wall=WALL))
    text = text_of(status_of(fleet, pulse=pulse))
    assert text.count('<svg class="spark"') == 2, "the fleet's and the backend's"
    assert "<b>0.2 s</b>" in text


def test_requests_of_other_instances_are_told_apart_from_ours(fleet: Fleet) -> None:
    target = fleet.backends["gpu-1"].targets["tiny"]
    fleet.dispatched(target)
    target.peers = target.slots.peers = 2
    text = re.sub("<[^>]*>", "", text_of(status_of(fleet)))
    assert "1 ours · 2 of peers · 0 running · 4 slots" in text


def test_what_to_look_at_leads_there_whatever_it_is_called() -> None:
    fleet = Fleet()
    fleet.set_backends([BackendSpec("gpu 1/%20", "http://gpu-1:80")], NOW)
    fleet.unreachable(fleet.backends["gpu 1/%20"], "refused")
    text = text_of(status_of(fleet))
    assert 'href="#backend-gpu%201%2F%2520"' in text
    assert 'id="backend-gpu 1/%20"' in text
