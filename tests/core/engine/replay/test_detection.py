"""Every recorded and hand-made state through detection: the right kind, few GETs, and none that any engine minds."""

import re

import pytest

from pharos.core.engine import detect
from pharos.core.engine.probe import Page
from pharos.core.engine.recipes import RECIPES
from tests.core.engine.pages import NOW, ok, status
from tests.core.engine.replay.worlds import Visit, World, all_states

Row = tuple[str, str, str]
ROWS = all_states()
MOST_GETS, MOST_ROUNDS = 15, 4
OTHERWISE: dict[str, str | None] = {
    "llamacpp/b11434/loading": None,  # 503 on every path
    "vllm/synthetic-no-stats/locked": None,  # 401
    "sglang/synthetic-0.4.9/no-metrics": "openai",  # none of its own pages that are asked for is there
    "trtllm/synthetic-1.2.0/no-metrics": "openai",  # nothing tells it from any other server
}
"""States whose kind cannot be seen."""
USUAL = {
    "llamacpp": 2,
    "ollama": 3,
    "vllm": 4,
    "llama-swap": 3,
    "llamacpp-router": 2,
    "koboldcpp": 2,
    "model-runner": 2,
}
"""GETs that tell these kinds, by the owner of their models."""

HARMLESS = {
    "/v1/models": "all engines list their models without loading one",
    "/props": "without a model's name: the router answers for itself, llama-swap that it lacks a name; wakes nobody",
    "/running": "llama-swap's; unknown to others",
    "/version": "a constant wherever it exists",
    "/api/version": "a constant wherever it exists",
    "/api/status": "Ollama's; a constant",
    "/v1/loads": "SGLang's counters, made to be asked often",
    "/info": "TGI's; a constant",
    "/api/extra/version": "KoboldCpp's; a constant",
    "/engines/ps": "Model Runner's; it looks into a table",
    "/api/v1/models": "LM Studio's and Lemonade's lists",
    "/api/v1/health": "Lemonade's; SGLang's that generates is /health alone",
    "/.well-known/localai.json": "LocalAI's; a constant",
}
"""Paths that may be sent to anything, each with the reason. A new one needs to be checked against every engine."""
GUARDED = {
    "/metrics": "drains TensorRT-LLM's statistics; wakes a sleeping llama.cpp before b11549",
    "/prometheus/metrics": "asked of TensorRT-LLM alone",
    "/load": "asked of vLLM alone",
    "/is_sleeping": "asked of LMDeploy alone",
    "/server_info": "goes round through SGLang's scheduler",
    "/api/extra/version": "only to tell an old Ollama from what imitates it",
    "/engines/ps": "only to tell an old Ollama from what imitates it",
    "/api/v1/health": "only to tell an old Ollama from what imitates it",
    "/.well-known/localai.json": "only to tell an old Ollama from what imitates it",
    "/api/version": "only where /running is llama-swap's",
}
FORBIDDEN = re.compile(
    r"^/health|/slots|/perf_metrics|/upstream|/unload|/flush_cache|/release_|/slow_down|/start_profile|"
    r"/terminate|/get_server_info|/backend/monitor|^/api/(show|generate|chat|ps|tags|events)$|/kv_cache_events|\?"
)
"""What loads, wakes, pins, drains, generates or costs an engine, in any of them; and any path with a query."""
MINDS = {
    "trtllm": {"/metrics"},
    "llamacpp": {"/metrics"},
    "llamacpp-router": {"/metrics"},
    "llama-swap": {"/metrics"},
    "mlx-lm": {"/metrics"},
}
"""Engine -> what it must not be asked while its kind is open, besides what is forbidden everywhere."""


@pytest.mark.parametrize("row", ROWS, ids="/".join)
def test_every_state_is_of_its_kind_after_few_harmless_gets(row: Row) -> None:
    world = World(*row)
    visit = Visit(world.get)
    assert visit.found.kind == OTHERWISE.get("/".join(row), world.kind), visit.found
    assert len(visit.pages) <= MOST_GETS
    assert len(visit.rounds) <= MOST_ROUNDS
    assert not [path for path in visit.pages if FORBIDDEN.search(path)]
    assert not MINDS.get(row[0], set()) & set(visit.pages)
    if visit.found.kind in USUAL:
        assert len(visit.pages) == USUAL[visit.found.kind]


