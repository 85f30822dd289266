import pytest

from pharos.obs.exposition import Bound
from pharos.obs.reports import PeerShown, QuotaShown, Reports

from .reading import Samples, samples


@pytest.fixture
def reports() -> Reports:
    return Reports()


def read(reports: Reports, max_keys: int = 2) -> Samples:
    return samples(b"".join(reports.pieces(Bound(max_keys))).decode())


def test_a_part_that_is_switched_off_has_no_series(reports: Reports) -> None:
    assert {name.removesuffix("_bucket") for name, _ in read(reports)} == {
        "pharos_loop_lag_seconds", "pharos_loop_lag_seconds_sum", "pharos_loop_lag_seconds_count",
        "pharos_loop_stalls_total",
    }  # fmt: skip


def test_a_peer_is_shown_with_what_is_known_of_it(reports: Reports) -> None:
    silent = PeerShown("b:8081", up=False)
    heard = PeerShown(
        "c:8081", up=True, mismatched=True, protocol_mismatched=False, last_heard_at=1_800_000_000.5,
        dropped_prefix_ops=3, sent_bytes=12_345,
    )  # fmt: skip
    reports.peers = lambda: [silent, heard]
    shown = read(reports)
    assert {name: value for (name, labels), value in shown.items() if labels == ("b:8081",)} == {"pharos_peer_up": 0}
    assert {name: value for (name, labels), value in shown.items() if labels == ("c:8081",)} == {
        "pharos_peer_up": 1,
        "pharos_peer_mismatch": 1,
        "pharos_peer_proto_mismatch": 0,
        "pharos_peer_last_heard_timestamp_seconds": 1_800_000_000.5,
        "pharos_peer_dropped_prefix_ops": 3,
        "pharos_peer_sent_bytes_total": 12_345,
    }


def test_a_peer_that_is_no_member_any_more_loses_its_series(reports: Reports) -> None:
    reports.peers = lambda: [PeerShown("b:8081", up=True)]
    read(reports)
    reports.peers = list
    assert ("pharos_peer_up", ("b:8081",)) not in read(reports)


def test_of_keys_past_the_bound_the_one_nearest_to_its_quota_is_shown(reports: Reports) -> None:
    reports.quotas = lambda: [
        QuotaShown(key, "rpm", used) for key, used in (("a", 0.1), ("b", 0.2), ("c", 0.9), ("d", 0.4))
    ]
    shown = read(reports)
    assert shown["pharos_quota_used_ratio", ("b", "rpm")] == pytest.approx(0.2)
    assert shown["pharos_quota_used_ratio", ("_other", "rpm")] == pytest.approx(0.9)


def test_a_refused_configuration_is_told_until_a_good_one_comes(reports: Reports) -> None:
    reports.config_read(100.0, ok=True)
    reports.config_read(200.0, ok=False)
    shown = read(reports)
    assert shown["pharos_config_last_reload_successful", ()] == 0
    assert shown["pharos_config_last_reload_success_timestamp_seconds", ()] == 100
    reports.config_read(300.0, ok=True)
    shown = read(reports)
    assert shown["pharos_config_last_reload_successful", ()] == 1
    assert shown["pharos_config_last_reload_success_timestamp_seconds", ()] == 300


def test_a_state_file_that_cannot_be_written_is_told_with_the_time_of_the_last_good_one(reports: Reports) -> None:
    reports.state_written(100.0, ok=False)
    assert ("pharos_state_file_saved_timestamp_seconds", ()) not in read(reports), "it never was"
    reports.state_written(200.0, ok=True)
    reports.state_written(300.0, ok=False)
    shown = read(reports)
    assert shown["pharos_state_file_failing", ()] == 1
    assert shown["pharos_state_file_saved_timestamp_seconds", ()] == 200


def test_how_late_the_loop_came_is_counted_and_stalls_apart(reports: Reports) -> None:
    for lag in (0.0, 0.015, 0.1, 0.11):
        reports.lagged(lag)
    shown = read(reports)
    assert shown["pharos_loop_lag_seconds_bucket", ("0.02",)] == 2
    assert shown["pharos_loop_lag_seconds_count", ()] == 4
    assert shown["pharos_loop_stalls_total", ()] == 1
