import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, read, refusal
from tests.core.engine.replay.worlds import expected, probed
from tests.fakes import captures

KIND, VERSION = "lemonade", "synthetic-11.7.0"
PROBES = {probe.name: probe for probe in by_kind(KIND).probes}
MODELS = ("Tiny-GGUF", "Tiny-Embed-GGUF", "Tiny-FLM")
READ: dict[str, dict[str, object]] = {
    "": {
        "version": {"": "11.7.0"},
        "catalogue": {"": MODELS},
        "models": {"": MODELS},
        "running": {},  # passed on while llama.cpp has a model
        "waiting": {},
    },
    "idle": {"residency": {"": Residency.COLD}},
    "loading": {"residency": {"": Residency.COLD, "Tiny-GGUF": Residency.LOADING}},
    "busy": {
        "residency": {"": Residency.COLD, "Tiny-GGUF": Residency.LOADED, "Tiny-FLM": Residency.LOADED},
        "running": {"Tiny-GGUF": 2},  # nobody tells it of the other, which is not llama.cpp's
        "waiting": {"Tiny-GGUF": 1},
    },
}


@pytest.mark.parametrize("state", ["idle", "loading", "busy"])
def test_each_state_is_read_exactly(state: str) -> None:
    assert probed(KIND, captures.pages(KIND, VERSION, state)) == expected(KIND, READ, state)


def test_beside_a_model_in_an_unknown_state_nothing_is_known_to_be_cold() -> None:
    page = ok(
        {"all_models_loaded": [{"model_name": "a", "status": "Loaded"}, {"model_name": "b", "status": "thinking"}]}
    )
    assert read(PROBES["lemonade-residency"], page) == {"a": Residency.LOADED}


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("version", {"version": " "}, "NO_VALUE"),
        ("residency", {"status": "ok"}, "NO_VALUE"),
        ("residency", {"all_models_loaded": [{"model_name": "a"}]}, "NO_VALUE"),
        ("residency", {"all_models_loaded": [{"model_name": "", "status": "loaded"}]}, "PARSE_ERROR"),
        ("residency", {"all_models_loaded": [{"model_name": "a", "status": "loaded"}] * 2}, "PARSE_ERROR"),
        ("running", 'lemonade_llamacpp_requests_processing{model="a",port="8101"} 1\n', "NO_EVIDENCE"),
        ("running", "lemonade_llamacpp_requests_processing 1\n", "PARSE_ERROR"),
        ("running", "llamacpp:requests_processing 1\n", "NO_VALUE"),
        ("running", 'lemonade_llamacpp_other{model="a"} 1\n', "NO_VALUE"),
        ("running", "<html>", "PARSE_ERROR"),
        ("waiting", 'lemonade_llamacpp_requests_deferred{model="a"} 0\n', "NO_EVIDENCE"),
    ],
)
def test_what_cannot_be_or_is_not_proven_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"lemonade-{probe}"], ok(body)) == reason
