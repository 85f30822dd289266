"""LocalAI, by its own pages. Facts: the server's source (reference notes), hand-made bodies in testdata/localai.

Forbidden here: what it says in Ollama's name (/api/version, /api/ps and "Ollama is running" are made up), and
/backend/monitor, which is asked with a model's name. It tells no load: its /metrics count calls that have ended.
"""

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, confirm
from pharos.core.engine.values import quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

KIND = "localai"
MODELS = Feed(FeedKind.GET, LIST_PATH)
VERSION = Feed(FeedKind.GET, "/version")
SYSTEM = Feed(FeedKind.GET, "/system")
"""Which models are in memory: for administrators, where keys are in use."""
ABOUT = "/.well-known/localai.json"
ERRORS = frozenset({"error", "detail", "message"})
"""Fields with which servers say that they lack a path, some of them with status 200."""


def _text_of(document: object) -> str:
    text = of_type(member(document, "version"), str, "version")
    if not text.strip():
        raise ProbeError(DropReason.NO_VALUE, "the version is empty")
    return text


def _version(document: object) -> Found:
    return {BACKEND: _text_of(document)}


def _residency(document: object) -> Found:
    """Read the models in memory, by names that need not be those of the list: what is not among them is unknown."""
    loaded = of_type(member(document, "loaded_models"), list, "loaded_models")
    found: dict[str, Value] = {}
    for entry in loaded:
        name = of_type(member(entry, "id"), str, "id")
        if not name:
            raise ProbeError(DropReason.PARSE_ERROR, "an empty id")
        found[name] = Residency.LOADED
    return found or {BACKEND: Residency.COLD}


def _about(document: object) -> str:
    fields = of_type(document, dict, "the body")
    if not fields or not ERRORS.isdisjoint(fields):
        raise ProbeError(DropReason.NO_VALUE, "not what LocalAI says there")
    return "answers"


def _judge(pages: Pages) -> Verdict:
    """Recognise by the page that bears its name; its /version shows that not just any path is answered so."""
    about = confirm(pages, ABOUT, _about)
    if not about.matches:
        return about
    version = confirm(pages, VERSION.path, lambda document: f"is {quoted(_text_of(document))}")
    return Verdict(matches=version.matches, text=f"{about.text}, {version.text}" if version.matches else version.text)


RECIPE = Recipe(
    kind=KIND,
    rank=130,
    probes=(
        json_probe("localai-version", Signal.VERSION, VERSION, _version, wants="version"),
        json_probe("localai-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("localai-residency", Signal.RESIDENCY, SYSTEM, _residency, wants="loaded_models"),
    ),
    fingerprint=Fingerprint(paths=(ABOUT, VERSION.path), judge=_judge),
    record_paths=(ABOUT, "/api/version", "/readyz"),
    hints={
        Signal.RESIDENCY: Hint(
            cost="a cold start cannot be told from a warm one",
            fix="where LocalAI has keys, give Pharos an administrator's: /system is for administrators",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="none: LocalAI does not tell; send all its traffic through Pharos",
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix="none: LocalAI does not tell it"),
    },
)
