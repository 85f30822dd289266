"""TensorRT-LLM's OpenAI server (`trtllm-serve`). Facts: single files of its source; no capture yet.

Forbidden here: `/metrics` and `/perf_metrics`. Each read takes the statistics away from whoever else reads them.
"""

from pharos.core.engine.cards import always_loaded, one_queue, own_series, told_version, unclaimed, version
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, model_names
from pharos.core.engine.probe import Feed, FeedKind, Pages, Probe, SideEffect
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned
from pharos.core.signals import Signal

OWNER = "tensorrt_llm"
"""`owned_by` of its model list."""
MODELS = Feed(FeedKind.GET, LIST_PATH)
VERSION = Feed(FeedKind.GET, "/version")
METRICS = Feed(FeedKind.GET, "/prometheus/metrics")
"""Only where the server keeps performance metrics."""
PREFIX = "trtllm_"


def _gauge(signal: Signal, metric: str) -> Probe:
    """Declare a probe of one gauge; its labels say what is served, in one revision only "undefined"."""
    return prom(f"trtllm-{signal.value}", signal, f"{PREFIX}{metric}", feed=METRICS, one=("model_name", "engine_type"))


def _judge(pages: Pages) -> Verdict:
    """Recognise by the owner in the list, /version and the engine's own series."""
    other = unclaimed(pages, OWNER)
    if other is not None:
        return other
    series = own_series(pages, METRICS.path, PREFIX)
    if not series.matches:
        return series
    told = told_version(pages, VERSION.path)
    return Verdict(matches=told.matches, text=f"{told.text}, and {series.text}")


_FIX = f"have the server keep performance metrics (return_perf_metrics), so that {METRICS.path} answers"

RECIPE = Recipe(
    kind="trtllm",
    rank=320,
    probes=(
        json_probe("trtllm-version", Signal.VERSION, VERSION, version, wants="version"),
        json_probe("trtllm-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("trtllm-residency", Signal.RESIDENCY, MODELS, always_loaded),
        json_probe("trtllm-group", Signal.PHYSICAL_GROUP, MODELS, one_queue),
        _gauge(Signal.CAPACITY, "max_num_active_requests"),
        _gauge(Signal.RUNNING, "num_requests_running"),
        _gauge(Signal.WAITING, "num_requests_waiting"),
        _gauge(Signal.KV_USAGE, "kv_cache_utilization"),
    ),
    fingerprint=Fingerprint(
        paths=(VERSION.path,),
        judge=_judge,
        guarded=(METRICS.path,),
        may=lambda pages: all_owned(pages, OWNER),
    ),
    shared_queue=True,
    owners=(OWNER,),
    minds={"/metrics": SideEffect.DRAINS},
    hints={
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which is far too few",
            fix=f"{_FIX}, or give the backend's capacity in the configuration (--max_batch_size)",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count", fix=_FIX
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_FIX),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached", fix=_FIX
        ),
    },
)
