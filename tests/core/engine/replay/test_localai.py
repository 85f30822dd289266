import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, refusal, status
from tests.core.engine.replay.worlds import expected, probed
from tests.fakes import captures

KIND, VERSION = "localai", "synthetic-4.9.0"
PROBES = {probe.name: probe for probe in by_kind(KIND).probes}
READ: dict[str, dict[str, object]] = {
    "": {"version": {"": "v4.9.0"}, "models": {"": ("tiny", "tiny-embed", "mmproj.bin")}},
    "idle": {"residency": {"": Residency.COLD}},
    "busy": {"residency": {"tiny": Residency.LOADED}},
}


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_each_state_is_read_exactly(state: str) -> None:
    assert probed(KIND, captures.pages(KIND, VERSION, state)) == expected(KIND, READ, state)


def test_a_page_for_administrators_needs_a_credential() -> None:
    pages = {**captures.pages(KIND, VERSION, "idle"), "/system": status(401)}
    assert probed(KIND, pages)["localai-residency"] == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("version", {"version": ""}, "NO_VALUE"),
        ("residency", {}, "NO_VALUE"),
        ("residency", {"loaded_models": {}}, "PARSE_ERROR"),
        ("residency", {"loaded_models": [{"id": ""}]}, "PARSE_ERROR"),
    ],
)
def test_what_cannot_be_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"localai-{probe}"], ok(body)) == reason
