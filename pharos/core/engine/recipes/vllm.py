"""vLLM's OpenAI-compatible API server. Facts: captures 0.32.0, and the server's source of that version.

Forbidden here: `/load`, which is 0 for ever unless the engine was told to count, and capacity made from cache sizes.
"""

from typing import Any

from pharos.core.engine.cards import context_lengths, groups, told_version, unclaimed, version
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.prom import Aggregate, distinct, process_start, prom
from pharos.core.engine.promtext import exposition_of
from pharos.core.engine.recipe import (
    LIST_PATH,
    Fingerprint,
    Recipe,
    Verdict,
    all_owned,
    confirm,
    is_ok,
    is_web_page,
    lacking,
)
from pharos.core.engine.usage_fields import Dialect, Zero
from pharos.core.engine.values import number, whole
from pharos.core.signals import BACKEND, Found, Residency, Signal

OWNER = "vllm"
"""`owned_by` of its model list, and its kind."""
MODELS = Feed(FeedKind.GET, LIST_PATH)
VERSION = Feed(FeedKind.GET, "/version")
METRICS = Feed(FeedKind.GET, "/metrics")
SLEEPING = Feed(FeedKind.GET, "/is_sleeping")
CONFIG = Feed(FeedKind.GET, "/server_info?config_format=json", SideEffect.HEAVY, interval_s=600.0)
"""All settings, in development mode only. They do not change while the process runs: read once per plan."""

RUNNING = "vllm:num_requests_running"
LOAD_PATH = "/load"
BY_REASON = "vllm:num_requests_waiting_by_reason"
KV = "vllm:kv_cache_usage_perc"
SLEEP_STATE = "vllm:engine_sleep_state"
ASLEEP = ("weights_offloaded", "discard_all")
OWN_LABELS = frozenset({"engine", "model_name"})
"""Labels of the engine's own series; programs that pass them on add theirs (`server`, `backend`)."""
MOST_RANKS = 65536


def _residency(page: Page) -> Found:
    """Read the sleep state: all engines of a process sleep and wake together, and a sleeping one holds no model."""
    body = exposition_of(page)
    series = body.series.get(SLEEP_STATE)
    if series is None:
        raise ProbeError(DropReason.NO_VALUE, f"no {SLEEP_STATE}")
    if body.last == SLEEP_STATE:
        raise ProbeError(DropReason.NO_EVIDENCE, f"nothing follows {SLEEP_STATE}: more of it may have been cut off")
    states: dict[str, set[int]] = {}
    for labels, raw in distinct(SLEEP_STATE, series):
        if labels.keys() != {*OWN_LABELS, "sleep_state"}:
            raise ProbeError(DropReason.NO_EVIDENCE, f"{SLEEP_STATE} has other labels than those known")
        states.setdefault(labels["sleep_state"], set()).add(whole(raw, 1, "a sleep state"))
    awake = states.get("awake")
    asleep = set().union(*(states.get(state, set()) for state in ASLEEP))
    if awake == {1} and 1 not in asleep:
        return {BACKEND: Residency.LOADED}
    if awake == {0}:
        return {BACKEND: Residency.COLD}
    raise ProbeError(DropReason.NO_EVIDENCE, "engines that sleep and engines that do not")


def _is_sleeping(document: object) -> Found:
    sleeping = of_type(member(document, "is_sleeping"), bool, "is_sleeping")
    return {BACKEND: Residency.COLD if sleeping else Residency.LOADED}


def _capacity(document: object) -> Found:
    """Read how many requests run at once: the limit of one data-parallel rank, for all ranks behind this address.

    Nothing in /metrics is this number. The size of the KV cache says how many tokens fit, its
    `kv_cache_max_concurrency` how many requests of full length: 1024 in capture 0.32.0, where 2 is the limit, and 1.75
    in 0.32.0-defaults, where 4 run.
    """
    scheduler = of_type(member(document, "vllm_config.scheduler_config"), dict, "scheduler_config")
    slots = number(Signal.CAPACITY, member(scheduler, "max_num_seqs"))
    if scheduler.get("max_num_active_seqs") is not None:  # newer versions may admit fewer than they have room for
        slots = min(slots, number(Signal.CAPACITY, scheduler["max_num_active_seqs"]))
    return {BACKEND: number(Signal.CAPACITY, slots * _ranks(member(document, "vllm_config.parallel_config")))}


def _ranks(settings: object) -> int:
    """Data-parallel ranks that one address sends requests to."""
    parallel = of_type(settings, dict, "parallel_config")
    ranks = whole(member(parallel, "data_parallel_size"), MOST_RANKS, "data_parallel_size")
    if ranks == 1:
        return 1
    if of_type(member(parallel, "data_parallel_external_lb"), bool, "data_parallel_external_lb"):
        return 1
    if of_type(member(parallel, "data_parallel_hybrid_lb"), bool, "data_parallel_hybrid_lb"):
        return whole(member(parallel, "data_parallel_size_local"), ranks, "data_parallel_size_local")
    return ranks


