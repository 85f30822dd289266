import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, read, refusal
from tests.core.engine.replay.worlds import expected, probed
from tests.fakes import captures

KIND, VERSION = "lmstudio", "synthetic-0.4.0"
PROBES = {probe.name: probe for probe in by_kind(KIND).probes}
TINY, OTHER, EMBED = KEYS = ("example/tiny", "example/other", "example/tiny-embed")
SECOND, LONG = "example/tiny:2", "other-long"
SIZES = {TINY: 96576768, OTHER: 252160, EMBED: 128000}
READ: dict[str, dict[str, object]] = {
    "idle": {
        "models": {"": KEYS},
        "residency": dict.fromkeys(KEYS, Residency.COLD),
        "context": {},
        "size": SIZES,
        "group": {key: key for key in KEYS},
    },
    "loaded": {
        "models": {"": (TINY, SECOND, OTHER, LONG, EMBED)},
        "residency": {
            **dict.fromkeys((TINY, SECOND, OTHER, LONG), Residency.LOADED),
            EMBED: Residency.COLD,
        },
        "context": {TINY: 4096, SECOND: 16384, OTHER: 8192, LONG: 8192},
        "size": {**SIZES, SECOND: SIZES[TINY], LONG: SIZES[OTHER]},
        "group": {TINY: TINY, SECOND: SECOND, OTHER: OTHER, LONG: OTHER, EMBED: EMBED},
    },
}


@pytest.mark.parametrize("state", ["idle", "loaded"])
def test_each_state_is_read_exactly(state: str) -> None:
    assert probed(KIND, captures.pages(KIND, VERSION, state)) == expected(KIND, READ, state)


def model(*instances: tuple[str, int], **more: object) -> dict[str, object]:
    loaded = [{"id": name, "config": {"context_length": context}} for name, context in instances]
    return {"key": "m", "loaded_instances": loaded, **more}


def test_a_key_whose_instances_differ_in_context_has_none() -> None:
    page = ok({"models": [model(("a", 4096), ("b", 8192))]})
    assert read(PROBES["lmstudio-context"], page) == {"a": 4096, "b": 8192}


def test_what_the_model_could_do_is_no_limit() -> None:
    page = ok({"models": [model(("a", 4096), max_context_length=131072), {**model(), "key": "n"}]})
    assert read(PROBES["lmstudio-context"], page) == {"a": 4096, "m": 4096}


def test_a_size_that_is_not_told_is_left_out() -> None:
    assert read(PROBES["lmstudio-size"], ok({"models": [model(size_bytes=9), {**model(), "key": "n"}]})) == {"m": 9}


@pytest.mark.parametrize(
    ("models", "matches"),
    [
        ([model(), {"key": "n"}], True),
        ([{"key": "n"}], False),  # Ollama's own list has this name too
        ([], None),  # shows nobody's mark
        ([1], None),
    ],
)
def test_it_is_known_by_the_instances_in_its_list(models: list[object], *, matches: bool | None) -> None:
    fingerprint = by_kind(KIND).fingerprint
    assert fingerprint is not None
    assert fingerprint.judge({"/api/v1/models": ok({"models": models})}).matches is matches


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("models", {"data": []}, "NO_VALUE"),
        ("models", {"models": [{"key": "m"}]}, "NO_VALUE"),
        ("models", {"models": [model(), model()]}, "PARSE_ERROR"),
        ("models", {"models": [{**model(), "key": ""}]}, "PARSE_ERROR"),
        ("models", {"models": [model(("", 1))]}, "PARSE_ERROR"),
        ("models", {"models": [model(("a", 1), ("a", 2))]}, "PARSE_ERROR"),
        ("context", {"models": [model(("a", 0))]}, "NO_VALUE"),
        ("context", {"models": [model(("a", -1))]}, "PARSE_ERROR"),
        ("size", {"models": [model(size_bytes="9")]}, "PARSE_ERROR"),
    ],
)
def test_what_cannot_be_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"lmstudio-{probe}"], ok(body)) == reason
