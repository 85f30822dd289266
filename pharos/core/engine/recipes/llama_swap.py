"""llama-swap: a proxy that starts and stops one server per model. Facts: captures v250-5-g0bdb37, and its source then.

`/upstream/MODEL/...` loads the model, renews its time to live and takes one of the places that its concurrency limit
has. So it is read only while requests of ours run on the model, and seldom; a 429 there means that the model is full.
What runs is counted from the stream of events instead.

Forbidden here: `/unload`, paths under `/upstream` of models that run nothing of ours, and keeping what the events
carry: request headers and addresses of clients.
"""

import re
from typing import Any

from pharos.core.engine import llamacpp_fields
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_number, json_probe, listed, member, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.prom import Aggregate, prom
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned, confirm
from pharos.core.engine.values import number, quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([A-Za-z]+)"')
KIND = "llama-swap"
"""Its kind, and `owned_by` in its model list."""
STATES = {
    "stopped": Residency.COLD,
    "starting": Residency.LOADING,
    "ready": Residency.LOADED,
    # Its process takes no request any more: one that comes now waits until the model was loaded anew.
    "stopping": Residency.COLD,
    "shutdown": Residency.COLD,
}
"""`state` of a model."""
LET_IN = 10
"""Requests of one model that it lets in when not told otherwise; what it was told is on none of its pages."""
NO_VERSION = frozenset({"0", "unknown", "dev"})
"""What builds say that nobody gave a version."""

VERSION = Feed(kind=FeedKind.GET, path="/api/version")
MODELS = Feed(kind=FeedKind.GET, path=LIST_PATH)
RUNNING = Feed(kind=FeedKind.GET, path="/running")
METRICS = Feed(kind=FeedKind.GET, path="/metrics")
EVENTS = Feed(kind=FeedKind.SSE, path="/api/events")


def _upstream(path: str, interval_s: float) -> Feed:
    return Feed(
        kind=FeedKind.GET,
        path=f"/upstream/{{model}}{path}",
        side_effect=SideEffect.PINS,
        interval_s=interval_s,
        per_model=True,
        loaded_only=True,
        passing=frozenset({429}),
    )


UPSTREAM_METRICS = _upstream("/metrics", 5.0)
UPSTREAM_PROPS = _upstream("/props", 60.0)
"""What it says does not change while the model is loaded."""
MOST_OPEN = 100_000
"""Requests that are counted at once; a stream that never tells an end must not fill the memory."""
LIGHT = ("/props", "/metrics", "/slots", "/health", "/v1/models", "/tokenize", "/detokenize", "/apply-template")
"""Paths that take a place of the limit but no slot. A path under `/upstream/MODEL` is shown without that."""
COUNTING = ("/count_tokens", "/input_tokens")
"""Ends of paths that only count."""


def _version(document: object) -> Found:
    text = of_type(member(document, "version"), str, "version").strip()
    if not text or text in NO_VERSION:
        raise ProbeError(DropReason.NO_VALUE, f"version {quoted(text)}")
    return {BACKEND: text}


def _cards(document: object) -> list[dict[str, Any]]:
    """The cards of models; not those of aliases, of other servers' models and the like. Raises `ProbeError`.

    Older versions give no card a type, and have models only.
    """
    cards = listed(document)
    types = [_about(card).get("type") for card in cards]
    if all(kind is None for kind in types):
        return cards
    return [card for card, kind in zip(cards, types, strict=True) if of_type(kind, str, "type") == "model"]


def _about(card: dict[str, Any]) -> dict[str, Any]:
    """What llama-swap itself says about a model."""
    meta = card.get("meta")
    about = of_type(meta, dict, "meta").get("llamaswap") if meta is not None else None
    return of_type(about, dict, "meta.llamaswap") if about is not None else {}


def _names(card: dict[str, Any]) -> list[str]:
    aliases = of_type(_about(card).get("aliases", []), list, "aliases")
    return [card["id"], *(alias for alias in (of_type(one, str, "an alias") for one in aliases) if alias)]


def _models(document: object) -> Found:
    return {BACKEND: tuple(dict.fromkeys(name for card in _cards(document) for name in _names(card)))}


def _groups(document: object) -> Found:
    return {name: card["id"] for card in _cards(document) for name in _names(card)}


def _contexts(document: object) -> Found:
    """Read the context length of models for which the operator gave one."""
    found: dict[str, Value] = {}
    for card in _cards(document):
        if card.get("context_length") is not None:
            length = number(Signal.CONTEXT_LENGTH, card["context_length"])
            found.update(dict.fromkeys(_names(card), length))
    return found


def _residency(document: object) -> Found:
    """Read where models are: one that is not in the list is not in memory."""
    found: dict[str, Value] = {BACKEND: Residency.COLD}
    for entry in of_type(member(document, "running"), list, "running"):
        model = _name_of(entry, "model")
        state = of_type(member(entry, "state"), str, "state")
        if state not in STATES or model in found:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(model)} is {quoted(state)}, or comes twice")
        found[model] = STATES[state]
    return found


