import pytest

from pharos.core.engine import plan
from pharos.core.engine.llamacpp_fields import build_of
from pharos.core.engine.probe import Page, SideEffect
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, fetched, ok, reasons, refusal, resolved, status, values
from tests.fakes import captures

RECIPE = by_kind("llamacpp")
SATURATED = captures.pages("llamacpp", "b11434", "saturated", sent_at=NOW - 0.5)
OLD_METRICS = ok("llamacpp:requests_processing 2\nllamacpp:requests_deferred 0\n")


def props(**changed: object) -> Page:
    fields = {
        "build_info": "b9000-abc",
        "total_slots": 2,
        "is_sleeping": False,
        "default_generation_settings": {"n_ctx": 4096},
    }
    return ok({key: value for key, value in {**fields, **changed}.items() if value is not None})


def slot(**changed: object) -> dict[str, object]:
    return {"id": 0, "n_ctx": 4096, "is_processing": False, "n_prompt_tokens": 1024, **changed}


def read(**pages: Page) -> tuple[plan.Plan, dict[tuple[str, str], object]]:
    there = {**SATURATED, "/props": props(), **{f"/{name}": page for name, page in pages.items()}}
    made, first = resolved(RECIPE, there)
    return made, values(first)


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("b8772-abc", 8772),
        ("b8772", 8772),
        ("b0-unknown", None),
        ("v1", None),
        ("8772", None),
        ("b8772 x", None),
        (None, None),
    ],
)
def test_a_build_number_is_read_only_where_one_is_named(version: str | None, build: int | None) -> None:
    assert build_of(version) == build


def test_the_version_is_its_build_info() -> None:
    assert read()[1]["version", ""] == "b9000-abc"


def test_a_build_that_names_no_number_has_no_version() -> None:
    made, found = read(props=props(build_info="b0-unknown"))
    assert ("version", "") not in found
    assert made.version is None
    assert [one.detail for one in made.dropped if one.probe == "llamacpp-version"] == [
        "build_info 'b0-unknown' names no build"
    ]


def test_the_queue_is_read_from_old_bodies_only_when_the_build_counts_it() -> None:
    counted, found = read(metrics=OLD_METRICS)
    assert found["waiting", ""] == 0
    assert reasons(counted)["llamacpp-waiting"] == "NO_EVIDENCE"
    for info in ("b8771-abc", "b0-unknown"):
        made, found = read(metrics=OLD_METRICS, props=props(build_info=info))
        assert ("waiting", "") not in found
        assert found["running", ""] == 2
        assert reasons(made)["llamacpp-waiting-by-build"] == "VERSION_GUARD"


def test_without_metrics_the_busy_slots_are_counted_every_five_seconds() -> None:
    made, found = read(metrics=status(501))
    assert found["running", ""] == 2
    assert ("waiting", "") not in found
    assert reasons(made)["llamacpp-running"] == "NOT_FOUND"
    assert plan.intervals_of(made.active)["/slots"] == 5.0


def test_slots_wake_a_sleeper_and_new_metrics_do_not() -> None:
    with_metrics, _ = read()
    without, _ = read(metrics=status(501))
    old, _ = read(metrics=OLD_METRICS)
    effects = {made: {p.feed.path: p.feed.side_effect for p in made.active} for made in (with_metrics, without, old)}
    assert effects[with_metrics]["/metrics"] is SideEffect.NONE
    assert effects[without]["/slots"] is SideEffect.WAKES
    assert effects[old]["/metrics"] is SideEffect.WAKES


def test_a_server_that_says_nothing_of_sleep_is_not_asked_what_might_wake_it() -> None:
    there = {**SATURATED, "/props": props(is_sleeping=None)}
    got = fetched(lambda pages: plan.next_paths(RECIPE, (), pages), there)
    assert set(got) == {"/props", "/v1/models"}


@pytest.mark.parametrize(
    ("page", "usage"),
    [
        (ok([slot()]), 0.25),
        (ok([slot(n_prompt_tokens=0)]), 0.0),
        (ok([slot(n_prompt_tokens=4096, is_processing=True)]), 1.0),
    ],
)
def test_the_cache_in_use_is_read_where_one_slot_has_the_whole_context(page: Page, usage: float) -> None:
    assert read(slots=page)[1]["kv_usage", ""] == usage


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ([slot(), slot(id=1)], "NO_EVIDENCE"),
        ([slot(n_prompt_tokens=None)], "NO_VALUE"),
        ([slot(n_ctx=0)], "NO_VALUE"),
        ([slot(n_prompt_tokens=5000)], "PARSE_ERROR"),
        ([slot(n_prompt_tokens="1024")], "PARSE_ERROR"),
        ([], "PARSE_ERROR"),
        ([slot(), slot()], "PARSE_ERROR"),
        ([1], "PARSE_ERROR"),
        ({}, "PARSE_ERROR"),
    ],
)
def test_otherwise_the_cache_in_use_is_unknown(slots: object, reason: str) -> None:
    made, found = read(slots=ok(slots))
    assert ("kv_usage", "") not in found
    assert reasons(made)["llamacpp-slots-kv"] == reason


def models(**changed: object) -> Page:
    return ok(
        {
            "object": "list",
            "data": [{"id": "m", "owned_by": "llamacpp", "aliases": ["m", "n"], "meta": {"size": 9}, **changed}],
        }
    )


