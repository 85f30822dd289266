"""One model has one name, whatever engines and clients call it; names of one model of an engine share its slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Fleet
from pharos.core.fleet.names import Meant, canonical, meant, offered, spellings
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, OLLAMA_LIKE, OPENAI, M, backend, fleet_of, publish, spec, target

TEXTS = st.text(alphabet=":/.latestny5", max_size=20)


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("tiny", "tiny"),
        ("tiny:latest", "tiny"),
        ("tiny:8b", "tiny:8b"),
        ("org/tiny:latest", "org/tiny"),
        ("host:5000/org/tiny:latest", "host:5000/org/tiny"),
        ("tiny:8b:latest", "tiny:8b:latest"),
        ("tiny:latest:latest", "tiny:latest:latest"),
        ("tiny:LATEST", "tiny:LATEST"),
        ("latest", "latest"),
        (":latest", ":latest"),
        ("org/:latest", "org/:latest"),
        ("", ""),
    ],
)
def test_a_name_without_a_tag_means_the_latest(name: str, one: str) -> None:
    assert canonical(name) == one
    assert Fleet().resolve(name) == one


@given(TEXTS)
def test_the_one_spelling_of_a_name_is_its_own_and_each_other_spelling_leads_to_it(name: str) -> None:
    one = canonical(name)
    assert canonical(one) == one
    assert name in spellings(one)
    assert {canonical(other) for other in spellings(one)} == {one}


def test_the_beginning_of_an_alias_is_a_kind_only_when_there_is_such_a_kind() -> None:
    assert meant("ollama:llama3.1:8b") == Meant("llama3.1:8b", "ollama")
    assert meant("ollama:tiny:latest") == Meant("tiny", "ollama")
    assert meant("qwen2.5:3b") == Meant("qwen2.5:3b")
    assert meant("tiny:latest") == Meant("tiny")
    assert meant("ollama:") == Meant("ollama:")


# What one engine offers.


def test_an_engine_s_names_are_offered_in_its_order_under_their_one_spelling() -> None:
    assert list(offered(("b:latest", "a", "c:8b"), "ollama", (), {}).items()) == [
        ("b", "b:latest"),
        ("a", "a"),
        ("c:8b", "c:8b"),
    ]


def test_where_both_spellings_are_listed_the_bare_one_is_meant() -> None:
    assert offered(("m:latest", "m"), "vllm", (), {}) == {"m": "m"}


def test_a_backend_s_alias_takes_the_place_of_the_engine_s_name_in_any_spelling() -> None:
    for written in ("big", "big:latest"):
        assert offered(("big:latest", "m"), "ollama", ((written, "small:latest"),), {}) == {
            "small": "big:latest",
            "m": "m",
        }


def test_a_backend_s_alias_wins_over_a_model_listed_by_that_name_and_two_may_be_exchanged() -> None:
    assert offered(("a", "b"), "openai", (("a", "b"),), {}) == {"b": "a"}
    assert offered(("a", "b"), "openai", (("a", "b"), ("b", "a")), {}) == {"b": "a", "a": "b"}


def test_an_alias_of_a_model_that_is_not_listed_offers_nothing() -> None:
    assert offered(("a",), "openai", (("x", "y"),), {"z": (Meant("x"),)}) == {"a": "a"}


def test_an_alias_of_the_fleet_means_the_first_that_an_engine_lists_beside_the_engine_s_own_name() -> None:
    aliases = {"fast": (Meant("x"), Meant("a", "vllm"), Meant("b"), Meant("c"))}
    assert offered(("c", "b:latest", "a"), "ollama", (), aliases) == {
        "c": "c",
        "b": "b:latest",
        "fast": "b:latest",
        "a": "a",
    }
    assert offered(("c", "b", "a"), "vllm", (), aliases)["fast"] == "a"


def test_an_alias_of_the_fleet_hides_no_listed_model_and_no_alias_of_the_backend() -> None:
    aliases = {"m": (Meant("a"),)}
    assert offered(("a", "m"), "openai", (), aliases)["m"] == "m"
    assert offered(("a", "b"), "openai", (("b", "m"),), aliases)["m"] == "b"


def test_an_alias_of_the_fleet_finds_an_engine_s_name_that_the_backend_s_own_alias_replaces() -> None:
    assert offered(("a",), "openai", (("a", "b"),), {"c": (Meant("a"),)}) == {"b": "a", "c": "a"}


# In the fleet.


def two_names(**more: object) -> Fleet:
    """A fleet in which `m` of an engine is `fast`, too."""
    fleet = Fleet({"fast": (Meant("m"),)})
    fleet.set_backends((spec("gpu-1", **more),), 0.0)
    return fleet


def test_engines_that_list_a_model_in_either_spelling_serve_it_together() -> None:
    fleet = fleet_of(spec("gpu-1"), spec("gpu-2"))
    publish(fleet, "gpu-1", 1.0, models=("tiny",), plan=OPENAI)
    publish(fleet, "gpu-2", 1.0, models=("tiny:latest",), plan=OLLAMA_LIKE)
    name = fleet.resolve("tiny:latest")
    assert name == fleet.resolve("tiny")
    assert [(one.backend.name, one.served) for one in fleet.targets_for(name, 1.0)] == [
        ("gpu-1", "tiny"),
        ("gpu-2", "tiny:latest"),
    ]
    assert fleet.models(1.0) == ["tiny"]


def test_readings_go_by_the_engine_s_name() -> None:
    fleet = fleet_of(spec(aliases=(("m:latest", "mine"),)))
    loaded = {(Signal.RESIDENCY, "m:latest"): Residency.LOADED, (Signal.CONTEXT_LENGTH, "m:latest"): 4096}
    publish(fleet, "gpu-1", 1.0, loaded, models=("m:latest",), plan=OLLAMA_LIKE)
    it = target(fleet, model="mine")
    assert (it.served, it.view(1.0).residency, it.view(1.0).context_length) == ("m:latest", Residency.LOADED, 4096)
    (event,) = publish(fleet, "gpu-1", 2.0, models=("n",), plan=OLLAMA_LIKE)
    assert (event.outcome, it.listed, it.generation) == ("unlisted", False, 1)


def test_names_of_one_model_of_an_engine_share_its_slots() -> None:
    fleet = two_names()
    publish(fleet, "gpu-1", 1.0, models=("m", "other"), plan=OPENAI)
    own, alias, other = (target(fleet, model=name) for name in ("m", "fast", "other"))
    fleet.dispatched(alias)
    assert own.slots is alias.slots
    assert (own.slots.inflight, own.inflight, other.slots.inflight) == (1, 0, 0)


def test_names_of_one_model_still_share_their_slots_when_a_queue_becomes_known() -> None:
    fleet = two_names()
    publish(fleet, "gpu-1", 1.0, models=("m", "other"), plan=OPENAI)
    own, alias, other = (target(fleet, model=name) for name in ("m", "fast", "other"))
    fleet.dispatched(alias)
    grouped = {(Signal.PHYSICAL_GROUP, name): "queue" for name in ("m", "other")}
    publish(fleet, "gpu-1", 2.0, grouped, models=("m", "other"), plan=OPENAI)
    assert own.slots is alias.slots is other.slots
    assert {own.group, alias.group, other.group} == {"queue"}
    assert own.slots.inflight == 1


def test_a_new_name_of_a_model_joins_the_queue_of_the_known_one() -> None:
    fleet = two_names()
    publish(fleet, "gpu-1", 1.0, {(Signal.PHYSICAL_GROUP, "m"): "queue"}, models=("m",), plan=OPENAI)
    own, alias = (target(fleet, model=name) for name in ("m", "fast"))
    assert own.slots is alias.slots
    assert (own.group, alias.group) == ("queue", "queue")


def test_a_name_that_comes_to_mean_another_model_of_the_engine_starts_anew_there() -> None:
    fleet = two_names()
    publish(fleet, "gpu-1", 1.0, models=("m",), plan=OPENAI)
    own, alias = (target(fleet, model=name) for name in ("m", "fast"))
    before = alias.slots
    own.says_done = alias.says_done = True
    fleet.dispatched(alias)
    (event,) = publish(fleet, "gpu-1", 2.0, models=("m", "fast"), plan=OPENAI)
    assert (event.outcome, alias.listed, alias.served, alias.generation) == ("unlisted", True, "fast", 1)
    assert own.slots is before
    assert alias.slots is not before
    assert (own.says_done, alias.says_done) == (True, False)
    fleet.ended(alias, before, 3.0)
    assert (own.slots.inflight, alias.slots.inflight) == (0, 0)
    publish(fleet, "gpu-1", 4.0, models=("m",), plan=OPENAI)
    assert (alias.served, alias.slots is own.slots) == ("m", True)


def test_a_name_that_moves_to_another_model_follows_into_its_queue() -> None:
    fleet = two_names()
    publish(fleet, "gpu-1", 1.0, models=("m",), plan=LLAMACPP)
    publish(fleet, "gpu-1", 2.0, models=("m", "fast"), plan=LLAMACPP)
    assert target(fleet, model="fast").slots is target(fleet, model="m").slots
    assert len(backend(fleet).queues) == 1


def test_a_fleet_without_aliases_names_models_as_the_engines_do() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    assert (target(fleet).model, target(fleet).served) == (M, M)