def test_the_exceptions_are_of_states_that_exist() -> None:
    assert set(OTHERWISE) <= {"/".join(row) for row in ROWS}
    assert set(RECIPES) <= {*(World(*row).kind for row in ROWS)}


@pytest.mark.parametrize("kind", RECIPES)
def test_a_fingerprint_asks_only_what_is_known_to_be_harmless(kind: str) -> None:
    fingerprint = RECIPES[kind].fingerprint
    if fingerprint is None:
        return
    assert set(fingerprint.paths) <= set(HARMLESS)
    assert set(fingerprint.guarded) <= set(GUARDED)
    assert not [path for path in (*fingerprint.paths, *fingerprint.guarded) if FORBIDDEN.search(path)]
    assert not fingerprint.may({})


def test_all_that_may_be_asked_in_one_visit_is_within_its_limit() -> None:
    fingerprints = [recipe.fingerprint for recipe in RECIPES.values() if recipe.fingerprint is not None]
    open_to_all = {detect.LIST_PATH, *(path for one in fingerprints for path in one.paths)}
    for one in fingerprints:
        assert len(open_to_all | set(one.guarded)) <= MOST_GETS


def world_of(engine: str) -> World:
    return World(*next(row for row in ROWS if row[0] == engine and row[2] != "loading"))


IMITATIONS = {
    "koboldcpp": ("/api/version", "/api/ps", "/api/tags", "/props"),
    "localai": ("/api/version", "/api/ps", "/api/tags", "/"),
    "lemonade": ("/api/version", "/api/ps", "/api/tags"),
    "model-runner": ("/api/version", "/api/ps", "/api/tags", "/metrics"),
    "llama-swap": ("/api/version",),
}


@pytest.mark.parametrize("engine", IMITATIONS)
def test_an_imitation_is_never_taken_for_what_it_imitates(engine: str) -> None:
    world = world_of(engine)
    assert all(world.get(path).status == 200 for path in IMITATIONS[engine]), "the fixture must imitate"
    assert Visit(world.get).found.kind == engine
    # Nor when the page that gives it away is lost, or says nothing, or the owners are left out of the list.
    fingerprint = RECIPES[engine].fingerprint
    assert fingerprint is not None
    for lost in (status(404), status(503), ok("{}"), ok("{")):
        for page in (world.get("/v1/models"), ok({"object": "list", "data": [{"id": "m", "object": "model"}]})):
            damaged = {"/v1/models": page, fingerprint.paths[0]: lost}
            found = Visit(lambda path, damaged=damaged: damaged.get(path, world.get(path))).found
            assert found.kind in {engine, "openai", None}, found


def test_an_old_ollama_is_known_by_what_it_lacks() -> None:
    world = world_of("ollama")
    visit = Visit(lambda path: status(404) if path == "/api/status" else world.get(path))
    assert visit.found.kind == "ollama"
    assert len(visit.pages) == 7


@pytest.mark.parametrize(
    "lacking", ["/api/extra/version", "/engines/ps", "/api/v1/health", "/.well-known/localai.json"]
)
def test_an_old_ollama_is_not_known_while_one_of_those_has_no_answer(lacking: str) -> None:
    world = world_of("ollama")
    answers = {"/api/status": status(404), lacking: status(503)}
    assert Visit(lambda path: answers.get(path, world.get(path))).found.kind is None


def test_a_gateway_that_lists_models_and_shows_pages_for_people_is_generic() -> None:
    page = Page(200, b"<!doctype html><html></html>", {"content-type": "text/html"}, sent_at=NOW - 0.5)
    listed = ok({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "somebody"}]})
    found = Visit(lambda path: listed if path == "/v1/models" else page).found
    assert found.kind == "openai"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "llamacpp", "ollama", "koboldcpp", "model-runner"])
def test_a_proxy_that_passes_on_a_list_and_nothing_else_is_generic(engine: str) -> None:
    listed = world_of(engine).get("/v1/models")
    visit = Visit(lambda path: listed if path == "/v1/models" else status(404))
    assert visit.found.kind == "openai"
    assert len(visit.pages) <= MOST_GETS


def test_model_runner_behind_its_openai_path_is_generic_and_says_why() -> None:
    listed = world_of("model-runner").get("/v1/models")
    found = Visit(lambda path: listed if path == "/v1/models" else status(404)).found
    assert "does the address end in /engines?" in found.evidence
