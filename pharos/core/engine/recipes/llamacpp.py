"""llama.cpp's llama-server with one model. Facts: captures b11434 and b11549, and the server's source of that time.

Forbidden here: router mode (many models behind one server), which answers the same paths with other meanings.
"""

import re
from typing import Any

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_number, json_probe, listed, member, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError, SideEffect
from pharos.core.engine.prom import has_series, prom
from pharos.core.engine.recipe import Fingerprint, Recipe, Verdict, is_ok, lacking
from pharos.core.engine.values import LIMITS, number, quoted, whole
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

OWNER = "llamacpp"
"""`owned_by` of its model list, and its kind."""
QUEUE_COUNTED_FROM = 8772
"""Build from which `requests_deferred` counts the queue; before, it was 0 with requests waiting."""
NEW_SERIES = "llamacpp:prompt_tokens_cached_total"
"""In bodies of builds that count the queue and answer /metrics without waking a sleeping model; no older build has
it."""

PROPS = Feed(kind=FeedKind.GET, path="/props")
MODELS = Feed(kind=FeedKind.GET, path="/v1/models")
SLOTS = Feed(kind=FeedKind.GET, path="/slots", side_effect=SideEffect.WAKES, interval_s=5.0)

MOST_SLOTS = LIMITS[Signal.CAPACITY][1]

_BUILD = re.compile(r"b([0-9]{1,9})(?:-[0-9A-Za-z._+-]*)?")


def build_of(version: str | None) -> int | None:
    """Return the build number in a `build_info`; `None` when it names none (repackaged builds say b0)."""
    matched = _BUILD.fullmatch(version) if version is not None else None
    build = int(matched[1]) if matched is not None else 0
    return build if build > 0 else None


def _counts_queue(version: str | None) -> bool:
    build = build_of(version)
    return build is not None and build >= QUEUE_COUNTED_FROM


def _version(document: object) -> Found:
    text = of_type(member(document, "build_info"), str, "build_info")
    if build_of(text) is None:
        raise ProbeError(DropReason.NO_VALUE, f"build_info {quoted(text)} names no build")
    return {BACKEND: text}


def _residency(document: object) -> Found:
    # Only a server that can sleep has the field. Without it nothing proves that a read does not wake or load.
    sleeping = of_type(member(document, "is_sleeping"), bool, "is_sleeping")
    return {BACKEND: Residency.COLD if sleeping else Residency.LOADED}


def _names(card: dict[str, Any]) -> list[str]:
    """All names of a model: its id and its aliases, which older builds do not list."""
    aliases = of_type(card.get("aliases", []), list, "aliases")
    return [card["id"], *(of_type(alias, str, "an alias") for alias in aliases)]


def _models(document: object) -> Found:
    return {BACKEND: tuple(dict.fromkeys(name for card in listed(document) for name in _names(card) if name))}


def _sizes(document: object) -> Found:
    found: dict[str, Value] = {}
    for card in listed(document):
        size = number(Signal.SIZE_BYTES, member(card, "meta.size"))
        found.update(dict.fromkeys(_names(card), size))
    return found


def _slots(document: object) -> list[dict[str, Any]]:
    slots = [of_type(slot, dict, "a slot") for slot in of_type(document, list, "the body")]
    ids = {whole(member(slot, "id"), MOST_SLOTS, "id") for slot in slots}
    if not slots or len(ids) != len(slots):
        raise ProbeError(DropReason.PARSE_ERROR, "no slots, or one that comes twice")
    return slots


def _busy_slots(document: object) -> Found:
    busy = [of_type(member(slot, "is_processing"), bool, "is_processing") for slot in _slots(document)]
    return {BACKEND: sum(busy)}


