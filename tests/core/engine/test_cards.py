import pytest

from pharos.core.engine import cards
from pharos.core.engine.probe import DropReason, ProbeError
from pharos.core.engine.recipe import Verdict
from pharos.core.signals import Residency
from tests.core.engine.pages import fault, ok, status


def card(name: str, root: object = "/m", parent: object = None, length: object = 4096) -> dict[str, object]:
    return {"id": name, "root": root, "parent": parent, "max_model_len": length}


def listed(*entries: dict[str, object]) -> dict[str, object]:
    return {"object": "list", "data": list(entries)}


def test_names_of_one_root_and_its_adapters_are_one_queue_named_by_the_first() -> None:
    document = listed(card("a"), card("b"), card("l", "/lora", "b", None))
    assert cards.groups(document) == {"a": "a", "b": "a", "l": "a"}


def test_models_of_other_roots_have_queues_of_their_own() -> None:
    document = listed(card("a"), card("b", "/n"), card("l", "/lora", "b", None))
    assert cards.groups(document) == {"a": "a", "b": "b", "l": "b"}


def test_an_adapter_whose_parent_is_not_listed_belongs_to_the_only_model() -> None:
    assert cards.groups(listed(card("a"), card("l", "/lora", "/m"))) == {"a": "a", "l": "a"}


def test_an_adapter_comes_before_its_parent_as_well_as_after() -> None:
    assert cards.groups(listed(card("l", "/lora", "a"), card("a"))) == {"l": "a", "a": "a"}


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([card("a"), card("b", "/n"), card("l", "/lora", "gone")], DropReason.NO_EVIDENCE),
        ([card("l", "/lora", "gone")], DropReason.NO_EVIDENCE),
        ([card("a", None)], DropReason.PARSE_ERROR),
        ([{"id": "a"}], DropReason.PARSE_ERROR),
        ([card("a"), card("l", "/lora", 7)], DropReason.PARSE_ERROR),
        ([card("a"), card("a", "/n")], DropReason.PARSE_ERROR),
    ],
)
def test_a_card_that_does_not_say_whose_it_is_leaves_all_queues_unknown(
    entries: list[dict[str, object]], reason: DropReason
) -> None:
    with pytest.raises(ProbeError) as caught:
        cards.groups(listed(*entries))
    assert caught.value.reason is reason


def test_all_names_of_an_engine_with_one_model_share_the_queue_of_the_first() -> None:
    assert cards.one_queue(listed(card("a"), card("b", "/n"))) == {"a": "a", "b": "a"}
    assert cards.one_queue(listed()) == {}


def test_an_adapter_has_the_context_of_its_parent_unless_it_has_its_own() -> None:
    document = listed(card("a"), card("l", "/lora", "a", None), card("k", "/lora", "a", 1024))
    assert cards.context_lengths(document) == {"a": 4096, "l": 4096, "k": 1024}


def test_a_model_that_tells_no_context_has_none_and_its_adapters_neither() -> None:
    document = listed(card("a", length=None), card("l", "/lora", "a", None), card("b", "/n"))
    assert cards.context_lengths(document) == {"b": 4096}


@pytest.mark.parametrize("length", [0, -1, "4096", 1.5, True])
def test_a_context_that_cannot_be_is_refused(length: object) -> None:
    with pytest.raises(ProbeError):
        cards.context_lengths(listed(card("a", length=length)))


def test_two_cards_of_one_name_that_differ_are_refused() -> None:
    with pytest.raises(ProbeError, match="two cards of 'a' differ"):
        cards.context_lengths(listed(card("a"), card("a", length=1024)))
    assert cards.context_lengths(listed(card("a"), card("a"))) == {"a": 4096}


def test_a_version_is_text_that_is_not_empty() -> None:
    assert cards.version({"version": "0.32.0"}) == {"": "0.32.0"}
    for document in ({}, {"version": " "}, {"version": None}, {"version": 3}):
        with pytest.raises(ProbeError):
            cards.version(document)


def test_a_listed_model_of_an_engine_that_never_unloads_is_loaded() -> None:
    assert cards.always_loaded(listed(card("a"))) == {"": Residency.LOADED}
    with pytest.raises(ProbeError, match="no model is listed"):
        cards.always_loaded(listed())


def test_only_a_list_of_its_owner_may_be_its_own() -> None:
    mine = ok(listed({**card("a"), "owned_by": "me"}))
    assert cards.unclaimed({"/v1/models": mine}, "me") is None
    assert cards.unclaimed({"/v1/models": mine}, "you") == Verdict(matches=False)
    assert cards.unclaimed({"/v1/models": status(404)}, "me") == Verdict(matches=False)
    assert cards.unclaimed({"/v1/models": ok(listed())}, "me") == Verdict(matches=False)
    assert cards.unclaimed({}, "me") == Verdict(matches=None, text="/v1/models has not been asked")
    waiting = cards.unclaimed({"/v1/models": fault()}, "me")
    assert waiting is not None
    assert waiting.matches is None


def test_a_page_that_tells_a_version_speaks_for_it() -> None:
    told = cards.told_version({"/version": ok({"version": "1.2"})}, "/version")
    assert told == Verdict(matches=True, text="/version is version '1.2'")
    assert cards.told_version({"/version": ok('{"version":')}, "/version").matches is None
    assert cards.told_version({"/version": ok({})}, "/version").matches is False