def _of_engines(name: str, signal: Signal, metric: str, **more: Any) -> Probe:  # noqa: ANN401 - passed on to `prom`
    """Declare a probe of a number that each data-parallel engine has; the process serves one model, by many names."""
    aggregate = Aggregate.MAX if signal is Signal.KV_USAGE else Aggregate.SUM
    return prom(name, signal, metric, feed=METRICS, aggregate=aggregate, over=("engine",), one=("model_name",), **more)


def _judge(pages: Pages) -> Verdict:
    """Recognise by the owner in the list, /version and the engine's own series.

    With its statistics off there are none: then by /load, which no other engine answers so. A program that passes the
    series of engines on adds labels to them.
    """
    other = unclaimed(pages, OWNER)
    if other is not None:
        return other
    told = told_version(pages, VERSION.path)
    if not told.matches:
        return told
    missing = lacking(pages, METRICS.path)
    if missing is not None:
        return Verdict(matches=None, text=missing)
    try:
        labels = _labels_of_load(pages[METRICS.path])
    except ProbeError as error:
        return Verdict(matches=None, text=f"{METRICS.path}: {error}")
    if labels and labels <= OWN_LABELS:
        return Verdict(matches=True, text=f"{told.text}, and {METRICS.path} has {RUNNING}")
    if labels:
        return Verdict(matches=False, text=f"{METRICS.path} has vLLM's series, passed on")
    load = confirm(pages, LOAD_PATH, _load, claimed=True)
    return Verdict(matches=load.matches, text=f"{told.text}, and {load.text}" if load.matches else load.text)


def _labels_of_load(page: Page) -> set[str]:
    """Labels of the running requests; none when there is no such series. Raises `ProbeError`."""
    if not is_ok(page) or is_web_page(page):
        return set()
    return {label for labels, _ in distinct(RUNNING, exposition_of(page).series.get(RUNNING, ())) for label in labels}


def _load(document: object) -> str:
    of_type(member(document, "server_load"), int, "server_load")
    return "has server_load"


_STATS = "start vLLM without --disable-log-stats"

RECIPE = Recipe(
    kind=OWNER,
    rank=300,
    empty_post_tells=True,
    usual_capacity="capacity_vllm",
    # Without --enable-prompt-tokens-details no reply states cached tokens, but responses say 0 all the same.
    dialect=lambda _: Dialect(responses_zero=Zero.COUNT_ONCE_SEEN, whole_input=True, says_done=True),
    probes=(
        json_probe("vllm-version", Signal.VERSION, VERSION, version, wants="version"),
        json_probe("vllm-models", Signal.MODELS, MODELS, model_names, wants="data"),
        Probe("vllm-residency", Signal.RESIDENCY, METRICS, _residency, wants=SLEEP_STATE),
        json_probe("vllm-is-sleeping", Signal.RESIDENCY, SLEEPING, _is_sleeping, wants="is_sleeping"),
        json_probe("vllm-context", Signal.CONTEXT_LENGTH, MODELS, context_lengths, wants="max_model_len"),
        json_probe("vllm-group", Signal.PHYSICAL_GROUP, MODELS, groups, wants="root"),
        json_probe("vllm-capacity", Signal.CAPACITY, CONFIG, _capacity, wants="max_num_seqs"),
        _of_engines("vllm-running", Signal.RUNNING, RUNNING),
        # Requests that wait for a place. Others wait for something of their own, whatever place is free.
        _of_engines(
            "vllm-waiting-capacity",
            Signal.WAITING,
            BY_REASON,
            where={"reason": "capacity"},
        ),
        _of_engines("vllm-waiting", Signal.WAITING, "vllm:num_requests_waiting", without=(BY_REASON,)),
        # A share of 1 in spite of the name. Each engine has a cache of its own: the fullest one makes requests wait.
        _of_engines("vllm-kv", Signal.KV_USAGE, KV),
        _of_engines("vllm-kv-until-0.9", Signal.KV_USAGE, "vllm:gpu_cache_usage_perc", without=(KV,)),
        process_start("vllm-process", METRICS),
        # Prompt tokens too: an embedding model generates none.
        _of_engines("vllm-work", Signal.WORK_DONE, "vllm:generation_tokens_total", plus=("vllm:prompt_tokens_total",)),
    ),
    fingerprint=Fingerprint(
        paths=(VERSION.path,),
        judge=_judge,
        guarded=(METRICS.path, LOAD_PATH),
        may=lambda pages: all_owned(pages, OWNER),
    ),
    shared_queue=True,
    shares_cache=True,  # blocks by their hash, filled as a prompt is processed
    owners=(OWNER,),
    record_paths=("/health", LOAD_PATH),
    hints={
        Signal.RESIDENCY: Hint(
            cost="a sleeping engine cannot be told from an awake one: it is taken to hold its model",
            fix=f"{_STATS}, and use a version whose /metrics has {SLEEP_STATE}",
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used: vLLM's defaults run from 128 to 1024 requests at once",
            fix="give the backend's capacity in the configuration (--max-num-seqs, for each data-parallel rank)",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix=_STATS,
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_STATS),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached", fix=_STATS
        ),
    },
)
