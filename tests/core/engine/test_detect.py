import pytest

from pharos.core.engine import detect
from pharos.core.engine.detect import Detection
from pharos.core.engine.probe import FetchFault, Page
from tests.core.engine.pages import fault, fetched, ok, status

PROPS = {"build_info": "b11434-abc", "total_slots": 2, "is_sleeping": False}
LIST = {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]}
FOREIGN = {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]}


def detected(pages: dict[str, Page]) -> Detection:
    return detect.judge(fetched(detect.next_paths, pages))


def test_llamacpp_is_known_by_its_list_and_its_own_page() -> None:
    found = detected({"/props": ok(PROPS), "/v1/models": ok(LIST)})
    assert found == Detection(kind="llamacpp", evidence="/props has build_info 'b11434-abc' and total_slots 2")


def test_llamacpp_is_known_by_its_header_and_its_own_page_without_its_list() -> None:
    assert detected({"/props": ok(PROPS, server="llama.cpp")}).kind == "llamacpp"


def test_once_it_is_decided_nothing_more_is_asked() -> None:
    assert detect.next_paths({}) == ("/props", "/v1/models")
    assert detect.next_paths({"/props": ok(PROPS, server="llama.cpp")}) == ()
    assert detect.next_paths({"/props": status(404)}) == ("/v1/models",)
    assert detect.next_paths({"/props": status(404), "/v1/models": status(404)}) == ()


def test_an_imitation_of_props_without_build_info_is_not_llamacpp() -> None:
    koboldcpp = {"object": "list", "data": [{"id": "koboldcpp/m", "owned_by": "koboldcpp"}]}
    found = detected({"/props": ok({"total_slots": 1, "chat_template": ""}), "/v1/models": ok(koboldcpp)})
    assert found.kind == "openai"
    assert "no build_info" in found.evidence


def test_a_list_passed_on_from_llamacpp_without_its_own_page_is_not_llamacpp() -> None:
    assert detected({"/props": status(404), "/v1/models": ok(LIST, server="llama.cpp")}).kind == "openai"


def test_props_of_nobody_in_particular_are_not_llamacpp() -> None:
    found = detected({"/props": ok(PROPS), "/v1/models": ok(FOREIGN)})
    assert found.kind == "openai"
    assert "neither the Server header nor owned_by" in found.evidence


def test_router_mode_is_generic_for_now_and_said() -> None:
    router = {"role": "router", "build_info": "b11434-abc"}
    found = detected({"/props": ok(router, server="llama.cpp"), "/v1/models": ok(LIST)})
    assert found.kind == "openai"
    assert "router mode" in found.evidence


@pytest.mark.parametrize("body", ["<html>", "[]", '"x"', '{"build_info":7,"total_slots":2}'])
def test_a_web_page_under_props_is_a_no_when_the_list_is_anothers(body: str) -> None:
    assert detected({"/props": ok(body), "/v1/models": ok(FOREIGN)}).kind == "openai"


def test_a_damaged_page_of_what_says_it_is_llamacpp_leaves_the_kind_open() -> None:
    found = detected({"/props": ok('{"build_info":'), "/v1/models": ok(LIST)})
    assert (found.kind, found.pending) == (None, "/props: cannot be read: not JSON")


@pytest.mark.parametrize("page", [status(503), status(500), status(429), status(401), fault(), fault(FetchFault.RESET)])
def test_no_real_answer_under_props_leaves_the_kind_open(page: Page) -> None:
    found = detected({"/props": page, "/v1/models": ok(LIST)})
    assert found.kind is None
    assert found.pending is not None
    assert found.pending.startswith("/props")


@pytest.mark.parametrize("page", [status(503), fault()])
def test_no_real_answer_under_models_leaves_the_kind_open(page: Page) -> None:
    for props in (status(404), ok(PROPS), ok("<html>")):
        found = detected({"/props": props, "/v1/models": page})
        assert found.kind is None
        assert found.pending is not None


def test_a_fault_without_a_name_is_no_answer_either() -> None:
    assert detected({"/props": Page(status=None)}).pending == "/props: no connection"


@pytest.mark.parametrize(
    ("page", "why"), [(status(404), "answers 404"), (ok("<html>"), "no OpenAI-style model list"), (ok({}), "no data")]
)
def test_what_has_no_model_list_is_no_engine(page: Page, why: str) -> None:
    found = detected({"/props": status(404), "/v1/models": page})
    assert found.kind is None
    assert found.pending is not None
    assert why in found.pending


def test_a_model_list_and_no_fingerprint_is_the_generic_kind() -> None:
    found = detected({"/props": status(501), "/v1/models": ok({"data": []})})
    assert found == Detection(kind="openai", evidence="/v1/models is a model list, and no fingerprint fits")


def test_props_that_cannot_be_read_beside_an_unreadable_list_are_no_engine() -> None:
    assert detected({"/props": ok(PROPS), "/v1/models": ok("<html>")}).kind is None