def _name_of(entry: object, field: str) -> str:
    name = of_type(member(entry, field), str, field)
    if not name:
        raise ProbeError(DropReason.PARSE_ERROR, f"an empty {field}")
    return name


def _capacity(document: object) -> Found:
    """Read the slots of a model's server, unless llama-swap may let fewer in."""
    slots = number(Signal.CAPACITY, member(document, "total_slots"))
    if slots > LET_IN:
        raise ProbeError(
            DropReason.NO_EVIDENCE, f"{slots} slots, but llama-swap lets {LET_IN} in unless told otherwise"
        )
    return {BACKEND: slots}


def _content(data: bytes, *wanted: str) -> tuple[str, object] | None:
    """Take an event of a wanted type apart; `None` for the others, which hold lines of logs and are not looked at.

    Raises `ProbeError`.
    """
    head = _TYPE.match(data[:64])
    if head is not None and head[1].decode() not in wanted:
        return None
    envelope = document_of(Page(status=200, body=data))
    kind = of_type(member(envelope, "type"), str, "type")
    if kind not in wanted:
        return None
    text = of_type(member(envelope, "data"), str, "data")
    return kind, document_of(Page(status=200, body=text.encode()))


class States:
    """Reads where each model is whenever that changed, for all its names."""

    def feed(self, event: str, data: bytes) -> Found:  # noqa: ARG002 - all events have the same name
        """Take in one event. Raises `ProbeError` for a state that no version read here has."""
        told = _content(data, "modelStatus")
        found: dict[str, Value] = {}
        for entry in _own_models(told[1]) if told is not None else ():
            state = of_type(member(entry, "state"), str, "state")
            if state not in STATES:
                raise ProbeError(DropReason.NO_EVIDENCE, f"state {quoted(state)} is new")
            found.update(dict.fromkeys(_names_in(entry), STATES[state]))
        return found


class Inflight:
    """Counts the requests of each model from the events that say when one begins and ends.

    The names of the models and a snapshot of the requests come first; what comes before them tells nothing.
    """

    def __init__(self) -> None:
        self._open: dict[str, str] | None = None
        self._names: dict[str, tuple[str, ...]] | None = None
        self._told: dict[str, int] = {}

    def feed(self, event: str, data: bytes) -> Found:  # noqa: ARG002 - all events have the same name
        """Take in one event; return the counts that are new. Raises `ProbeError`."""
        told = _content(data, "modelStatus", "inflight")
        if told is None:
            return {}
        if told[0] == "modelStatus":
            self._names = {_name_of(entry, "id"): _names_in(entry) for entry in _own_models(told[1])}
        else:
            self._change(of_type(told[1], dict, "data"))
        if self._open is None or self._names is None:
            return {}
        counts = self._counted(self._open, self._names)
        now = {**dict.fromkeys(self._told, 0), **counts}
        found: Found = {name: count for name, count in now.items() if self._told.get(name) != count}
        self._told = counts
        return found

    def _change(self, change: dict[str, Any]) -> None:
        operation = of_type(member(change, "operation"), str, "operation")
        if operation == "snapshot":
            if not change.keys() <= {"operation", "requests"}:
                raise ProbeError(DropReason.NO_EVIDENCE, "a snapshot with a new field")
            self._open = {}
            for request in of_type(change.get("requests", []), list, "requests"):
                _begin(self._open, request)
        elif operation not in {"upsert", "remove"}:
            raise ProbeError(DropReason.NO_EVIDENCE, f"operation {quoted(operation)} is new")
        elif self._open is not None:
            if operation == "upsert":
                _begin(self._open, member(change, "request"))
            else:
                self._open.pop(_name_of(change, "id"), None)

    @staticmethod
    def _counted(requests: dict[str, str], names: dict[str, tuple[str, ...]]) -> dict[str, int]:
        """Requests by name: all names of a model have the count of the model."""
        main = {name: model for model, all_names in names.items() for name in all_names}
        counts = dict.fromkeys(names, 0)
        for asked in requests.values():
            model = main.get(asked, asked)
            counts[model] = counts.get(model, 0) + 1
        return {name: count for model, count in counts.items() for name in names.get(model, (model,))}


def _begin(requests: dict[str, str], request: object) -> None:
    """Note a request that runs, unless it is one that takes no slot."""
    path = of_type(member(request, "req_path"), str, "req_path")
    is_light = path in LIGHT or path.endswith(COUNTING) or path.startswith("/upstream/")
    if of_type(member(request, "method"), str, "method") == "POST" and not is_light:
        requests[_name_of(request, "id")] = _name_of(request, "model")
    if len(requests) > MOST_OPEN:
        raise ProbeError(DropReason.PARSE_ERROR, f"more than {MOST_OPEN} requests at once")


def _own_models(content: object) -> list[dict[str, Any]]:
    """The entries of models that this llama-swap runs itself."""
    entries = [of_type(entry, dict, "a model") for entry in of_type(content, list, "data")]
    return [entry for entry in entries if not entry.get("peerID")]


def _names_in(entry: dict[str, Any]) -> tuple[str, ...]:
    aliases = of_type(entry.get("aliases", []), list, "aliases")
    given = (of_type(alias, str, "an alias") for alias in aliases)
    return (_name_of(entry, "id"), *(alias for alias in given if alias))  # an empty one would speak of the backend


