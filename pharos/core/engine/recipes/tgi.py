"""Hugging Face's Text Generation Inference. Facts: an old copy of its source; no capture yet.

Forbidden here: `/health`, which may generate a token, and `max_concurrent_requests` as capacity: it counts those that
wait, too.
"""

from pharos.core.engine.cards import one_queue
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_number, json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, confirm
from pharos.core.engine.values import quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal

INFO = Feed(FeedKind.GET, "/info")
MODELS = Feed(FeedKind.GET, LIST_PATH)
METRICS = Feed(FeedKind.GET, "/metrics")
LIMIT = "max_total_tokens"
"""Tokens of prompt and reply together. An embedding server of the same house has an /info without it."""


def _text(document: object, field: str) -> str:
    text = of_type(member(document, field), str, field)
    if not text.strip():
        raise ProbeError(DropReason.NO_VALUE, f"{field} is empty")
    return text


def _version(document: object) -> Found:
    return {BACKEND: _text(document, "version")}


def _model(document: object) -> Found:
    return {BACKEND: (_text(document, "model_id"),)}


def _residency(document: object) -> Found:
    """Read that the model is loaded: it is before the server answers, and stays so."""
    _text(document, "model_id")
    return {BACKEND: Residency.LOADED}


def _about(document: object) -> str:
    model, limit = _text(document, "model_id"), of_type(member(document, LIMIT), int, LIMIT)
    return f"has version {quoted(_text(document, 'version'))}, model_id {quoted(model)} and {LIMIT} {limit}"


def _judge(pages: Pages) -> Verdict:
    """Recognise by what /info says, which is the server's own page."""
    return confirm(pages, INFO.path, _about)


_FIX = "its /metrics must have tgi_batch_current_size and tgi_queue_size"

RECIPE = Recipe(
    kind="tgi",
    rank=340,
    probes=(
        json_probe("tgi-version", Signal.VERSION, INFO, _version, wants="version"),
        json_probe("tgi-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("tgi-model", Signal.MODELS, INFO, _model, wants="model_id"),
        json_probe("tgi-residency", Signal.RESIDENCY, INFO, _residency, wants="model_id"),
        json_probe("tgi-group", Signal.PHYSICAL_GROUP, MODELS, one_queue),
        json_number("tgi-context", Signal.CONTEXT_LENGTH, INFO, LIMIT),
        prom("tgi-running", Signal.RUNNING, "tgi_batch_current_size", feed=METRICS, may_come=True),
        prom("tgi-waiting", Signal.WAITING, "tgi_queue_size", feed=METRICS, may_come=True),
    ),
    fingerprint=Fingerprint(paths=(INFO.path,), judge=_judge),
    shared_queue=True,
    hints={
        Signal.PHYSICAL_GROUP: Hint(
            cost="nothing: this engine has one model and one queue", fix="use a newer one, which lists its model"
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which is far too few",
            fix="give the backend's capacity in the configuration: how many requests fit depends on their length",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count", fix=_FIX
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_FIX),
    },
)
