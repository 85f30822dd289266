"""Ollama. Facts: captures 0.17.4 and 0.33.0-rc2, and sources of 0.6 to 0.17.4.

It tells neither what runs nor what waits: only our own count does. How many requests of a model run at once is in its
log, in two ways. A line about the start of a model's server (from 0.30 on) has the true number and the model's file: it
is filed under that file, which `/api/show` names as the model's queue. A line about the settings has what was asked
for, which the scheduler overrules for some models: it holds for those that `/api/show` tells to be others.

Forbidden here: `capabilities` of `/api/tags`, which calls embedding models completing ones, and `expires_at`, which
moves while requests run.
"""

import re
from typing import Any

import msgspec

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_probe, listed, member, model_names, of_type
from pharos.core.engine.logline import log_line
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, ProbeError
from pharos.core.engine.recipe import (
    LIST_PATH,
    Fingerprint,
    Recipe,
    Verdict,
    all_owned,
    confirm,
    is_ok,
    lacking,
    owners_of,
)
from pharos.core.engine.usage_fields import Dialect
from pharos.core.engine.values import number, quoted
from pharos.core.signals import ABILITIES, BACKEND, Found, Residency, Signal, Value

KIND = "ollama"
OWNER = "library"
"""`owned_by` of models from its own library; others have the name of who made them."""
UNSET_VERSION = "0.0.0"
"""What a build says that nobody gave a version."""
ONE_AT_A_TIME = ("mllama", "qwen3next", "qwen3vl", "qwen35", "lfm2", "nemotron_h")
"""Beginnings of the families of which the scheduler runs one request at a time, whatever the settings ask for."""
RULE_KNOWN_FROM = (0, 17, 4)
RULE_KNOWN_UNTIL = (0, 34, 0)
"""Versions for which it was read which families these are. 0.17.0 has fewer of them; the list has only grown."""
NOT_OLLAMA = ("/api/extra/version", "/engines/ps", "/api/v1/health", "/.well-known/localai.json")
"""Paths of the programs that answer /api/version like it; it has none of them."""

VERSION = Feed(kind=FeedKind.GET, path="/api/version")
STATUS_PATH = "/api/status"
"""No other program has it; versions before February 2026 lack it."""
TAGS = Feed(kind=FeedKind.GET, path="/api/tags")
LIST = Feed(kind=FeedKind.GET, path=LIST_PATH)
LOADED = Feed(kind=FeedKind.GET, path="/api/ps")
SHOW = Feed(kind=FeedKind.POST, path="/api/show", interval_s=300.0, per_model=True)
"""What a model is. It changes when somebody makes another model of that name."""

_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?:[-+.][0-9A-Za-z.+-]*)?")
_FILE = re.compile(r"(?:#[^\n]*\n|\n)*FROM (?:[^\n]*[/\\])?(sha256-[0-9a-f]{64})\n")
_CONTEXT_OPTION = re.compile(r"^num_ctx[ \t]+([0-9]{1,9})$", re.MULTILINE)
_CONTEXT_AGAIN = re.compile(r"^PARAMETER num_ctx ", re.MULTILINE)
_LINE = r"^time=\S++ level=INFO source=\S++ msg="
_STARTS = (
    _LINE + r'"starting llama-server" cmd="(?>[^"]*? --model )(?>[^"]*?(?P<model>sha256-[0-9a-f]{64}) )(?>[^"]*? -np )'
    r'(?P<value>[0-9]{1,9})[ "]'
)
_SETTINGS = _LINE + r'"server config" env="map\[(?:[^"]* )?OLLAMA_NUM_PARALLEL:'


def _version(document: object) -> Found:
    text = of_type(member(document, "version"), str, "version")
    if text == UNSET_VERSION:
        raise ProbeError(DropReason.NO_VALUE, f"{UNSET_VERSION} is what a build without a version says")
    if _VERSION.fullmatch(text) is None:
        raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(text)} is no version")
    return {BACKEND: text}


def rule_is_known(version: str | None) -> bool:
    """Whether it was read for this version which families run one request at a time."""
    matched = _VERSION.fullmatch(version) if version is not None else None
    if matched is None:
        return False
    return RULE_KNOWN_FROM <= (int(matched[1]), int(matched[2]), int(matched[3])) < RULE_KNOWN_UNTIL


