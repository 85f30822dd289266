import html.parser
import re
from collections.abc import Callable

import msgspec
import pytest

from pharos.core.fleet.registry import Fleet
from pharos.core.signals import Signal
from pharos.obs import status as page
from pharos.obs import words
from pharos.obs.recent import Recent
from pharos.obs.status import Status
from pharos.proxy.done import Done

from .conftest import NOW, VALUES, Chosen, publish

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


@pytest.fixture
def status(fleet: Fleet, recent: Recent) -> Status:
    return Status(
        fleet,
        recent,
        version="1.2.3",
        policy="cost",
        phase=lambda: "ready",
        waiting=lambda: {"tiny": 2},
        monotonic=lambda: NOW,
        wall=lambda: 1_800_000_000.0,
    )


def text_of(status: Status) -> str:
    code, content_type, body = status.page({}, "text/html,*/*", True)  # noqa: FBT003
    assert (code, content_type) == (200, "text/html; charset=utf-8")
    return body.decode()


def test_the_page_shows_backends_targets_unknowns_and_requests(
    status: Status, recent: Recent, finished: Callable[..., Done]
) -> None:
    recent.add(finished())
    text = text_of(status)
    for shown in ("gpu-1", "not read yet", "tiny", "loaded", "/metrics answers 501", "warm, est 0.4 s", "alice"):
        assert shown in text
    assert "100 (60 cached) → 7" in text


def test_the_json_form_holds_the_agreed_shapes(status: Status, recent: Recent, finished: Callable[..., Done]) -> None:
    recent.add(finished())
    code, content_type, body = status.page({"format": "json"}, "text/html", True)  # noqa: FBT003
    assert (code, content_type) == (200, "application/json")
    content = msgspec.json.decode(body)
    assert [backend["name"] for backend in content["backends"]] == ["gpu-1", "gpu-2"]
    assert content["backends"][1]["up"] is None
    assert content["backends"][0]["targets"][0]["waiting"] is None
    assert content["requests"][0]["reason"] == "warm, est 0.4 s"
    assert content["waiting"] == {"tiny": 2}


def test_a_program_that_asks_for_json_gets_json(status: Status) -> None:
    assert status.page({}, "application/json", True)[1] == "application/json"  # noqa: FBT003


def test_a_key_without_admin_sees_nothing(status: Status) -> None:
    code, _, body = status.page({}, "", False)  # noqa: FBT003
    assert code == 403
    assert b"Authorization: Bearer <key>" in body
    assert b"gpu-1" not in body


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
    assert status.page({"format": "json"}, "", True)[0] == 200  # noqa: FBT003


def test_the_page_loads_nothing_from_elsewhere_and_allows_only_its_own_script(status: Status) -> None:
    text = text_of(status)
    policy = next(attrs["content"] for tag, attrs in Elements(text).found if attrs.get("http-equiv", "") != "refresh" and tag == "meta" and "http-equiv" in attrs)  # fmt: skip  # noqa: E501
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    assert not re.search(r"(?:src|href)=\"?(?:https?:)?//", text)


def test_an_empty_fleet_says_what_to_do(recent: Recent) -> None:
    status = Status(
        Fleet(),
        recent,
        version="1",
        policy="cost",
        phase=lambda: "ready",
        waiting=dict,
        monotonic=lambda: NOW,
        wall=lambda: 0.0,
    )
    text = text_of(status)
    assert "pharos serve http://" in text
    assert "No request yet" in text


@pytest.mark.parametrize(
    ("capacity", "running", "ours", "bar"),
    [
        (4, 3, 1, "OXX-"),
        (4, None, 1, "O---"),
        (2, 5, 9, "OO"),
        (3, 0, 0, "---"),
        (None, 3, 1, ""),
        (64, 64, 1, "O" + "X" * 31),
        (64, 0, 0, "-" * 32),
    ],
)
def test_the_slot_bar_shows_ours_those_of_others_and_free_ones(
    capacity: int | None, running: int | None, ours: int, bar: str
) -> None:
    drawn = page.slots({"capacity": capacity, "running": running, "queue_inflight": ours})
    assert "".join({"ours": "O", "others": "X", "free": "-"}[slot] for slot in drawn) == bar


def test_quantities_are_written_for_people() -> None:
    times = [words.seconds(value) for value in (None, 0.0, 0.0012, 0.05, 0.0996, 3.14, 99.6, 3725)]
    assert times == ["–", "0 s", "1.2 ms", "50 ms", "0.1 s", "3.1 s", "1 min 40 s", "1 h 02 min"]
    assert [words.amount(value) for value in (None, 0, 950, 1234, 3_400_000)] == ["–", "0", "950", "1.23k", "3.4M"]
    assert [words.size(value) for value in (None, 12, 98_000_000)] == ["–", "12 B", "93.5 MiB"]
