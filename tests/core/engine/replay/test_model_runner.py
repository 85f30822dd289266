import pytest

from pharos.core.engine.probe import Page
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, read, refusal, status
from tests.core.engine.replay.worlds import expected, probed
from tests.fakes import captures

KIND, VERSION = "model-runner", "synthetic-1.2.6"
PROBES = {probe.name: probe for probe in by_kind(KIND).probes}
TINY, EMBED, OTHER = MODELS = ("ai/tiny:latest", "ai/tiny-embed:latest", "ai/other:latest")
READ: dict[str, dict[str, object]] = {
    "": {"list": {"": MODELS}, "models": {"": MODELS}, "running": {"": 0}, "waiting": {"": 0}, "kv": {}},
    "idle": {"residency": {"": Residency.COLD}},
    "loading": {"residency": {TINY: Residency.LOADING}},
    "busy": {
        "residency": {TINY: Residency.LOADED, EMBED: Residency.LOADED},
        "running": {TINY: 2, EMBED: 0},
        "waiting": {TINY: 3, EMBED: 0},
    },
    "two_engines": {
        "residency": {TINY: Residency.LOADED, OTHER: Residency.LOADED},
        "running": {TINY: 1, OTHER: 5},
        "waiting": {TINY: 0, OTHER: 2},
        "kv": {OTHER: 0.25},
    },
}


@pytest.mark.parametrize("state", ["idle", "loading", "busy", "two_engines"])
def test_each_state_is_read_exactly(state: str) -> None:
    assert probed(KIND, captures.pages(KIND, VERSION, state)) == expected(KIND, READ, state)


def entry(model: str, **more: object) -> dict[str, object]:
    return {"backend_name": "llama.cpp", "model_name": model, "mode": "completion", **more}


def test_a_model_with_one_process_loaded_and_another_loading_is_unknown() -> None:
    page = ok([entry("a"), entry("a", mode="embedding", loading=True), entry("b", loading=True)])
    assert read(PROBES["model-runner-residency"], page) == {"b": Residency.LOADING}


def test_an_engine_without_a_models_name_does_not_speak_of_all_models() -> None:
    assert refusal(PROBES["model-runner-residency"], ok([entry("a"), entry("")])) == "PARSE_ERROR"


def test_processes_of_one_model_add_up() -> None:
    page = ok(
        'llamacpp:requests_processing{backend="llama.cpp",mode="completion",model="a"} 1\n'
        'llamacpp:requests_processing{backend="llama.cpp",mode="embedding",model="a"} 2\n'
        "other 1\n"
    )
    assert read(PROBES["model-runner-running"], page) == {"a": 3}


def test_of_engines_without_metrics_nothing_is_known() -> None:
    assert read(PROBES["model-runner-running"], ok("# something\nother 1\n")) == {}


def test_an_engine_that_cannot_be_read_does_not_hide_another() -> None:
    page = ok(
        'llamacpp:requests_processing{backend="llama.cpp",mode="completion",model="a",slot="0"} 1\n'
        'vllm:num_requests_running{backend="vllm",mode="completion",model="b",model_name="b",engine="0"} 2\n'
        "other 1\n"
    )
    assert read(PROBES["model-runner-running"], page) == {"b": 2}


def models(owner: str | None) -> Page:
    return ok({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]})


@pytest.mark.parametrize(
    ("started", "listed", "matches"),
    [
        ([entry("a")], models(None), True),
        ([], models("docker"), True),
        ([], ok({"object": "list", "data": []}), True),
        ([], status(404), True),
        ([], models("somebody"), False),  # an empty list is what many a program answers
        ([{"name": "x"}], models("docker"), False),
        ({}, models("docker"), None),
    ],
)
def test_it_is_known_by_the_engines_that_it_started(started: object, listed: Page, *, matches: bool | None) -> None:
    fingerprint = by_kind(KIND).fingerprint
    assert fingerprint is not None
    assert fingerprint.judge({"/v1/models": listed, "/engines/ps": ok(started)}).matches is matches


BOTH = """\
llamacpp:requests_processing{backend="b",mode="m",model="a"} 1
vllm:num_requests_running{backend="b",mode="m",model="a",model_name="a",engine="0"} 1
other 1
"""


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("residency", {}, "PARSE_ERROR"),
        ("residency", [{"backend_name": "x"}], "NO_VALUE"),
        ("residency", [entry("a", loading="yes")], "PARSE_ERROR"),
        ("residency", [1], "PARSE_ERROR"),
        ("running", "# No active", "PARSE_ERROR"),
        ("running", "llamacpp:requests_processing 1\nother 1\n", "PARSE_ERROR"),
        ("waiting", 'llamacpp:requests_deferred{backend="b",mode="m",model="a"} 0\nother 1\n', "NO_EVIDENCE"),
        ("running", BOTH, "NO_EVIDENCE"),
    ],
)
def test_what_cannot_be_or_is_not_proven_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"model-runner-{probe}"], ok(body)) == reason