def _entries(document: object) -> list[dict[str, Any]]:
    """The entries of a list of models, each with a proper `name`. Raises `ProbeError`."""
    entries = of_type(member(document, "models"), list, "models")
    models = [of_type(entry, dict, "a model") for entry in entries]
    for model in models:
        if not of_type(model.get("name"), str, "name"):
            raise ProbeError(DropReason.PARSE_ERROR, "an empty name")
    return models


def _names(document: object) -> Found:
    return {BACKEND: tuple(dict.fromkeys(model["name"] for model in _entries(document)))}


def _is_remote(model: dict[str, Any]) -> bool:
    """Whether an entry stands for a model that runs elsewhere: prompts leave the network."""
    host = model.get("remote_host")
    return host is not None and bool(of_type(host, str, "remote_host"))


def cloud_stubs(page: Page) -> tuple[str, ...]:
    """Name the models in a page of /api/tags that run on somebody else's servers. Raises `ProbeError`."""
    return tuple(model["name"] for model in _entries(document_of(page)) if _is_remote(model))


def _remarks(pages: Pages) -> tuple[str, ...]:
    page = pages.get(TAGS.path)
    try:
        stubs = cloud_stubs(page) if page is not None and is_ok(page) else ()
    except ProbeError:
        return ()
    return tuple(f"{stub} runs elsewhere (it has a remote_host): its prompts leave the network" for stub in stubs)


def _stubs(document: object) -> Found:
    """Models that run elsewhere need no memory here: they are always there."""
    return {model["name"]: Residency.LOADED for model in _entries(document) if _is_remote(model)}


def _sizes(document: object) -> Found:
    """Read the bytes of the files; those of a stub are not the model's."""
    found: dict[str, Value] = {}
    for model in _entries(document):
        if not _is_remote(model):
            found[model["name"]] = number(Signal.SIZE_BYTES, member(model, "size"))
    return found


def _residency(document: object) -> Found:
    """Read what is in memory. All else is cold, or being loaded: newer versions list a model only when it is ready.

    Version 0.17.4 lists one from somewhere in the middle of its load on.
    """
    return {BACKEND: Residency.COLD, **{model["name"]: Residency.LOADED for model in _entries(document)}}


def _vram(document: object) -> Found:
    return {model["name"]: number(Signal.VRAM_BYTES, member(model, "size_vram")) for model in _entries(document)}


def _contexts(document: object) -> Found:
    """Read the context length that each loaded model has now; engines for other file formats tell none."""
    found: dict[str, Value] = {}
    models = _entries(document)
    for model in models:
        told = model.get("context_length")
        if told is not None and told != 0:
            found[model["name"]] = number(Signal.CONTEXT_LENGTH, told)
    if models and not found:
        raise ProbeError(DropReason.NO_VALUE, "no context_length")
    return found


def _context_bound(document: object) -> Found:
    """Read the context length that a model's own options give it, as far as it can have so much.

    One without such an option gets what the server gives all models, which it tells only of those in memory.
    """
    info = of_type(member(document, "model_info"), dict, "model_info")
    family = of_type(info.get("general.architecture"), str, "general.architecture")
    told = info.get(f"{family}.context_length")
    if told is None:
        raise ProbeError(DropReason.NO_VALUE, "no context_length of its architecture")
    length = number(Signal.CONTEXT_LENGTH, told)
    given = _own_context(document)
    return {BACKEND: min(length, number(Signal.CONTEXT_LENGTH, given))} if given is not None else {}


def _own_context(document: object) -> int | None:
    """Return the context length that a model's own options ask for; `None` for a model that has no such option.

    They are told twice. Raises `ProbeError` when one of them is not.
    """
    options = of_type(member(document, "parameters"), str, "parameters") if _has(document, "parameters") else ""
    given = _CONTEXT_OPTION.search(options)
    again = _CONTEXT_AGAIN.search(of_type(member(document, "modelfile"), str, "modelfile"))
    if (given is None) != (again is None):
        raise ProbeError(DropReason.NO_EVIDENCE, "parameters and modelfile differ")
    return int(given[1]) if given is not None else None


def _has(document: object, field: str) -> bool:
    return of_type(document, dict, "the body").get(field) is not None


def _words(document: object) -> frozenset[str]:
    told = of_type(member(document, "capabilities"), list, "capabilities")
    return frozenset(of_type(word, str, "a capability") for word in told)


