import csv
import io
import json
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pytest

from pharos.config import zone
from pharos.core.engine.usage_fields import Usage
from pharos.core.usage import Count, Quota, UsageBook
from pharos.obs import usage, usage_told
from pharos.obs.usage import COLUMNS, UsagePage
from pharos.proxy.done import Done

from .reading import whole

BANGKOK = zone.named("Asia/Bangkok")
NOW = datetime.fromisoformat("2026-09-28T10:00:00+07:00").timestamp()
TODAY = date(2026, 9, 28).toordinal()
DAY_S = 86_400.0


@pytest.fixture
def book() -> UsageBook:
    return UsageBook("me", BANGKOK.day_of, retention_days=400, now=NOW)


def ask(book: UsageBook, *, is_admin: bool = True, **query: str) -> tuple[int, str, bytes]:
    asked = {name.rstrip("_"): value for name, value in query.items()}
    page = UsagePage(book, wall=lambda: NOW, day_start=BANGKOK.start, settle=lambda: None)
    assert repr(page) == "<UsagePage <UsageBook <Cells me 0>>>" or len(book.cells)
    return whole(page.page(asked, "", is_admin))


def rows(book: UsageBook, **query: str) -> Any:
    status, kind, body = ask(book, **query)
    assert (status, kind) == (200, "application/json")
    return json.loads(body)


# --- which requests are usage


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, Count(1, 100, 60, 7, 0)),
        ({"usage": None}, Count(1, 0, 0, 0, 1)),
        ({"usage": Usage(cached_tokens=5)}, Count(1, 0, 5, 0, 1)),
        ({"usage": None, "status": 499}, Count(1, 0, 0, 0, 1)),
        ({"usage": None, "status": 400}, None),
        ({"usage": None, "status": 503}, None),
        ({"target": None, "usage": None, "status": 429}, None),
        ({"target": None, "usage": None, "status": 499}, None),
        ({"path": "/api/show", "usage": None}, None),
        ({"path": "/v1/responses/{id}", "usage": Usage(prompt_tokens=5)}, None),
        ({"path": "/v1/messages"}, Count(1, 100, 60, 7, 0)),
        ({"key": None}, None),
    ],
)
def test_a_request_that_an_engine_served_is_usage(
    book: UsageBook, finished: Callable[..., Done], changes: dict[str, Any], counted: Count | None
) -> None:
    usage.count(book, finished(**({"at_wall": NOW} | changes)))
    assert book.today(NOW) == ({"alice": counted} if counted is not None else {})


def test_a_request_counts_on_the_day_on_which_it_ends(book: UsageBook, finished: Callable[..., Done]) -> None:
    midnight = book.day(NOW).ends_at
    usage.count(book, finished(at_wall=midnight - 5, duration_s=4.9))
    usage.count(book, finished(at_wall=midnight - 5, duration_s=5.0))
    assert [book.cells.of_day(day)["alice"].requests for day in (TODAY, TODAY + 1)] == [1, 1]


# --- the page


def test_rows_are_by_key_or_by_model_with_the_start_of_their_day(book: UsageBook) -> None:
    book.count("bob", "m", NOW, prompt_tokens=1, cached_tokens=0, completion_tokens=2)
    book.count("alice", "m", NOW, prompt_tokens=10)
    book.count("alice", "n", NOW - DAY_S)
    day, before = "2026-09-28T00:00:00+07:00", "2026-09-27T00:00:00+07:00"
    columns = ("day", "key", *COLUMNS)
    assert [tuple(row) for row in rows(book)] == [columns] * 3
    assert [tuple(row.values()) for row in rows(book)] == [
        (before, "alice", 1, 0, 0, 0, 1),
        (day, "alice", 1, 10, 0, 0, 0),
        (day, "bob", 1, 1, 0, 2, 0),
    ]
    assert [(row["day"], row["model"], row["requests"]) for row in rows(book, by="model")] == [
        (before, "n", 1),
        (day, "m", 2),
    ]


def test_csv_has_the_same_rows_under_the_same_names(book: UsageBook) -> None:
    name = 'a "quoted", name\nof two lines'
    book.count(name, "m", NOW, prompt_tokens=10, completion_tokens=5)
    status, kind, body = ask(book, format="csv")
    assert (status, kind) == (200, "text/csv; charset=utf-8")
    assert body.startswith(b"day,key,requests,prompt_tokens,cached_tokens,completion_tokens,unmetered\r\n")
    [row] = csv.DictReader(io.StringIO(body.decode(), newline=""))
    assert row["key"] == name
    assert {name: str(value) for name, value in rows(book)[0].items()} == row


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_a_name_that_a_spreadsheet_would_run_is_text_in_csv_and_itself_in_json(book: UsageBook, name: str) -> None:
    book.count("a", name, NOW)
    _, _, body = ask(book, by="model", format="csv")
    [row] = csv.DictReader(io.StringIO(body.decode(), newline=""))
    assert row["model"] == f"'{name}"
    assert [row["model"] for row in rows(book, by="model")] == [name]


@pytest.mark.parametrize("name", ["a,b", 'a "quoted" b', "a\r\nb", "a;b", " a ", "'a", "\u202ea"])
def test_whatever_is_in_a_name_csv_has_it_in_one_cell(book: UsageBook, name: str) -> None:
    book.count("a", name, NOW)
    _, _, body = ask(book, by="model", format="csv")
    assert [row["model"] for row in csv.DictReader(io.StringIO(body.decode(), newline=""))] == [name]


