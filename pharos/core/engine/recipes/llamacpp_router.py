"""llama.cpp's llama-server as a router: many models, each in a server of its own behind one address.

Facts: capture b11434, and the server's source of that time. Reading `/metrics` or `/slots` of a model gives its server
a task: that resets its idle timer and, in older builds, wakes it; without `autoload=false` it even loads it. So a model
is asked for these only while requests of ours run on it, which keep it awake anyway; for all others the list is enough.

Forbidden here: paths of a model without `autoload=false`, and keeping what `status.args` holds: a whole command line.
"""

import itertools
from typing import Any

from pharos.core.engine import llamacpp_fields as fields
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_number, json_probe, listed, member, of_type
from pharos.core.engine.llamacpp_fields import OWNER, QUEUE_COUNTED_FROM
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, confirm, lacking
from pharos.core.engine.usage_fields import Dialect, Zero
from pharos.core.engine.values import from_text, quoted
from pharos.core.signals import Found, Residency, Signal, Value

ROUTER = "router"
"""`role` in /props."""
STATES = {
    "downloading": Residency.COLD,
    "downloaded": Residency.COLD,
    "unloaded": Residency.COLD,
    "loading": Residency.LOADING,
    "loaded": Residency.LOADED,
    # Its weights have left memory, and its cache with them.
    "sleeping": Residency.COLD,
}
"""`status.value` of a model."""
EMBEDS = frozenset({"--embedding", "--embeddings"})
RERANKS = frozenset({"--rerank", "--reranking"})
SLOTS_OPTION = frozenset({"-np", "--parallel"})
NOT_LOADED = frozenset({400})
"""What a model's paths answer while it is not loaded."""

PROPS = Feed(kind=FeedKind.GET, path="/props")
MODELS = Feed(kind=FeedKind.GET, path=LIST_PATH)
EVENTS = Feed(kind=FeedKind.SSE, path="/models/sse")


def _of_model(path: str, interval_s: float | None = None) -> Feed:
    return Feed(
        kind=FeedKind.GET,
        path=f"{path}?model={{model}}&autoload=false",
        side_effect=SideEffect.PINS,
        interval_s=interval_s,
        per_model=True,
        loaded_only=True,
        passing=NOT_LOADED,
    )


METRICS = _of_model("/metrics")
SLOTS = _of_model("/slots", 5.0)
MODEL_PROPS = _of_model("/props", 60.0)
"""What it says does not change while the model is loaded."""


def _state(card: dict[str, Any]) -> Residency | None:
    """Where a model is; `None` for a word that no version read here has."""
    return STATES.get(of_type(member(card, "status.value"), str, "status.value"))


def _residency(document: object) -> Found:
    found: dict[str, Value] = {}
    for card in listed(document):
        state = _state(card)
        if state is not None:
            found.update(dict.fromkeys(fields.names(card), state))
    if not found and listed(document):
        raise ProbeError(DropReason.NO_EVIDENCE, "no state that is known")
    return found


def _groups(document: object) -> Found:
    return {name: card["id"] for card in listed(document) for name in fields.names(card)}


def _sizes(document: object) -> Found:
    return fields.of_cards(document, Signal.SIZE_BYTES, "meta.size")


def _contexts(document: object) -> Found:
    return fields.of_cards(document, Signal.CONTEXT_LENGTH, "meta.n_ctx")


def _options(card: dict[str, Any]) -> list[str]:
    """The command line of a model's server."""
    return [of_type(one, str, "an option") for one in of_type(member(card, "status.args"), list, "status.args")]


def _slots_given(document: object) -> Found:
    """Read the slots of models whose server is told how many it shall have. Raises `ProbeError`."""
    found: dict[str, Value] = {}
    for card in listed(document):
        options = _options(card)
        given = [after for option, after in itertools.pairwise(options) if option in SLOTS_OPTION]
        if len(given) == 1 and given[0] != "-1":  # -1: the server chooses
            found.update(dict.fromkeys(fields.names(card), from_text(Signal.CAPACITY, given[0])))
    return found


def _abilities(document: object) -> Found:
    """Read what loaded models can do; of others the list has no more than a placeholder. Raises `ProbeError`."""
    found: dict[str, Value] = {}
    for card in listed(document):
        if _state(card) is not Residency.LOADED:
            continue
        able = {"completion"} | fields.inputs(member(card, "architecture.input_modalities"))
        options = set(_options(card))
        able |= {"embedding"} if options & EMBEDS else set()
        able |= {"rerank"} if options & RERANKS else set()
        found.update(dict.fromkeys(fields.names(card), tuple(sorted(able))))
    return found


class Changes:
    """Reads the stream of changes: each event says where one model is now."""

    def feed(self, event: str, data: bytes) -> Found:  # noqa: ARG002 - the events have no name
        """Take in one event; one without a status tells nothing.

        Raises `ProbeError` for a status that no version read here has: where its model is now is not known.
        """
        document = document_of(Page(status=200, body=data))
        change = of_type(document, dict, "an event").get("data")
        if not isinstance(change, dict) or "status" not in change:
            return {}
        word = of_type(member(document, "data.status"), str, "status")
        model = of_type(member(document, "model"), str, "model")
        if word not in STATES or not model:
            raise ProbeError(DropReason.NO_EVIDENCE, f"status {quoted(word)} is new")
        return {model: STATES[word]}