def _abilities(document: object) -> Found:
    able = _words(document) & ABILITIES
    if not able:
        raise ProbeError(DropReason.NO_VALUE, "no capability that is known")
    return {BACKEND: tuple(sorted(able))}


def _runs_one(document: object) -> bool:
    """Whether the scheduler runs one request of a model at a time: of some families, and of all that embed."""
    family = of_type(member(document, "details.family"), str, "details.family")
    words = _words(document)
    if not words:
        raise ProbeError(DropReason.NO_VALUE, "no capabilities")
    return family.startswith(ONE_AT_A_TIME) or "completion" not in words


def _file_of(document: object) -> str | None:
    """The file of a model; `None` for one that has none here, or is of another format than GGUF."""
    if _has(document, "remote_host") or member(document, "details.format") != "gguf":
        return None
    matched = _FILE.match(of_type(member(document, "modelfile"), str, "modelfile"))
    return matched[1] if matched is not None else None


def _group(document: object) -> Found:
    """Name the queue of a model: the scheduler has one server for each file, whatever names there are for it.

    Without family and capabilities it is not told: nobody knows then whether the slots in the settings hold for it.
    """
    _runs_one(document)
    file = _file_of(document)
    return {BACKEND: file} if file is not None else {}


def _one_slot(document: object) -> Found:
    return {BACKEND: 1} if _file_of(document) is not None and _runs_one(document) else {}


def _has_cloud(document: object) -> str:
    of_type(member(document, "cloud"), dict, "cloud")
    return "has cloud"


def _judge(pages: Pages) -> Verdict:
    """Recognise by /api/status, or in older versions by /api/version when nothing of those is there that imitate it."""
    claimed = all_owned(pages, OWNER)
    verdict = confirm(pages, STATUS_PATH, _has_cloud, claimed=claimed)
    if verdict.matches is not False:
        return verdict
    told = confirm(pages, VERSION.path, _names_version, claimed=claimed)
    if told.matches is not True:
        return Verdict(matches=told.matches, text=told.text if told.matches is None else "")
    if not owners_of(pages):
        return Verdict(matches=None, text="/api/version is like Ollama's, but no model in a list bears its mark")
    if not all(_is_owned(card) for card in listed(document_of(pages[LIST_PATH]))):
        return Verdict(matches=False, text="/api/version is like Ollama's, but its list is not")
    for path in NOT_OLLAMA:
        missing = lacking(pages, path)
        if missing is not None:
            return Verdict(matches=None, text=missing)
        if pages[path].status != 404:  # noqa: PLR2004 - HTTP
            return Verdict(matches=False, text=f"/api/version is like Ollama's, but {path} is there too")
    return Verdict(matches=True, text=f"{told.text}, and it has no path of those that imitate it")


def _is_owned(card: dict[str, Any]) -> bool:
    """Whether a model's owner in its list is the namespace of its name, as Ollama has it: library/tiny:latest."""
    name, _, tag = str(card["id"]).rpartition(":")
    owner = name.split("/")[-2] if "/" in name else OWNER
    return bool(tag and name) and card.get("owned_by") == owner


def _names_version(document: object) -> str:
    version = of_type(member(document, "version"), str, "version")
    if _VERSION.fullmatch(version) is None:
        raise ProbeError(DropReason.NO_VALUE, f"{quoted(version)} is no version")
    return f"says {quoted(version)}"


def _is_older(pages: Pages) -> bool:
    """Whether /api/status has a real answer, and it is not that of a newer Ollama."""
    return confirm(pages, STATUS_PATH, _has_cloud).matches is False


_LOG = "give the backend's capacity in the configuration, or its log (`logs`): Ollama tells its slots there only"


def _dialect(version: str | None) -> Dialect:
    """Its replies count the whole prompt in every protocol, except in 0.30.0, which leaves out what was cached."""
    return Dialect(
        whole_input=True,
        estimates_start=True,
        is_ollama=True,
        leaves_out_cached=version is not None and re.match(r"v?0\.30\.0(?![0-9])", version) is not None,
        says_done=True,
    )


