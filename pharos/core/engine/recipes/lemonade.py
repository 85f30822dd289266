"""Lemonade, by its own pages. Facts: the server's source (reference notes), hand-made bodies in testdata/lemonade.

Forbidden here: what it says in Ollama's name (sizes of 0, an `expires_at` that it made up), `is_busy` as a number of
requests (it is true for one and for ten), and /v1/slots: that is a llama.cpp child's own page, which wakes a sleeper,
and it does not say which child's.
"""

import msgspec

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, Probe, ProbeError
from pharos.core.engine.prom import prom
from pharos.core.engine.promtext import exposition_of
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned, confirm
from pharos.core.engine.values import quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

OWNER = "lemonade"
"""`owned_by` of its model list, and its kind."""
HEALTH = Feed(FeedKind.GET, "/api/v1/health")
CATALOGUE = Feed(FeedKind.GET, "/api/v1/models")
MODELS = Feed(FeedKind.GET, LIST_PATH)
LOADED_LIST = "all_models_loaded"
MODEL_LABEL = "model"
"""Label of the series that it passes on from its llama.cpp children. Not seen live: with others they are unknown."""
OWN_SERIES = "lemonade_"
CHILDREN = "lemonade_llamacpp_"
STATES = {
    "loaded": Residency.LOADED,
    "ready": Residency.LOADED,
    "loading": Residency.LOADING,
    "starting": Residency.LOADING,
}
"""Words of `status` whose meaning is plain; a model in another state is unknown."""


def _version(document: object) -> Found:
    text = of_type(member(document, "version"), str, "version")
    if not text.strip():
        raise ProbeError(DropReason.NO_VALUE, "the version is empty")
    return {BACKEND: text}


def _residency(document: object) -> Found:
    """Read the models in memory. All others are cold, unless one of these is in a state that is not known here."""
    found: dict[str, Value] = {BACKEND: Residency.COLD}
    for entry in of_type(member(document, LOADED_LIST), list, LOADED_LIST):
        name = of_type(member(entry, "model_name"), str, "model_name")
        status = of_type(member(entry, "status"), str, "status").lower()
        if not name or name in found:
            raise ProbeError(DropReason.PARSE_ERROR, "a model without a name, or one that comes twice")
        if status in STATES:
            found[name] = STATES[status]
        else:
            found.pop(BACKEND, None)
    return found


def _passed_on(name: str, signal: Signal, series: str, *needs: str) -> Probe:
    """Declare a probe of a series of the llama.cpp children, which is there while one of them has a model."""
    of_child = prom(
        name, signal, CHILDREN + series, per_model=MODEL_LABEL, needs=tuple(CHILDREN + need for need in needs)
    )

    def parse(page: Page) -> Found:
        names = exposition_of(page).series
        if not any(one.startswith(OWN_SERIES) for one in names):
            raise ProbeError(DropReason.NO_VALUE, f"no series that starts with {OWN_SERIES}")
        return of_child.parse(page) if any(one.startswith(CHILDREN) for one in names) else {}

    return msgspec.structs.replace(of_child, parse=parse, may_be_empty=True)


def _evidence(document: object) -> str:
    of_type(member(document, LOADED_LIST), list, LOADED_LIST)
    version = of_type(member(document, "version"), str, "version")
    return f"has {LOADED_LIST}, version {quoted(version)}"


def _judge(pages: Pages) -> Verdict:
    return confirm(pages, HEALTH.path, _evidence, claimed=all_owned(pages, OWNER))


RECIPE = Recipe(
    kind=OWNER,
    rank=120,
    probes=(
        json_probe("lemonade-version", Signal.VERSION, HEALTH, _version, wants="version"),
        json_probe("lemonade-catalogue", Signal.MODELS, CATALOGUE, model_names, wants="data"),
        json_probe("lemonade-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("lemonade-residency", Signal.RESIDENCY, HEALTH, _residency, wants=LOADED_LIST),
        _passed_on("lemonade-running", Signal.RUNNING, "requests_processing"),
        # Only builds of the child that have the other series count their queue.
        _passed_on("lemonade-waiting", Signal.WAITING, "requests_deferred", "prompt_tokens_cached_total"),
    ),
    fingerprint=Fingerprint(paths=(HEALTH.path,), judge=_judge),
    owners=(OWNER,),
    record_paths=(HEALTH.path, CATALOGUE.path, "/api/version"),
    hints={
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="none for models that llama.cpp does not run; for others use a Lemonade that passes its series on",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the engine is not seen",
            fix="none for models that llama.cpp does not run; for others use a Lemonade that passes its series on",
        ),
    },
)
