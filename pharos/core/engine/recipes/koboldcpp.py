"""KoboldCpp, by its own pages. Facts: the server's source (reference notes), hand-made bodies in testdata/koboldcpp.

Forbidden here: its imitations. /props and /api/ps are answered with constants (one slot; the same size and digest for
any model), /api/version with the version of an Ollama that it is not, and paths are matched by their end, so that many
a foreign path gets an answer.
"""

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_number, json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned, confirm
from pharos.core.engine.values import quoted, whole
from pharos.core.signals import BACKEND, Found, Residency, Signal

OWNER = "koboldcpp"
"""`owned_by` of its model list, and its kind."""
NAME = "KoboldCpp"
"""What the program calls itself on its own pages."""

MODELS = Feed(FeedKind.GET, LIST_PATH)
ABOUT = Feed(FeedKind.GET, "/.well-known/serviceinfo")
OWN_VERSION = Feed(FeedKind.GET, "/api/extra/version")
PERF = Feed(FeedKind.GET, "/api/extra/perf")
CONTEXT = Feed(FeedKind.GET, "/api/extra/true_max_context_length")


def _named(document: object, path: str) -> None:
    """Raises `ProbeError` unless the page says that it is KoboldCpp's."""
    name = of_type(member(document, path), str, path)
    if name != NAME:
        raise ProbeError(DropReason.NO_VALUE, f"{path} is {quoted(name)}")


def _version(document: object, at: str) -> Found:
    version = of_type(member(document, at), str, at)
    if not version.strip():
        raise ProbeError(DropReason.NO_VALUE, f"{at} is empty")
    return {BACKEND: version}


def _about_version(document: object) -> Found:
    _named(document, "software.name")
    return _version(document, "software.version")


def _own_version(document: object) -> Found:
    _named(document, "result")
    return _version(document, "version")


def _residency(document: object) -> Found:
    """It listens once its model is loaded, and keeps it."""
    _named(document, "software.name")
    return {BACKEND: Residency.LOADED}


def _running(document: object) -> Found:
    """Requests run one after another: the lock is free (`idle` 1) or held by one of them."""
    return {BACKEND: 1 - whole(member(document, "idle"), 1, "idle")}


def _capacity(document: object) -> Found:
    """One: there is a single lock, whose state is on the page."""
    whole(member(document, "idle"), 1, "idle")
    return {BACKEND: 1}


def _evidence(document: object) -> str:
    _named(document, "result")
    return f"says that it is {NAME}"


def _judge(pages: Pages) -> Verdict:
    return confirm(pages, OWN_VERSION.path, _evidence, claimed=all_owned(pages, OWNER))


RECIPE = Recipe(
    kind=OWNER,
    rank=140,
    probes=(
        json_probe("koboldcpp-version", Signal.VERSION, ABOUT, _about_version, wants="software.version"),
        json_probe("koboldcpp-own-version", Signal.VERSION, OWN_VERSION, _own_version, wants="version"),
        json_probe("koboldcpp-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("koboldcpp-residency", Signal.RESIDENCY, ABOUT, _residency, wants="software.name"),
        json_probe("koboldcpp-running", Signal.RUNNING, PERF, _running, wants="idle"),
        json_number("koboldcpp-waiting", Signal.WAITING, PERF, "queue"),
        json_probe("koboldcpp-capacity", Signal.CAPACITY, PERF, _capacity, wants="idle"),
        json_number("koboldcpp-context", Signal.CONTEXT_LENGTH, CONTEXT, "value"),
    ),
    fingerprint=Fingerprint(paths=(OWN_VERSION.path,), judge=_judge),
    shared_queue=True,
    owners=(OWNER,),
    record_paths=(OWN_VERSION.path, "/props", "/api/version", "/api/ps", "/api/tags"),
    hints={
        Signal.SIZE_BYTES: Hint(
            cost="whether the model fits beside others is not checked",
            fix="none: KoboldCpp does not tell it, and what its /api/ps says is a constant",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="use a newer KoboldCpp: /api/extra/perf must have `idle`",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the engine is not seen",
            fix="use a newer KoboldCpp: /api/extra/perf must have `queue`",
        ),
    },
)