RECIPE = Recipe(
    kind=KIND,
    rank=400,
    dialect=_dialect,
    owners=(OWNER,),
    probes=(
        json_probe("ollama-version", Signal.VERSION, VERSION, _version, wants="version"),
        # Not /v1/models, which does not tell stubs from models: names, sizes and stubs come from one page.
        json_probe("ollama-models", Signal.MODELS, TAGS, _names, wants="models"),
        json_probe("ollama-list", Signal.MODELS, LIST, model_names, wants="data"),
        json_probe("ollama-residency", Signal.RESIDENCY, LOADED, _residency, wants="models"),
        json_probe(
            "ollama-stubs", Signal.RESIDENCY, TAGS, _stubs, wants="models.remote_host", beside=True, may_be_empty=True
        ),
        json_probe("ollama-size", Signal.SIZE_BYTES, TAGS, _sizes, wants="models.size", may_be_empty=True),
        json_probe("ollama-vram", Signal.VRAM_BYTES, LOADED, _vram, wants="models.size_vram", may_be_empty=True),
        json_probe(
            "ollama-context", Signal.CONTEXT_LENGTH, LOADED, _contexts, wants="models.context_length", may_be_empty=True
        ),
        json_probe(
            "ollama-context-bound",
            Signal.CONTEXT_LENGTH,
            SHOW,
            _context_bound,
            wants="model_info.general.architecture",
            rank=1,
            beside=True,
            may_be_empty=True,
        ),
        json_probe("ollama-abilities", Signal.CAPABILITIES, SHOW, _abilities, wants="capabilities"),
        json_probe("ollama-file", Signal.PHYSICAL_GROUP, SHOW, _group, wants="modelfile", may_be_empty=True),
        json_probe(
            "ollama-one-slot",
            Signal.CAPACITY,
            SHOW,
            _one_slot,
            wants="details.family",
            when=rule_is_known,
            rank=1,
            beside=True,
            may_be_empty=True,
        ),
        log_line("ollama-log-slots", Signal.CAPACITY, _STARTS),
        # One each is one each, whatever the scheduler thinks of a model.
        log_line("ollama-log-single", Signal.CAPACITY, _SETTINGS + r"(?P<value>1)(?=[ \]])", rank=2),
        msgspec.structs.replace(
            log_line("ollama-log-parallel", Signal.CAPACITY, _SETTINGS + r"(?P<value>[0-9]{1,9})(?=[ \]])", rank=2),
            when=rule_is_known,
        ),
    ),
    fingerprint=Fingerprint(
        paths=(STATUS_PATH, VERSION.path),
        judge=_judge,
        guarded=NOT_OLLAMA,
        may=_is_older,
    ),
    record_paths=(STATUS_PATH,),
    remarks=_remarks,
    empty_post_tells=True,
    takes_bare_names=True,
    usual_capacity="capacity_ollama",
    context_in_residency=True,
    # It refuses what a model lacks of these. It embeds with any model, so that the lack of that word says nothing.
    tells_abilities=frozenset({"completion", "insert", "thinking", "tools", "vision"}),
    queue_is_loaded=True,
    slots_by_queue=True,
    hints={
        Signal.VERSION: Hint(
            cost="an upgrade is not noticed: learned speeds stay, and the slots in its settings are not believed",
            fix="use a released build: one built without the linker flag for its version says 0.0.0",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="none: Ollama does not tell what runs; send all its traffic through Pharos",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the engine is not seen",
            fix="none: Ollama does not tell what waits; send all its traffic through Pharos",
        ),
        Signal.CAPACITY: Hint(cost="an assumed number of slots is used, which may be too few or too many", fix=_LOG),
        Signal.CONTEXT_LENGTH: Hint(
            cost="a request that is too long for the model is sent, and the engine cuts it without a word",
            fix="give the model a num_ctx of its own (PARAMETER num_ctx): else it is known of models in memory only",
        ),
        Signal.PHYSICAL_GROUP: Hint(
            cost="names that share one queue are each taken to have slots of their own",
            fix="let the backend answer POST /api/show; models of other formats than GGUF have none that is told",
        ),
        Signal.VRAM_BYTES: Hint(
            cost="whether a cold model fits beside the loaded ones is judged by size alone",
            fix="none: Ollama tells it of models in memory only",
        ),
        Signal.CAPABILITIES: Hint(
            cost="a request for what the model cannot do (images, tools, embeddings) is sent and refused by the engine",
            fix="let the backend answer POST /api/show; in old versions it has no capabilities",
        ),
        Signal.GPU_TOTAL_BYTES: Hint(
            cost="whether a cold model fits is judged by the backend's memory_gb, if given",
            fix="give the backend's memory_gb in the configuration: Ollama logs its GPU memory in rounded numbers only",
        ),
    },
)
