import shutil
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.config import zone
from pharos.config.load import parse
from pharos.config.problems import ConfigError
from pharos.core.usage import Quota, UsageBook

HOUR = 3600
ODD = [
    "Europe/Berlin", "Asia/Tokyo", "America/Havana", "Asia/Beirut", "America/Sao_Paulo", "Africa/Cairo",
    "Pacific/Apia", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC",
]  # fmt: skip
"""Zones whose clocks change at midnight, by half an hour, over the date line, or never."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_day_in_tokyo_begins_at_three_in_the_afternoon_utc() -> None:
    tokyo = zone.named("Asia/Tokyo")
    before, after = tokyo.day_of(at("2026-09-28T14:59:59")), tokyo.day_of(at("2026-09-28T15:00:01"))
    assert (before.ends_at, after.starts_at) == (at("2026-09-28T15:00:00"),) * 2
    assert after.number == before.number + 1
    assert tokyo.start(after.number) == "2026-09-29T00:00:00+09:00"


@pytest.mark.parametrize(
    ("name", "moment", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T12:00:00", 23),
        ("Europe/Berlin", "2026-10-25T12:00:00", 25),
        ("Europe/Berlin", "2026-10-26T12:00:00", 24),
        ("America/Havana", "2026-03-08T12:00:00", 23),  # midnight itself is left out
        ("America/Havana", "2026-11-01T12:00:00", 25),  # midnight comes twice
        ("Asia/Beirut", "2026-10-24T12:00:00", 25),  # at midnight it is eleven again
    ],
)
def test_days_on_which_clocks_change_are_longer_or_shorter(name: str, moment: str, hours: int) -> None:
    day = zone.named(name).day_of(at(moment))
    assert day.ends_at - day.starts_at == hours * HOUR


def test_an_hour_that_comes_twice_over_midnight_is_of_the_new_day_only_once() -> None:
    newfoundland = zone.named("America/St_Johns")  # until 2011 clocks went back at one minute past midnight
    twice = newfoundland.day_of(at("2010-11-07T02:31:30"))
    assert newfoundland.day_of(at("2010-11-07T02:30:30")) == twice
    assert newfoundland.start(twice.number) == "2010-11-07T00:00:00-02:30"


@given(st.sampled_from(ODD), st.integers(1_000_000_000, 2_500_000_000))
def test_days_follow_each_other_without_a_gap(name: str, moment: int) -> None:
    here = zone.named(name)
    day = here.day_of(moment)
    assert day.starts_at <= moment < day.ends_at
    assert here.day_of(day.starts_at) == day
    following = here.day_of(day.ends_at)
    assert following.starts_at == day.ends_at
    assert following.number > day.number


def test_a_day_that_a_country_left_out_had_no_length() -> None:
    samoa = zone.named("Pacific/Apia")
    before = samoa.day_of(at("2011-12-30T09:59:59"))
    after = samoa.day_of(at("2011-12-30T10:00:00"))
    assert after.number == before.number + 2
    assert samoa.start(after.number) == "2011-12-31T00:00:00+14:00"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Europe/Berlim", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("America/New York", "did you mean America/New_York?"),
        ("nowhere at all", "write it like Europe/Berlin, Asia/Tokyo or UTC"),
        ("../../etc/passwd", "write it like Europe/Berlin"),
        ("Europe", "no such time zone"),
        ("/etc/localtime", "no such time zone"),
    ],
)
def test_a_zone_that_does_not_exist_is_refused_with_the_one_that_was_meant(name: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"usage:\n  timezone: {name}", {})
    assert "line 2, usage.timezone: " in str(caught.value)
    assert told in str(caught.value)


def test_a_machine_without_zone_data_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(ValueError, match="install its package tzdata"):
        zone.named("Europe/Nowhere")


def test_without_a_setting_the_machines_zone_counts(tmp_path: Path) -> None:
    known = next(found for root in zoneinfo.TZPATH if (found := Path(root, "Asia/Tokyo")).exists())
    link, copy, bad = tmp_path / "link", tmp_path / "copy", tmp_path / "bad"
    link.symlink_to(known)
    shutil.copy(known, copy)
    bad.write_bytes(b"no zone")
    assert zone.of_machine({}, link).name == "Asia/Tokyo"
    assert zone.of_machine({"TZ": ":Europe/Berlin"}, link).name == "Europe/Berlin"
    assert zone.of_machine({"TZ": "CET-1CEST"}, link).name == "Asia/Tokyo"
    local = zone.of_machine({}, copy)
    assert local.name == "localtime"
    assert local.start(local.day_of(0.0).number) == "1970-01-01T00:00:00+09:00"
    for nothing in (bad, tmp_path / "missing", tmp_path):
        assert zone.of_machine({}, nothing).name == "UTC"
    assert zone.of_config("Asia/Tokyo", {}).name == "Asia/Tokyo"
    assert zone.of_config(None, {"TZ": "Asia/Tokyo"}).name == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("half_past_midnight", "hours_left"),
    [("2026-03-28T23:30:00", 22.5), ("2026-10-24T22:30:00", 24.5), ("2026-10-25T23:30:00", 23.5)],
)
def test_who_has_used_a_days_tokens_is_told_the_second_of_the_next_midnight_on_odd_days_too(
    half_past_midnight: str, hours_left: float
) -> None:
    now = at(half_past_midnight)
    book = UsageBook("me", zone.named("Europe/Berlin").day_of, retention_days=400, now=now)
    quota = Quota(tokens_per_day=10)
    book.count("alice", "m", now, prompt_tokens=10)
    denial = book.admit("alice", quota, now)
    assert denial is not None
    assert denial.retry_after_s == hours_left * HOUR
    assert book.admit("alice", quota, now + denial.retry_after_s - 1) is not None
    assert book.admit("alice", quota, now + denial.retry_after_s) is None