def _judge(pages: Pages) -> Verdict:
    """Recognise by the role in /props, and by who answers (`Server` header or `owned_by`) at the same address."""
    claimed = fields.claims(pages)

    def read(document: object) -> str:
        role = of_type(member(document, "role"), str, "role")
        if role != ROUTER:
            raise ProbeError(DropReason.NO_VALUE, f"role {quoted(role)}")
        build = of_type(member(document, "build_info"), str, "build_info")
        return f"has role {ROUTER} and build_info {quoted(build)}"

    verdict = confirm(pages, PROPS.path, read, claimed=claimed is not False)
    if verdict.matches is not True:
        return Verdict(matches=verdict.matches, text=verdict.text if verdict.matches is None else "")
    if claimed is None:
        return Verdict(matches=None, text=str(lacking(pages, LIST_PATH)))
    if not claimed:
        return Verdict(matches=False, text="/props is like that of llama.cpp's router, but nothing else says so")
    return verdict


_METRICS = "start llama-server with --metrics: the router passes it on to the models' servers"
_OURS = "it is read only while requests sent through Pharos run on the model, since a read keeps the model awake"

RECIPE = Recipe(
    kind="llamacpp-router",
    rank=190,
    dialect=lambda _: Dialect(responses_zero=Zero.COUNT, says_done=True),
    caches_lost=fields.CACHES_LOST,
    refuses_model=(b"not found", b"model is not loaded"),
    owners=(OWNER,),
    probes=(
        json_probe("llamacpp-router-version", Signal.VERSION, PROPS, fields.version, wants="build_info"),
        json_probe("llamacpp-router-models", Signal.MODELS, MODELS, fields.models, wants="data"),
        json_probe("llamacpp-router-group", Signal.PHYSICAL_GROUP, MODELS, _groups, wants="data"),
        json_probe(
            "llamacpp-router-residency",
            Signal.RESIDENCY,
            MODELS,
            _residency,
            wants="data.status.value",
            may_be_empty=True,
        ),
        Probe(
            "llamacpp-router-events",
            Signal.RESIDENCY,
            EVENTS,
            lambda _: {},
            beside=True,
            wants="data.status",
            follow=lambda _: Changes(),
        ),
        json_probe(
            "llamacpp-router-size", Signal.SIZE_BYTES, MODELS, _sizes, wants="data.meta.size", may_be_empty=True
        ),
        json_probe(
            "llamacpp-router-context",
            Signal.CONTEXT_LENGTH,
            MODELS,
            _contexts,
            wants="data.meta.n_ctx",
            may_be_empty=True,
        ),
        json_probe(
            "llamacpp-router-abilities",
            Signal.CAPABILITIES,
            MODELS,
            _abilities,
            wants="data.architecture.input_modalities",
            may_be_empty=True,
        ),
        json_number("llamacpp-router-at-once", Signal.MODELS_AT_ONCE, PROPS, "max_instances"),
        json_number("llamacpp-router-capacity", Signal.CAPACITY, MODEL_PROPS, "total_slots"),
        json_probe(
            "llamacpp-router-slots-given",
            Signal.CAPACITY,
            MODELS,
            _slots_given,
            wants="data.status.args",
            rank=1,
            beside=True,
            may_be_empty=True,
        ),
        *fields.load_probes("llamacpp-router", METRICS),
        json_probe(
            "llamacpp-router-slots-running",
            Signal.RUNNING,
            SLOTS,
            fields.busy_slots,
            wants="is_processing",
            rank=1,
            beside=True,
        ),
        fields.cache_probe("llamacpp-router-slots-cached", SLOTS),
    ),
    fingerprint=Fingerprint(paths=(PROPS.path, LIST_PATH), judge=_judge),
    usage_in_last_chunk=True,
    record_paths=("/health",),
    hints={
        Signal.VERSION: Hint(
            cost="an upgrade is not noticed: learned speeds stay",
            fix="use a build whose build_info names its number (b1234-…); repackaged builds say b0-unknown",
        ),
        Signal.SIZE_BYTES: Hint(
            cost="whether a model fits beside others is not checked until it was loaded once",
            fix="none: the router tells the size of running models only",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix=f"{_METRICS}; {_OURS}",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside a model's server is not seen",
            fix=f"{_METRICS} (builds before b{QUEUE_COUNTED_FROM} do not count their queue); {_OURS}",
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which may be too few or too many",
            fix=f"start llama-server with -np N, or give the backend's capacity in the configuration; else {_OURS}",
        ),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached",
            fix="none: the engine does not tell whether its slots share one context",
        ),
        Signal.CONTEXT_LENGTH: Hint(
            cost="a request that is too long for the model is sent and refused by the engine",
            fix="none: the router tells the context length of running models only",
        ),
        Signal.CAPABILITIES: Hint(
            cost="a request for what the model cannot do (images, embeddings) is sent and refused by the engine",
            fix="none: the router tells it of running models only",
        ),
    },
)
