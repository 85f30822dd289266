"""LMDeploy's API server. Facts: the source of 0.18.0; no capture yet.

Forbidden here: `/terminate`, a GET that ends the server where that is allowed.
"""

from typing import Any

from pharos.core.engine.cards import one_queue, own_series, unclaimed
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, Probe, ProbeError
from pharos.core.engine.prom import Aggregate, process_start, prom
from pharos.core.engine.recipe import (
    LIST_PATH,
    Fingerprint,
    Recipe,
    Verdict,
    all_owned,
    confirm,
)
from pharos.core.engine.usage_fields import Dialect
from pharos.core.engine.values import quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal

OWNER = "lmdeploy"
"""`owned_by` of its model list, and its kind."""
MODELS = Feed(FeedKind.GET, LIST_PATH)
METRICS = Feed(FeedKind.GET, "/metrics", interval_s=5.0)
"""The server renews its load gauges every 10 s: to ask each second would bring nothing new."""
SLEEPING = Feed(FeedKind.GET, "/is_sleeping")
HEALTH = Feed(FeedKind.GET, "/health")
"""What the server found when it last looked at its engine; an engine in trouble makes it look again."""
PREFIX = "lmdeploy:"
STATES = {"healthy": Residency.LOADED, "sleeping": Residency.COLD}


def _is_sleeping(document: object) -> Found:
    sleeping = of_type(member(document, "is_sleeping"), bool, "is_sleeping")
    return {BACKEND: Residency.COLD if sleeping else Residency.LOADED}


def _health(document: object) -> Found:
    told = of_type(member(document, "status"), str, "status")
    if told not in STATES:
        raise ProbeError(DropReason.NO_VALUE, f"the status is {quoted(told)}")
    return {BACKEND: STATES[told]}


RENEWED_S = 10.0
"""Seconds between two renewals of its load gauges, in the source of 0.18.0."""


def _of_engine(name: str, signal: Signal, metric: str, **more: Any) -> Probe:  # noqa: ANN401 - passed on to `prom`
    """Declare a probe of a number that each data-parallel engine has; the server serves one model and its adapters."""
    aggregate = Aggregate.MAX if signal is Signal.KV_USAGE else Aggregate.SUM
    series = {"aggregate": aggregate, "over": ("engine",), "one": ("model_name",), "lag_s": RENEWED_S, **more}
    return prom(name, signal, f"{PREFIX}{metric}", feed=METRICS, **series)


def _judge(pages: Pages) -> Verdict:
    """Recognise by the owner in the list and the server's own series; with metrics off by its sleep state.

    LMDeploy's proxy in front of several servers lists models of the same owner, and has neither.
    """
    other = unclaimed(pages, OWNER)
    if other is not None:
        return other
    series = own_series(pages, METRICS.path, PREFIX)
    if series.matches is None:
        return series
    if series.matches:
        return Verdict(matches=True, text=f"all models are owned by {OWNER}, and {series.text}")
    return confirm(pages, SLEEPING.path, _about_sleep, claimed=True)


def _about_sleep(document: object) -> str:
    _is_sleeping(document)
    return f"tells whether it sleeps, and all models are owned by {OWNER}"


_FIX = "start the server without --disable-metrics"

RECIPE = Recipe(
    kind=OWNER,
    rank=330,
    # Messages have no cache field. Responses always say 0.
    dialect=lambda _: Dialect(whole_input=True),
    probes=(
        json_probe("lmdeploy-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("lmdeploy-residency", Signal.RESIDENCY, SLEEPING, _is_sleeping, wants="is_sleeping"),
        json_probe("lmdeploy-health", Signal.RESIDENCY, HEALTH, _health, wants="status"),
        json_probe("lmdeploy-group", Signal.PHYSICAL_GROUP, MODELS, one_queue),
        _of_engine("lmdeploy-running", Signal.RUNNING, "num_requests_running"),
        # Those in the engine's queue, and those that the server holds back before it.
        _of_engine(
            "lmdeploy-waiting", Signal.WAITING, "num_requests_waiting", plus=(f"{PREFIX}num_api_requests_waiting",)
        ),
        # A share of 1 in spite of the name.
        _of_engine("lmdeploy-kv", Signal.KV_USAGE, "gpu_cache_usage_perc"),
        process_start("lmdeploy-process", METRICS),
        _of_engine(
            "lmdeploy-work", Signal.WORK_DONE, "generation_tokens_total", plus=(f"{PREFIX}prompt_tokens_total",)
        ),
    ),
    fingerprint=Fingerprint(
        paths=(), judge=_judge, guarded=(METRICS.path, SLEEPING.path), may=lambda pages: all_owned(pages, OWNER)
    ),
    shared_queue=True,
    owners=(OWNER,),
    hints={
        Signal.RESIDENCY: Hint(
            cost="a sleeping engine cannot be told from an awake one: it is taken to hold its model",
            fix="use a newer LMDeploy, which has /is_sleeping",
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which is far too few",
            fix="give the backend's capacity in the configuration (--max-batch-size)",
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
