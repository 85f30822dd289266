"""How detection goes about it, with kinds made up for the purpose; recorded engines are in `replay/`."""

import pytest

from pharos.core.engine import detect
from pharos.core.engine.detect import Detection
from pharos.core.engine.jsonfeed import member, of_type
from pharos.core.engine.probe import FetchFault, Page, Pages
from pharos.core.engine.recipe import Fingerprint, Recipe, Verdict, all_owned, confirm, owners_of
from pharos.core.engine.recipes import by_kind
from tests.core.engine.pages import fault, ok, status

LIST = "/v1/models"


def named(document: object) -> str:
    return f"says {of_type(member(document, 'name'), str, 'name')}"


def kind(name: str, rank: int, **more: object) -> Recipe:
    """A kind that is recognised by the `name` on its page, and owns the models that bear its name."""

    def judge(pages: Pages) -> Verdict:
        return confirm(pages, f"/{name}", named, claimed=all_owned(pages, name))

    return Recipe(
        kind=name, rank=rank, probes=(), owners=(name,), fingerprint=Fingerprint((f"/{name}",), judge, **more)
    )


def both(pages: Pages) -> Verdict:
    first = confirm(pages, "/minds", named)
    return confirm(pages, "/secret", named) if first.matches else first


MINDS = Recipe(
    kind="minds",
    rank=220,
    probes=(),
    owners=("minds",),
    fingerprint=Fingerprint(
        ("/minds",), both, guarded=("/secret",), may=lambda pages: all_owned(pages, "minds") and "/minds" in pages
    ),
)
RECIPES = {
    recipe.kind: recipe
    for recipe in (
        kind("front", 100),
        kind("gate", 110),
        kind("engine", 200),
        kind("motor", 210),
        MINDS,
        Recipe(kind="any", rank=1000, probes=()),
    )
}


def models(*owners: str | None) -> Page:
    cards = [{"id": f"m{n}", **({"owned_by": owner} if owner else {})} for n, owner in enumerate(owners)]
    return ok({"object": "list", "data": cards})


def visited(there: dict[str, Page]) -> tuple[Detection, list[tuple[str, ...]]]:
    pages: dict[str, Page] = {}
    rounds = []
    while paths := detect.next_paths(pages, RECIPES):
        rounds.append(paths)
        pages |= {path: there.get(path, status(404)) for path in paths}
    return detect.judge(pages, RECIPES), rounds


def found(there: dict[str, Page]) -> Detection:
    return visited(there)[0]


def test_the_list_is_asked_first_and_alone() -> None:
    assert detect.next_paths({}, RECIPES) == (LIST,)
    assert detect.judge({}, RECIPES) == Detection(kind=None, pending="/v1/models has not been asked")


def test_the_owner_of_the_models_says_whose_page_to_look_at() -> None:
    seen, rounds = visited({LIST: models("engine", "engine"), "/engine": ok({"name": "E"})})
    assert rounds == [(LIST,), ("/engine",)]
    assert seen == Detection(kind="engine", evidence="/engine says E")


def test_an_owner_alone_is_never_enough() -> None:
    seen, rounds = visited({LIST: models("engine")})
    assert rounds == [(LIST,), ("/engine",), ("/front", "/gate", "/motor", "/minds")]
    assert seen.kind == "any"


def test_a_list_without_owners_has_all_pages_looked_at_side_by_side() -> None:
    seen, rounds = visited({LIST: models(None), "/motor": ok({"name": "M"})})
    assert rounds == [(LIST,), ("/front", "/gate", "/engine", "/motor", "/minds")]
    assert seen.kind == "motor"


def test_what_some_engine_minds_is_asked_only_once_the_pages_allow_it() -> None:
    page = ok({"name": "M"})
    seen, rounds = visited({LIST: models("minds"), "/minds": page, "/secret": page})
    assert rounds == [(LIST,), ("/minds",), ("/secret",)]
    assert seen.kind == "minds"
    seen, rounds = visited({LIST: models(None), "/minds": page, "/secret": page})
    assert "/secret" not in {path for paths in rounds for path in paths}
    assert (seen.kind, seen.pending) == (None, "/secret has not been asked")


