"""What the pages of llama.cpp's server say, for every recipe that meets one: alone, behind its router, behind a proxy.

Facts: captures b11434 and b11549, and the server's source of that time. Forbidden here: paths. Each recipe knows where
these pages are and what reading them does.
"""

import re
from typing import Any

from pharos.core.engine.jsonfeed import document_of, json_probe, listed, member, of_type
from pharos.core.engine.probe import DropReason, Feed, Page, Pages, Probe, ProbeError
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import LIST_PATH, lacking
from pharos.core.engine.values import LIMITS, number, quoted, whole
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

OWNER = "llamacpp"
"""`owned_by` of its model list."""
SERVER = "llama.cpp"
"""Its `Server` header. Proxies pass it on."""
QUEUE_COUNTED_FROM = 8772
"""Build from which `requests_deferred` counts the queue; before, it was 0 with requests waiting."""
NEW_SERIES = "llamacpp:prompt_tokens_cached_total"
"""In bodies of builds that count the queue and answer /metrics without waking a sleeping model; no older build has
it."""
STARTED = "process-start-time-unix"
"""Header of /metrics, in lower case: when the model server began, in microseconds since the machine started in spite of
its name. It stays the same through sleep and waking."""

CACHES_LOST = b"Context size has been exceeded"
"""Error of all running requests when slots that share one context have filled it (500, or an object in a stream). The
server has emptied every slot's cache before; a prompt that is too long by itself is refused in other words."""

MOST_SLOTS = LIMITS[Signal.CAPACITY][1]

_BUILD = re.compile(r"b([0-9]{1,9})(?:-[0-9A-Za-z._+-]*)?")
_START = re.compile(r"[0-9]{1,20}")
_ABILITY_OF_INPUT = {"image": "vision", "audio": "audio"}


def build_of(version: str | None) -> int | None:
    """Return the build number in a `build_info`; `None` when it names none (repackaged builds say b0)."""
    matched = _BUILD.fullmatch(version) if version is not None else None
    build = int(matched[1]) if matched is not None else 0
    return build if build > 0 else None


def counts_queue(version: str | None) -> bool:
    """Whether a build is known to count its queue."""
    build = build_of(version)
    return build is not None and build >= QUEUE_COUNTED_FROM


def version(document: object) -> Found:
    """Read the build from /props. Raises `ProbeError` for one without a number."""
    text = of_type(member(document, "build_info"), str, "build_info")
    if build_of(text) is None:
        raise ProbeError(DropReason.NO_VALUE, f"build_info {quoted(text)} names no build")
    return {BACKEND: text}


def sleep_state(document: object) -> Found:
    """Read from /props whether the model sleeps.

    Only a server that can sleep has the field. Without it nothing proves that a read does not wake or load.
    """
    sleeping = of_type(member(document, "is_sleeping"), bool, "is_sleeping")
    return {BACKEND: Residency.COLD if sleeping else Residency.LOADED}


def names(card: dict[str, Any]) -> list[str]:
    """All names of a model: its id and its aliases, which older builds do not list."""
    aliases = of_type(card.get("aliases", []), list, "aliases")
    return [card["id"], *(alias for alias in (of_type(one, str, "an alias") for one in aliases) if alias)]


def models(document: object) -> Found:
    """Read every name that the list has."""
    return {BACKEND: tuple(dict.fromkeys(name for card in listed(document) for name in names(card)))}


def of_cards(document: object, signal: Signal, path: str) -> Found:
    """Read one number of each card that has it; cards of models that do not run have no `meta`. Raises `ProbeError`."""
    found: dict[str, Value] = {}
    for card in listed(document):
        if card.get("meta") is not None:
            found.update(dict.fromkeys(names(card), number(signal, member(card, path))))
    return found


def inputs(told: object) -> set[str]:
    """What a model that takes these kinds of input can do beside text. Raises `ProbeError`."""
    words = [of_type(word, str, "a kind of input") for word in of_type(told, list, "the kinds of input")]
    return {_ABILITY_OF_INPUT[word] for word in words if word in _ABILITY_OF_INPUT}


def modalities(document: object) -> Found:
    """Read from /props what the model takes in beside text.

    Every server answers chat, one started for embeddings too, and nothing in /props tells that it makes embeddings:
    the lack of that word says nothing.
    """
    told = of_type(member(document, "modalities"), dict, "modalities")
    able = {"completion"}
    for word in ("vision", "audio"):
        if of_type(member(told, word), bool, word):
            able.add(word)
    return {BACKEND: tuple(sorted(able))}


def busy_slots(document: object) -> Found:
    """Count in /slots what runs."""
    busy = [of_type(member(slot, "is_processing"), bool, "is_processing") for slot in _slots(document)]
    return {BACKEND: sum(busy)}


def cached_tokens(document: object) -> Found:
    """Add up in /slots the tokens that the slots' caches hold. A slot that was never used has no task, and no count."""
    held = 0
    for slot in _slots(document):
        if slot.get("n_prompt_tokens") is None and slot.get("id_task") is None:
            continue
        held += whole(member(slot, "n_prompt_tokens"), LIMITS[Signal.CONTEXT_LENGTH][1], "n_prompt_tokens")
    return {BACKEND: number(Signal.CACHED_TOKENS, held)}


def context_in_use(document: object) -> Found:
    """Read from /slots which share of the one slot's context holds tokens.

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


def process(page: Page) -> Found:
    """Read from the header of /metrics which process answers; proxies may leave it out."""
    told = page.headers.get(STARTED, "").strip()
    if not told:
        return {}
    if _START.fullmatch(told) is None:
        raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(told)} is no time")
    return {BACKEND: told}


def load_probes(name: str, feed: Feed, *, rank: int = 0) -> tuple[Probe, ...]:
    """Declare the probes of a feed that gives /metrics; `name` begins theirs.

    The work done is counted in decoding steps: the counters of tokens stand still until a request ends.
    """
    return (
        prom(f"{name}-running", Signal.RUNNING, "llamacpp:requests_processing", feed=feed, rank=rank),
        prom(
            f"{name}-waiting",
            Signal.WAITING,
            "llamacpp:requests_deferred",
            needs=(NEW_SERIES,),
            feed=feed,
            rank=rank,
        ),
        Probe(f"{name}-process", Signal.PROCESS, feed, process, rank=rank, wants=STARTED, may_be_empty=True),
        prom(f"{name}-work", Signal.WORK_DONE, "llamacpp:n_decode_total", feed=feed, rank=rank),
    )


def cache_probe(name: str, feed: Feed) -> Probe:
    """Declare the probe of the tokens in the caches, for a feed that gives /slots."""
    return json_probe(name, Signal.CACHED_TOKENS, feed, cached_tokens, wants="n_prompt_tokens")


def claims(pages: Pages) -> bool | None:
    """Whether the backend says that it is llama.cpp; `None` while the model list that may say so has no real answer."""
    if any(page.headers.get("server") == SERVER for page in pages.values()):
        return True
    if lacking(pages, LIST_PATH) is not None:
        return None
    try:
        cards = listed(document_of(pages[LIST_PATH]))
    except ProbeError:
        return False
    return bool(cards) and all(card.get("owned_by") == OWNER for card in cards)


def _slots(document: object) -> list[dict[str, Any]]:
    slots = [of_type(slot, dict, "a slot") for slot in of_type(document, list, "the body")]
    ids = {whole(member(slot, "id"), MOST_SLOTS, "id") for slot in slots}
    if not slots or len(ids) != len(slots):
        raise ProbeError(DropReason.PARSE_ERROR, "no slots, or one that comes twice")
    return slots
