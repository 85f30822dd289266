import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, refusal
from tests.core.engine.replay.worlds import expected, probed
from tests.fakes import captures

KIND, VERSION = "koboldcpp", "synthetic-1.98.1"
PROBES = {probe.name: probe for probe in by_kind(KIND).probes}
READ: dict[str, dict[str, object]] = {
    "": {
        "version": {"": "1.98.1"},
        "own-version": {"": "1.98.1"},
        "models": {"": ("koboldcpp/tiny",)},
        "residency": {"": Residency.LOADED},
        "capacity": {"": 1},
        "context": {"": 8192},
    },
    "idle": {"running": {"": 0}, "waiting": {"": 0}},
    "busy": {"running": {"": 1}, "waiting": {"": 0}},
    "saturated": {"running": {"": 1}, "waiting": {"": 3}},
}


@pytest.mark.parametrize("state", ["idle", "busy", "saturated"])
def test_each_state_is_read_exactly(state: str) -> None:
    assert probed(KIND, captures.pages(KIND, VERSION, state)) == expected(KIND, READ, state)


def test_none_of_its_imitations_is_read() -> None:
    asked = {probe.feed.path for probe in PROBES.values()}
    assert not asked & {"/props", "/api/ps", "/api/tags", "/api/version", "/slots", "/metrics"}


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("running", {"queue": 0}, "NO_VALUE"),
        ("running", {"idle": 2}, "PARSE_ERROR"),
        ("running", {"idle": True}, "PARSE_ERROR"),
        ("capacity", {"idle": -1}, "PARSE_ERROR"),
        ("waiting", {"queue": -1}, "PARSE_ERROR"),
        ("waiting", {"queue": "3"}, "PARSE_ERROR"),
        ("context", {"value": 0}, "NO_VALUE"),
        ("version", {"software": {"name": "Other", "version": "1"}}, "NO_VALUE"),
        ("version", {"software": {"name": "KoboldCpp", "version": " "}}, "NO_VALUE"),
        ("residency", {"software": {"name": "Other"}}, "NO_VALUE"),
        ("own-version", {"result": "Other", "version": "1"}, "NO_VALUE"),
        ("own-version", {"result": 1}, "PARSE_ERROR"),
    ],
)
def test_what_is_not_its_own_or_cannot_be_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"koboldcpp-{probe}"], ok(body)) == reason