def _context_in_use(document: object) -> Found:
    """Share of the one slot's context that holds tokens.

    Several slots may each have a part of the context or all share one (`--kv-unified`), and no body tells which.
    """
    slots = _slots(document)
    if len(slots) > 1:
        raise ProbeError(DropReason.NO_EVIDENCE, "several slots may share one context")
    slot = slots[0]
    size = whole(member(slot, "n_ctx"), LIMITS[Signal.CONTEXT_LENGTH][1], "n_ctx")
    if size == 0:
        raise ProbeError(DropReason.NO_VALUE, "the slot has no context yet")
    held = whole(member(slot, "n_prompt_tokens"), 2 * size, "n_prompt_tokens")
    return {BACKEND: number(Signal.KV_USAGE, held / size)}


def _judge(pages: Pages) -> Verdict:
    """Recognise by who answers (`Server` header or `owned_by`), confirmed by the server's own page of the same address.

    koboldcpp answers /props without `build_info`, gateways pass model lists and headers of others on: neither has both.
    """
    missing = lacking(pages, "/props")
    if missing is not None:
        return Verdict(matches=None, text=missing)
    page = pages["/props"]
    if not is_ok(page):
        return Verdict(matches=False)
    claimed = _claims(pages)
    build = None
    try:
        props = document_of(page)
        build = of_type(member(props, "build_info"), str, "build_info")
        if of_type(props, dict, "the body").get("role") == "router":
            return Verdict(matches=False, text="llama.cpp in router mode, which is not read yet")
        slots = number(Signal.CAPACITY, member(props, "total_slots"))
    except ProbeError as error:
        # Damaged, it says nothing about who wrote it; only another owner of the list, or the lack of build_info, does.
        is_damaged = claimed is not False and (build is not None or error.reason is DropReason.PARSE_ERROR)
        return Verdict(matches=None if is_damaged else False, text=f"/props: {error}")
    if claimed is None:
        return Verdict(matches=None, text=str(lacking(pages, "/v1/models")))
    if not claimed:
        return Verdict(
            matches=False, text="/props is like llama.cpp's, but neither the Server header nor owned_by says so"
        )
    return Verdict(matches=True, text=f"/props has build_info {quoted(build)} and total_slots {slots}")


def _claims(pages: Pages) -> bool | None:
    """Whether the backend says that it is llama.cpp; `None` while the model list that may say so has no real answer."""
    if any(page.headers.get("server") == "llama.cpp" for page in pages.values()):
        return True
    if lacking(pages, "/v1/models") is not None:
        return None
    try:
        cards = listed(document_of(pages["/v1/models"]))
    except ProbeError:
        return False
    return bool(cards) and all(card.get("owned_by") == OWNER for card in cards)


RECIPE = Recipe(
    kind=OWNER,
    rank=200,
    probes=(
        json_probe("llamacpp-version", Signal.VERSION, PROPS, _version),
        json_probe("llamacpp-models", Signal.MODELS, MODELS, _models),
        json_probe("llamacpp-residency", Signal.RESIDENCY, PROPS, _residency),
        json_probe("llamacpp-size", Signal.SIZE_BYTES, MODELS, _sizes),
        json_number("llamacpp-capacity", Signal.CAPACITY, PROPS, "total_slots"),
        # Per slot. With one context shared by all slots (--kv-unified) every slot claims the whole of it.
        json_number("llamacpp-context", Signal.CONTEXT_LENGTH, PROPS, "default_generation_settings.n_ctx"),
        prom("llamacpp-running", Signal.RUNNING, "llamacpp:requests_processing", side_effect=SideEffect.WAKES),
        json_probe("llamacpp-slots-running", Signal.RUNNING, SLOTS, _busy_slots),
        prom(
            "llamacpp-waiting",
            Signal.WAITING,
            "llamacpp:requests_deferred",
            needs=(NEW_SERIES,),
            side_effect=SideEffect.WAKES,
        ),
        prom(
            "llamacpp-waiting-by-build",
            Signal.WAITING,
            "llamacpp:requests_deferred",
            side_effect=SideEffect.WAKES,
            when=_counts_queue,
        ),
        json_probe("llamacpp-slots-kv", Signal.KV_USAGE, SLOTS, _context_in_use),
    ),
    fingerprint=Fingerprint(paths=("/props", "/v1/models"), judge=_judge),
    shared_queue=True,
    usage_in_last_chunk=True,
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
