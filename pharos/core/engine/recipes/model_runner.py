"""Docker Model Runner, by its own pages. Facts: its source (reference notes), and bodies made by hand in testdata.

It starts an engine of its own for each model and passes on what they tell: /metrics is theirs, merged, with the labels
`backend`, `model` and `mode` added.

Forbidden here: what it says in Ollama's name, and a number that the added labels do not give to one model.
"""

from collections.abc import Sequence

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, Probe, ProbeError
from pharos.core.engine.prom import Aggregate, prom
from pharos.core.engine.promtext import exposition_of
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned, confirm, owners_of
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

KIND = "model-runner"
OWNER = "docker"
"""`owned_by` of its model list."""
PS = Feed(FeedKind.GET, "/engines/ps")
OWN_LIST = Feed(FeedKind.GET, "/engines/v1/models")
MODELS = Feed(FeedKind.GET, LIST_PATH)
METRICS = Feed(FeedKind.GET, "/metrics")
NO_RUNNERS = b"# No active runners"
"""The whole of /metrics while no engine is started."""
ADDED = ("backend", "mode")
"""Labels that it adds beside `model`. A model has a process of its own for each."""
ENTRY = ("backend_name", "model_name", "mode")


def _entries(document: object) -> list[dict[str, object]]:
    """Return the engines it has started. Raises `ProbeError`; no value: these are no such entries."""
    entries = [of_type(entry, dict, "an entry") for entry in of_type(document, list, "the body")]
    for entry in entries:
        for field in ENTRY:
            of_type(member(entry, field), str, field)
        if not entry["model_name"]:
            raise ProbeError(DropReason.PARSE_ERROR, "an empty model_name")
    return entries


def _is_loading(entry: dict[str, object]) -> bool:
    return of_type(entry.get("loading", False), bool, "loading")  # left out where it is false


def _residency(document: object) -> Found:
    """Read the models that an engine was started for.

    They may go by other names than in the list (a digest, a name without its tag): what is not among them is unknown.
    """
    states: dict[str, set[bool]] = {}
    for entry in _entries(document):
        states.setdefault(str(entry["model_name"]), set()).add(_is_loading(entry))
    found: dict[str, Value] = {
        model: Residency.LOADING if loading == {True} else Residency.LOADED
        for model, loading in states.items()
        if len(loading) == 1  # one of its processes is loading, another has done so: which one a request meets is open
    }
    return found if states else {BACKEND: Residency.COLD}


def _of_children(name: str, signal: Signal, *series: Probe) -> Probe:
    """Declare a probe that reads, model by model, whichever of the children's series there are.

    There may be none: engines that have no metrics are not in the page.
    """

    def parse(page: Page) -> Found:
        if page.body.strip() == NO_RUNNERS:
            return {BACKEND: 0} if signal is not Signal.KV_USAGE else {}
        found: dict[str, Value] = {}
        errors: list[ProbeError] = []
        for one in series:
            if one.wants not in exposition_of(page).series:
                continue
            try:
                read = one.parse(page)
            except ProbeError as error:  # of these children; others' numbers stand for themselves
                errors.append(error)
                continue
            if found.keys() & read.keys():
                raise ProbeError(DropReason.NO_EVIDENCE, "one model has engines of two kinds")
            found.update(read)
        if errors and not found:
            raise errors[0]
        return found

    return Probe(name=name, signal=signal, feed=METRICS, parse=parse, wants=series[0].wants, may_be_empty=True)


def _series(signal: Signal, metric: str, *also: str, needs: Sequence[str] = ()) -> Probe:
    """Declare one series of one kind of child; `also`: labels of its own."""
    aggregate = Aggregate.MAX if signal is Signal.KV_USAGE else Aggregate.SUM
    return prom(metric, signal, metric, per_model="model", aggregate=aggregate, over=(*ADDED, *also), needs=needs)


def _evidence(document: object) -> str:
    entries = of_type(document, list, "the body")
    if entries and not any("backend_name" in of_type(entry, dict, "an entry") for entry in entries):
        raise ProbeError(DropReason.NO_VALUE, "no backend_name")
    return f"lists started engines: {len(entries)}"


def _judge(pages: Pages) -> Verdict:
    claimed = all_owned(pages, OWNER)
    verdict = confirm(pages, PS.path, _evidence, claimed=claimed)
    if claimed and verdict.matches is False and not verdict.text:
        text = f"the models are owned by {OWNER}, but {PS.path} is missing: does the address end in /engines?"
        return Verdict(matches=False, text=text)
    if verdict.matches and not claimed and owners_of(pages) and document_of(pages[PS.path]) == []:
        return Verdict(matches=False, text=f"{PS.path} is an empty list, and the models are not owned by {OWNER}")
    return verdict


RECIPE = Recipe(
    kind=KIND,
    rank=110,
    probes=(
        json_probe("model-runner-list", Signal.MODELS, OWN_LIST, model_names, wants="data"),
        json_probe("model-runner-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("model-runner-residency", Signal.RESIDENCY, PS, _residency, wants="model_name"),
        _of_children(
            "model-runner-running",
            Signal.RUNNING,
            _series(Signal.RUNNING, "llamacpp:requests_processing"),
            _series(Signal.RUNNING, "vllm:num_requests_running", "engine", "model_name"),
        ),
        _of_children(
            "model-runner-waiting",
            Signal.WAITING,
            # Only builds of llama.cpp that have the other series count their queue.
            _series(Signal.WAITING, "llamacpp:requests_deferred", needs=("llamacpp:prompt_tokens_cached_total",)),
            _series(Signal.WAITING, "vllm:num_requests_waiting", "engine", "model_name"),
        ),
        _of_children(
            "model-runner-kv",
            Signal.KV_USAGE,
            _series(Signal.KV_USAGE, "vllm:kv_cache_usage_perc", "engine", "model_name"),
        ),
    ),
    fingerprint=Fingerprint(paths=(PS.path,), judge=_judge),
    owners=(OWNER,),
    record_paths=(PS.path, OWN_LIST.path, "/api/version"),
    hints={
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="none for engines without metrics of their own: Model Runner passes on what its engines tell",
        ),
        Signal.WAITING: Hint(
            cost="a queue inside the engine is not seen",
            fix="use a Model Runner with a newer llama.cpp; engines without metrics of their own tell nothing",
        ),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached",
            fix="none: only vLLM tells it, while it is started",
        ),
    },
)