def test_a_model_is_served_under_its_id_and_its_aliases() -> None:
    found = read(**{"v1/models": models()})[1]
    assert found["models", ""] == ("m", "n")
    assert (found["size_bytes", "m"], found["size_bytes", "n"]) == (9, 9)


def test_a_list_without_aliases_or_size_still_names_the_model() -> None:
    made, found = read(**{"v1/models": ok({"data": [{"id": "m"}]})})
    assert found["models", ""] == ("m",)
    assert reasons(made)["llamacpp-size"] == "NO_VALUE"


def test_aliases_of_a_wrong_type_make_the_list_unreadable() -> None:
    assert reasons(read(**{"v1/models": models(aliases="m")})[0])["llamacpp-models"] == "PARSE_ERROR"
    assert reasons(read(**{"v1/models": models(aliases=[1])})[0])["llamacpp-models"] == "PARSE_ERROR"


def test_a_dummy_context_of_0_is_unknown() -> None:
    made, _ = read(props=props(default_generation_settings={"n_ctx": 0}))
    assert reasons(made)["llamacpp-context"] == "NO_VALUE"


def test_an_awake_model_is_loaded() -> None:
    assert read()[1]["residency", ""] is Residency.LOADED


# -- marks, and what the model can do

PROBES = {probe.name.removeprefix("llamacpp-"): probe for probe in RECIPE.probes}


@pytest.mark.parametrize(
    ("modalities", "able"),
    [
        ({"vision": False, "audio": False}, ("completion",)),
        ({"vision": True, "audio": False, "video": True}, ("completion", "vision")),
        ({"vision": True, "audio": True}, ("audio", "completion", "vision")),
    ],
)
def test_the_model_takes_in_what_the_engine_says(modalities: dict[str, bool], able: tuple[str, ...]) -> None:
    assert read(props=props(modalities=modalities))[1]["capabilities", ""] == able


@pytest.mark.parametrize("modalities", [{"vision": True}, {"vision": 1, "audio": False}, [], None])
def test_modalities_that_are_not_told_properly_are_unknown(modalities: object) -> None:
    made, found = read(props=props(modalities=modalities))
    assert ("capabilities", "") not in found
    assert reasons(made)["llamacpp-modalities"] in {"NO_VALUE", "PARSE_ERROR"}


@pytest.mark.parametrize(
    ("header", "started"), [("11768347817", "11768347817"), (" 7 ", "7"), ("", None), (None, None)]
)
def test_the_process_is_known_by_when_it_began(header: str | None, started: str | None) -> None:
    page = SATURATED["/metrics"]
    headers = {} if header is None else {"process-start-time-unix": header}
    metrics = Page(status=200, body=page.body, headers=headers, sent_at=page.sent_at)
    found = read(metrics=metrics)[1]
    assert found.get(("process", "")) == started
    assert found["work_done", ""] == 218


@pytest.mark.parametrize("header", ["1, 1", "-1", "soon", "1" * 21])
def test_a_start_that_is_no_time_is_unknown(header: str) -> None:
    page = Page(status=200, body=SATURATED["/metrics"].body, headers={"process-start-time-unix": header})
    assert refusal(PROBES["process"], page) == "PARSE_ERROR"


def test_the_work_is_what_moves_while_a_request_runs() -> None:
    """The counters of tokens stand still until a request ends: in the recording of a busy engine they are 0."""
    busy = captures.pages("llamacpp", "b11434", "busy")["/metrics"]
    assert b"tokens_predicted_total 0\n" in busy.body
    assert PROBES["work"].parse(busy) == {"": 110}


@pytest.mark.parametrize(
    ("slots", "held"),
    [
        ([slot(), slot(id=1, n_prompt_tokens=6)], 1030),
        ([slot(n_prompt_tokens=None), slot(id=1, n_prompt_tokens=6, id_task=3)], 6),
        ([slot(n_prompt_tokens=None)], 0),
    ],
)
def test_the_tokens_in_all_caches_are_added_up(slots: object, held: int) -> None:
    assert PROBES["slots-cached"].parse(ok(slots)) == {"": held}


@pytest.mark.parametrize(
    "slots", [[slot(id_task=3, n_prompt_tokens=None)], [slot(n_prompt_tokens=-1)], [slot(n_prompt_tokens="6")], []]
)
def test_a_slot_that_was_used_and_tells_no_tokens_makes_the_sum_unknown(slots: object) -> None:
    assert refusal(PROBES["slots-cached"], ok(slots)) in {"NO_VALUE", "PARSE_ERROR"}


def test_all_names_of_the_model_join_one_queue() -> None:
    found = read(**{"v1/models": models()})[1]
    assert found["physical_group", "m"] == found["physical_group", "n"] == "m"


# -- detection


def judged(page: Page, **others: Page) -> bool | None:
    assert RECIPE.fingerprint is not None
    pages = {"/props": page, **{"/v1/models" if name == "models" else name: one for name, one in others.items()}}
    return RECIPE.fingerprint.judge(pages).matches


def test_it_is_known_by_its_own_page_and_by_who_answers() -> None:
    owned = ok({"data": [{"id": "m", "owned_by": "llamacpp"}]})
    assert judged(props(), models=owned) is True
    assert judged(props(), models=ok({"data": [{"id": "m", "owned_by": "other"}]})) is False
    assert judged(props(), models=ok({"data": []})) is False
    assert judged(props()) is None
    assert judged(props(), models=status(503)) is None
    assert judged(props(role="router"), models=owned) is False
    assert judged(props(role="router")) is False