def test_days_that_no_calendar_has_are_left_out_and_the_others_are_shown(book: UsageBook) -> None:
    for day in (-5, 0, 1, 3_652_059, 10**12):
        assert book.cells.take("other", (day, "a", "m"), Count(1))
    assert book.cells.take("other", (TODAY, "a", "m"), Count(1))
    assert [row["requests"] for row in rows(book, from_="0001-01-01", to="9999-12-31")] == [1]
    assert rows(book, to="0001-01-01") == []


def test_without_dates_it_is_today_and_the_29_days_before(book: UsageBook) -> None:
    for days_ago in range(40):
        book.count("alice", "m", NOW - days_ago * DAY_S)
    assert len(rows(book)) == 30
    assert rows(book)[0]["day"] == "2026-08-30T00:00:00+07:00"
    assert [row["day"][:10] for row in rows(book, from_="2026-09-01", to="2026-09-02")] == ["2026-09-01", "2026-09-02"]
    assert len(rows(book, to="2026-09-01")) == 13, "30 days, of which it has kept these"
    assert len(rows(book, from_="2020-01-01")) == 40
    assert rows(book, from_="2027-01-01", to="2027-01-02") == []


def test_a_long_answer_lets_others_have_their_turn(book: UsageBook) -> None:
    for number in range(900):
        book.count(f"key {number}", "m", NOW)
    page = UsagePage(book, wall=lambda: NOW, day_start=BANGKOK.start, settle=lambda: None)
    for wanted in ("json", "csv"):
        assert len(list(page.page({"format": wanted}, "", is_admin=True))) == 3
    assert len(rows(book)) == 900


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"by": "user"}, "by='user' is neither key nor model"),
        ({"format": "xml"}, "format='xml' is neither json nor csv"),
        ({"from_": "yesterday"}, "from='yesterday' is no date: write it like 2026-09-01"),
        ({"from_": "20260901"}, "from='20260901' is no date"),
        ({"from_": "2026-W36-1"}, "from='2026-W36-1' is no date"),
        ({"to": "2026-02-30"}, "to='2026-02-30' is no date"),
        ({"to": ""}, "to='' is no date"),
        ({"from_": "2026-09-02", "to": "2026-09-01"}, "from is after the last day, 2026-09-01"),
        ({"from_": "2026-09-29"}, "from is after the last day, 2026-09-28"),
        ({"since": "2026-09-01"}, "there is no parameter 'since': /usage takes by, from, to, format"),
        ({"by": "x\ny" + "z" * 99}, "by='x\N{REPLACEMENT CHARACTER}yzzz"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_with_what_to_write(
    book: UsageBook, query: dict[str, str], told: str
) -> None:
    status, kind, body = ask(book, **query)
    assert (status, kind) == (400, "application/json")
    assert told in json.loads(body)["error"]["message"]
    assert len(body) < 300


def test_only_an_admins_key_may_read_it(book: UsageBook) -> None:
    book.count("alice", "m", NOW)
    status, _, body = ask(book, is_admin=False)
    assert status == 403
    assert b"alice" not in body
    assert json.loads(body)["error"]["code"] == "admin_required"


def test_what_has_ended_is_counted_before_the_page_is_made(book: UsageBook) -> None:
    page = UsagePage(book, wall=lambda: NOW, day_start=BANGKOK.start, settle=lambda: book.count("late", "m", NOW))
    assert b"late" in whole(page.page({}, "", is_admin=True))[2]


# --- what the status page and the metrics tell


def test_the_status_page_is_told_of_every_key_with_what_is_left(book: UsageBook) -> None:
    quotas = {"alice": Quota(10, 1000), "idle": None}
    book.count("alice", "m", NOW, prompt_tokens=300)
    book.count("gone", "m", NOW - DAY_S, prompt_tokens=7)
    book.admit("alice", quotas["alice"] or Quota(), NOW)
    told = usage_told.told(book, quotas, NOW)
    assert told["today"] == "2026-09-28"
    assert len(told["days"]) == 30
    assert told["days"][-2:] == [
        {"day": "2026-09-27", "requests": 1, "tokens": 7},
        {"day": "2026-09-28", "requests": 1, "tokens": 300},
    ]
    alice, gone, idle = told["keys"]
    assert (alice["key"], alice["rpm_left"], alice["tokens_left"]) == ("alice", 9, 700)
    assert alice["today"]["prompt_tokens"] == alice["month"]["prompt_tokens"] == 300
    assert (gone["today"]["requests"], gone["month"]["requests"], gone["rpm"]) == (0, 1, None)
    assert (idle["key"], idle["month"]["requests"], idle["tokens_per_day"]) == ("idle", 0, None)


def test_the_metrics_are_told_the_share_of_each_quota_that_is_spent(book: UsageBook) -> None:
    quotas = {"alice": Quota(4, 1000), "bob": Quota(tokens_per_day=10), "none": None}
    book.admit("alice", Quota(4), NOW)
    book.count("alice", "m", NOW, prompt_tokens=500)
    book.count("bob", "m", NOW, prompt_tokens=50)
    spent = [(one.key, one.quota, one.used) for one in usage_told.spent(book, quotas, NOW)]
    assert spent == [("alice", "rpm", 0.25), ("alice", "tokens_per_day", 0.5), ("bob", "tokens_per_day", 1.0)]
