"""llama.cpp's llama-server with one model. Facts: captures b11434 and b11549, and the server's source of that time.

Forbidden here: router mode (many models behind one server), which answers the same paths with other meanings.
"""

from pharos.core.engine import llamacpp_fields as fields
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_number, json_probe, listed, member, of_type
from pharos.core.engine.llamacpp_fields import NEW_SERIES, OWNER, QUEUE_COUNTED_FROM
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError, SideEffect
from pharos.core.engine.prom import has_series, prom
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, is_ok, lacking
from pharos.core.engine.usage_fields import Dialect, Zero
from pharos.core.engine.values import number, quoted
from pharos.core.signals import Found, Signal, Value

PROPS = Feed(kind=FeedKind.GET, path="/props")
MODELS = Feed(kind=FeedKind.GET, path=LIST_PATH)
METRICS = Feed(kind=FeedKind.GET, path="/metrics", side_effect=SideEffect.WAKES)
SLOTS = Feed(kind=FeedKind.GET, path="/slots", side_effect=SideEffect.WAKES, interval_s=5.0)


def _sizes(document: object) -> Found:
    found: dict[str, Value] = {}
    for card in listed(document):
        size = number(Signal.SIZE_BYTES, member(card, "meta.size"))
        found.update(dict.fromkeys(fields.names(card), size))
    return found


def _groups(document: object) -> Found:
    """One model answers to every name: all join its queue."""
    cards = listed(document)
    return {name: cards[0]["id"] for card in cards for name in fields.names(card)}


def _judge(pages: Pages) -> Verdict:
    """Recognise by who answers (`Server` header or `owned_by`), confirmed by the server's own page of the same address.

    koboldcpp answers /props without `build_info`, gateways pass model lists and headers of others on: neither has both.
    """
    missing = lacking(pages, PROPS.path)
    if missing is not None:
        return Verdict(matches=None, text=missing)
    page = pages[PROPS.path]
    if not is_ok(page):
        return Verdict(matches=False)
    claimed = fields.claims(pages)
    build = None
    try:
        props = document_of(page)
        build = of_type(member(props, "build_info"), str, "build_info")
        if of_type(props, dict, "the body").get("role") == "router":
            return Verdict(matches=False)
        slots = number(Signal.CAPACITY, member(props, "total_slots"))
    except ProbeError as error:
        # Damaged, it says nothing about who wrote it; only another owner of the list, or the lack of build_info, does.
        is_damaged = claimed is not False and (build is not None or error.reason is DropReason.PARSE_ERROR)
        return Verdict(matches=None if is_damaged else False, text=f"/props: {error}")
    if claimed is None:
        return Verdict(matches=None, text=str(lacking(pages, LIST_PATH)))
    if not claimed:
        return Verdict(
            matches=False, text="/props is like llama.cpp's, but neither the Server header nor owned_by says so"
        )
    return Verdict(matches=True, text=f"/props has build_info {quoted(build)} and total_slots {slots}")


_RUNNING, _WAITING, _PROCESS, _WORK = fields.load_probes("llamacpp", METRICS)

RECIPE = Recipe(
    kind=OWNER,
    rank=200,
    dialect=lambda _: Dialect(responses_zero=Zero.COUNT, says_done=True),
    # Each has a word of its own there, true or false; of all others /props is silent.
    tells_abilities=frozenset({"audio", "vision"}),
    caches_lost=fields.CACHES_LOST,
    owners=(OWNER,),
    probes=(
        json_probe("llamacpp-version", Signal.VERSION, PROPS, fields.version, wants="build_info"),
        json_probe("llamacpp-models", Signal.MODELS, MODELS, fields.models, wants="data"),
        json_probe("llamacpp-group", Signal.PHYSICAL_GROUP, MODELS, _groups, wants="data"),
        json_probe("llamacpp-residency", Signal.RESIDENCY, PROPS, fields.sleep_state, wants="is_sleeping"),
        json_probe("llamacpp-size", Signal.SIZE_BYTES, MODELS, _sizes, wants="data.meta.size"),
        json_number("llamacpp-capacity", Signal.CAPACITY, PROPS, "total_slots"),
        # Per slot. With one context shared by all slots (--kv-unified) every slot claims the whole of it.
        json_number("llamacpp-context", Signal.CONTEXT_LENGTH, PROPS, "default_generation_settings.n_ctx"),
        json_probe("llamacpp-modalities", Signal.CAPABILITIES, PROPS, fields.modalities, wants="modalities"),
        _RUNNING,
        json_probe("llamacpp-slots-running", Signal.RUNNING, SLOTS, fields.busy_slots, wants="is_processing"),
        _WAITING,
        prom(
            "llamacpp-waiting-by-build",
            Signal.WAITING,
            "llamacpp:requests_deferred",
            feed=METRICS,
            when=fields.counts_queue,
        ),
        json_probe("llamacpp-slots-kv", Signal.KV_USAGE, SLOTS, fields.context_in_use, wants="n_prompt_tokens"),
        _PROCESS,
        _WORK,
        fields.cache_probe("llamacpp-slots-cached", SLOTS),
    ),
    fingerprint=Fingerprint(paths=(PROPS.path, LIST_PATH), judge=_judge),
    shared_queue=True,
    usage_in_last_chunk=True,
    empty_post_tells=True,
    harmless_once={"/metrics": lambda page: has_series(page, NEW_SERIES)},
    hints={
        Signal.VERSION: Hint(
            cost="an upgrade is not noticed: learned speeds stay",
            fix="use a build whose build_info names its number (b1234-…); repackaged builds say b0-unknown",
        ),
        Signal.RESIDENCY: Hint(
            cost="feeds that would wake a sleeping model (/metrics, /slots) are not read at all",
            fix="use a newer llama-server: /props must have is_sleeping",
        ),
        Signal.SIZE_BYTES: Hint(
            cost="whether the model fits beside others is not checked",
            fix="use a newer llama-server: /v1/models must have meta.size",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="start llama-server with --metrics, or without --no-slots",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the engine is not seen",
            fix=f"start llama-server with --metrics; builds before b{QUEUE_COUNTED_FROM} do not count their queue",
        ),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached",
            fix="none with several slots: the engine does not tell whether they share one context",
        ),
    },
)