def _gpu(name: str, signal: Signal, metric: str) -> Probe:
    """Declare a probe of a number that each GPU has."""
    return prom(name, signal, metric, feed=METRICS, aggregate=Aggregate.SUM, over=("id", "name", "uuid"))


def _runs_models(document: object) -> str:
    of_type(member(document, "running"), list, "running")
    return "has running[]"


def _judge(pages: Pages) -> Verdict:
    """Recognise by /running, together with the commit in /api/version; older versions, without that, by the owner."""
    owned = all_owned(pages, KIND)
    verdict = confirm(pages, RUNNING.path, _runs_models, claimed=owned)
    if verdict.matches is not True:
        return Verdict(matches=verdict.matches, text=verdict.text if verdict.matches is None else "")
    page = pages.get(VERSION.path)
    if owned and page is not None and page.status == 404:  # noqa: PLR2004 - HTTP
        return Verdict(matches=True, text=f"/running has running[], and all models are owned by {KIND}")
    built = confirm(pages, VERSION.path, lambda document: f"has commit {quoted(_name_of(document, 'commit'))}")
    if built.matches is not True:
        return built
    return Verdict(matches=True, text=f"{verdict.text}, and {built.text}")


_OURS = "it is read only while requests sent through Pharos run on the model, since a read keeps the model loaded"

RECIPE = Recipe(
    kind=KIND,
    tells_abilities=frozenset({"audio", "vision"}),  # what llama.cpp behind it tells with a word of its own each
    rank=100,
    owners=(KIND,),
    usual_models=1,  # groups and matrices of models that run together are in its configuration only
    caches_lost=llamacpp_fields.CACHES_LOST,
    minds={"/upstream": SideEffect.LOADS, "/unload": SideEffect.DRAINS},
    probes=(
        json_probe("llama-swap-version", Signal.VERSION, VERSION, _version, wants="version"),
        json_probe("llama-swap-models", Signal.MODELS, MODELS, _models, wants="data"),
        json_probe("llama-swap-group", Signal.PHYSICAL_GROUP, MODELS, _groups, wants="data"),
        json_probe("llama-swap-residency", Signal.RESIDENCY, RUNNING, _residency, wants="running.state"),
        Probe(
            "llama-swap-states",
            Signal.RESIDENCY,
            EVENTS,
            lambda _: {},
            beside=True,
            wants="modelStatus",
            follow=lambda _: States(),
        ),
        Probe(
            "llama-swap-inflight",
            Signal.RUNNING,
            EVENTS,
            lambda _: {},
            wants="inflight",
            follow=lambda _: Inflight(),
        ),
        *llamacpp_fields.load_probes("llama-swap-upstream", UPSTREAM_METRICS, rank=1),
        json_probe("llama-swap-upstream-capacity", Signal.CAPACITY, UPSTREAM_PROPS, _capacity, wants="total_slots"),
        json_number(
            "llama-swap-upstream-context",
            Signal.CONTEXT_LENGTH,
            UPSTREAM_PROPS,
            "default_generation_settings.n_ctx",
        ),
        json_probe(
            "llama-swap-context",
            Signal.CONTEXT_LENGTH,
            MODELS,
            _contexts,
            wants="data.context_length",
            rank=1,
            beside=True,
            may_be_empty=True,
        ),
        json_probe(
            "llama-swap-upstream-modalities",
            Signal.CAPABILITIES,
            UPSTREAM_PROPS,
            llamacpp_fields.modalities,
            wants="modalities",
        ),
        _gpu("llama-swap-gpu-total", Signal.GPU_TOTAL_BYTES, "llamaswap_gpu_memory_total_bytes"),
        _gpu("llama-swap-gpu-used", Signal.GPU_USED_BYTES, "llamaswap_gpu_memory_used_bytes"),
    ),
    fingerprint=Fingerprint(
        paths=(RUNNING.path,),
        judge=_judge,
        guarded=(VERSION.path,),
        may=lambda pages: confirm(pages, RUNNING.path, _runs_models).matches is True,
    ),
    record_paths=("/health",),
    hints={
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="use llama-swap of July 2026 or later: its /api/events must tell the requests in flight",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the model's server is not seen",
            fix=f"start llama.cpp behind it with --metrics; {_OURS}",
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which may be too few or too many",
            fix=f"give the backend's capacity in the configuration; else {_OURS}",
        ),
        Signal.CONTEXT_LENGTH: Hint(
            cost="a request that is too long for the model is sent and refused by the engine",
            fix=f"give the model's context length in llama-swap's configuration; else {_OURS}",
        ),
        Signal.CAPABILITIES: Hint(
            cost="a request for what the model cannot do (images, embeddings) is sent and refused by the engine",
            fix=f"none: {_OURS}",
        ),
        Signal.GPU_TOTAL_BYTES: Hint(
            cost="whether a cold model fits is judged by the backend's memory_gb, if given",
            fix="give the backend's memory_gb in the configuration, or llama-swap a tool that shows its GPUs",
        ),
    },
)