def test_nothing_is_remembered_from_one_visit_to_the_next() -> None:
    first = {LIST: models("engine"), "/engine": ok({"name": "E"})}
    second = {LIST: models("motor"), "/motor": ok({"name": "M"})}
    before, after = found(first), found(second)
    assert (before.kind, after.kind, found(first)) == ("engine", "motor", before)


@pytest.mark.parametrize(
    "page", [status(503), status(500), status(521), status(429), fault(), fault(FetchFault.REFUSED), Page(status=None)]
)
def test_an_engine_without_a_real_answer_is_not_yet_known_after_one_get(page: Page) -> None:
    seen, rounds = visited({LIST: page, "/engine": ok({"name": "E"})})
    assert rounds == [(LIST,)]
    assert seen.kind is None
    assert seen.pending is not None
    assert seen.pending.startswith(LIST)


def test_a_fault_without_a_name_is_no_answer_either() -> None:
    assert found({LIST: Page(status=None)}).pending == "/v1/models: no connection"


@pytest.mark.parametrize("code", [401, 403, 407])
def test_a_locked_engine_is_not_yet_known_and_needs_a_credential(code: int) -> None:
    told = f"answers {code}: it needs a credential"
    assert found({LIST: status(code)}) == Detection(kind=None, pending=f"/v1/models {told}")
    behind = found({LIST: models("engine"), "/engine": status(code)})
    assert behind == Detection(kind=None, pending=f"/engine {told}")


@pytest.mark.parametrize("page", [status(503), status(500), status(401), fault(), fault(FetchFault.RESET)])
@pytest.mark.parametrize("owner", ["engine", "stranger", None])
def test_a_deciding_page_without_a_real_answer_leaves_the_kind_open(page: Page, owner: str | None) -> None:
    seen = found({LIST: models(owner), "/engine": page})
    assert seen.kind is None
    assert seen.pending is not None
    assert seen.pending.startswith("/engine")


def test_the_kind_that_the_list_speaks_for_is_waited_for_and_no_other_is_asked() -> None:
    seen, rounds = visited({LIST: models("engine"), "/engine": status(503)})
    assert rounds == [(LIST,), ("/engine",)]
    assert seen.pending == "/engine answers 503"


def test_many_reasons_are_counted_not_listed() -> None:
    closed = {f"/{name}": status(500) for name in ("front", "gate", "engine", "motor")}
    pending = found({LIST: models(None), **closed}).pending
    assert pending == "/front answers 500; /gate answers 500; and 2 more such pages"


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (status(302), "answers 302 and leads elsewhere, to a login perhaps"),
        (status(400), "answers 400: this is no engine"),
        (ok("<html><body>Welcome</body></html>"), "is no OpenAI-style model list but a web page"),
        (ok(" \n<!doctype html>"), "a web page"),
        (Page(200, b"hello", {"content-type": "text/html; charset=utf-8"}), "a web page"),
        (ok("hello"), "is no OpenAI-style model list: cannot be read: not JSON"),
        (ok("["), "cannot be read"),
        (ok(b"\xff\xfe{}"), "not UTF-8"),
        (ok({}), "no data"),
        (ok({"data": [{}]}), "id is not text"),
    ],
)
def test_what_has_no_model_list_is_no_engine_after_one_get(page: Page, why: str) -> None:
    seen, rounds = visited({LIST: page, "/engine": ok({"name": "E"})})
    assert rounds == [(LIST,)]
    assert seen.kind is None
    assert why in str(seen.pending)


def test_an_engine_without_an_openai_route_is_still_known_by_its_own_page() -> None:
    for code in (404, 405, 501):
        assert found({LIST: status(code), "/engine": ok({"name": "E"})}).kind == "engine"
        nobody = found({LIST: status(code), "/engine": ok({})})
        assert (nobody.kind, nobody.pending) == (
            None,
            f"/v1/models answers {code}: this is no engine that Pharos can use; /engine: no value: no name",
        )


def test_the_generic_kind_needs_a_real_no_from_every_fingerprint() -> None:
    assert found({LIST: models("stranger")}) == Detection(
        kind="any", evidence="/v1/models is a model list, and no fingerprint fits"
    )
    with_notes = found({LIST: models(), "/engine": ok({}), "/motor": ok("<html>"), "/gate": status(501)})
    assert with_notes.kind == "any"
    assert with_notes.evidence.endswith("no fingerprint fits; /engine: no value: no name; /motor is a web page")


@pytest.mark.parametrize("body", ['{"name":', '{"name":7}', "", "[1]", b"{\xff"])
def test_a_damaged_page_says_nothing_about_who_wrote_it(body: str | bytes) -> None:
    for owner in ("engine", "stranger"):
        seen = found({LIST: models(owner), "/engine": ok(body)})
        assert (seen.kind, str(seen.pending)[:8]) == (None, "/engine:")


def test_text_in_the_place_of_a_page_is_damage_only_where_the_list_speaks_for_it() -> None:
    assert found({LIST: models("engine"), "/engine": ok("OK")}).kind is None
    assert found({LIST: models("stranger"), "/engine": ok("OK")}).kind == "any"


def test_a_front_that_also_shows_an_engine_is_the_front() -> None:
    seen = found({LIST: models(None), "/engine": ok({"name": "E"}), "/front": ok({"name": "F"})})
    assert seen == Detection(kind="front", evidence="/front says F; what it shows of engine is passed on or imitated")
    # The list that it passes on may be the engine's.
    passing_on = {LIST: models("motor"), "/motor": status(404), "/front": ok({"name": "F"})}
    assert found(passing_on).kind == "front"


@pytest.mark.parametrize("pair", [("engine", "motor"), ("front", "gate")])
def test_two_programs_behind_one_address_are_neither(pair: tuple[str, str]) -> None:
    seen = found({LIST: models(None), **{f"/{name}": ok({"name": name}) for name in pair}})
    assert seen.kind is None
    assert all(name in str(seen.pending) for name in (*pair, "`kind` must say"))


def test_an_engine_with_the_list_of_another_is_neither() -> None:
    seen = found({LIST: models("motor"), "/engine": ok({"name": "E"})})
    assert (seen.kind, seen.pending) == (
        None,
        "/engine says E, but the models in /v1/models are owned by motor: `kind` must say",
    )
    # A word that no kind puts there is somebody's name, and one list may have both.
    assert found({LIST: models("somebody"), "/engine": ok({"name": "E"})}).kind == "engine"
    assert found({LIST: models("motor", "engine"), "/engine": ok({"name": "E"})}).kind == "engine"


def test_owners_are_read_as_they_are() -> None:
    assert owners_of({LIST: models("a", None, "b")}) == {"a", "", "b"}
    assert owners_of({LIST: ok({"data": [{"id": "m", "owned_by": 7}]})}) == {""}
    assert owners_of({LIST: models()}) == frozenset()
    assert [owners_of(pages) for pages in ({}, {LIST: status(404)}, {LIST: ok("{")})] == [None, None, None]
    assert not all_owned({LIST: models()}, "a")
    assert not all_owned({}, "a")


def test_a_page_that_is_not_there_is_a_no_without_a_word() -> None:
    assert confirm({"/x": status(404)}, "/x", named) == Verdict(matches=False)


PROPS = {"build_info": "b11434-abc", "total_slots": 2, "is_sleeping": False}


def test_a_server_header_alone_is_no_evidence() -> None:
    fingerprint = by_kind("llamacpp").fingerprint
    assert fingerprint is not None
    there = {LIST: ok({"data": [{"id": "m"}]}, server="llama.cpp"), "/props": status(404)}
    assert fingerprint.judge(there).matches is False
