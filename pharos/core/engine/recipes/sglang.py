"""SGLang's API server. Facts: the source of 0.5.23; no capture yet.

Forbidden here: `/health`, which generates a token and takes a second; `sglang:token_usage`, which is rounded to two
places and refreshed every 40 steps; and every other GET that changes something (`/flush_cache`, `/slow_down`, …).
"""

from typing import Any

from pharos.core.engine.cards import always_loaded, context_lengths, groups, unclaimed, version
from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, model_names, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.prom import Aggregate, prom
from pharos.core.engine.recipe import LIST_PATH, Fingerprint, Recipe, Verdict, all_owned, confirm
from pharos.core.engine.usage_fields import Dialect
from pharos.core.engine.values import LIMITS, number, quoted, whole
from pharos.core.signals import BACKEND, Found, Signal

OWNER = "sglang"
"""`owned_by` of its model list, and its kind."""
MODELS = Feed(FeedKind.GET, LIST_PATH)
LOADS = Feed(FeedKind.GET, "/v1/loads")
"""Made when asked, from what each scheduler last wrote down: after every prefill, 15 decode steps, or when idle."""
ABOUT_MODEL = Feed(FeedKind.GET, "/model_info", interval_s=60.0)
METRICS = Feed(FeedKind.GET, "/metrics")
"""With --enable-metrics only; refreshed at each prefill and every 40 decode steps."""
SETTINGS = Feed(FeedKind.GET, "/server_info", SideEffect.HEAVY, interval_s=600.0)
"""Interrupts every scheduler and dumps all settings: read once per plan."""
OLD_SETTINGS = Feed(FeedKind.GET, "/get_server_info", SideEffect.HEAVY, interval_s=600.0)
"""Its former path; where the new one exists, each read of this one writes a warning to the engine's log."""

GIB = 1 << 30
MOST_RANKS = 65536
MOST_TOKENS = LIMITS[Signal.CACHED_TOKENS][1]
PREFIXES = ("sglang:", "sglang_")
"""Of series names; the second is told of some versions only, and means the same."""


def _loads(document: object) -> list[dict[str, Any]]:
    """Return the load of every data-parallel rank. Raises `ProbeError` when a rank is missing or silent."""
    loads = [of_type(load, dict, "a load") for load in of_type(member(document, "loads"), list, "loads")]
    ranks = {whole(member(load, "dp_rank"), MOST_RANKS, "dp_rank") for load in loads}
    if not loads or len(ranks) != len(loads) or max(ranks) != len(loads) - 1:
        raise ProbeError(DropReason.NO_EVIDENCE, "not every rank is told once")
    for load in loads:
        # A scheduler that has written nothing yet shows as zeros, also where none can be true.
        if whole(member(load, "max_running_requests"), MOST_TOKENS, "max_running_requests") == 0:
            raise ProbeError(DropReason.NO_VALUE, "a rank has not told its load yet", will_pass=True)
    return loads


def _sum_of(signal: Signal, field: str) -> Probe:
    """Declare a probe that adds a field of all ranks: a request goes to any of them."""

    def read(document: object) -> Found:
        numbers = [number(signal, member(load, field)) for load in _loads(document)]
        return {BACKEND: number(signal, sum(numbers))}

    return json_probe(f"sglang-{signal.value}", signal, LOADS, read, wants=field)


def _kv_usage(document: object) -> Found:
    """Read how full the fullest rank's cache is: each has its own."""
    shares = []
    for load in _loads(document):
        size = whole(member(load, "max_total_num_tokens"), MOST_TOKENS, "max_total_num_tokens")
        used = whole(member(load, "num_used_tokens"), size, "num_used_tokens")
        if size == 0:
            raise ProbeError(DropReason.NO_VALUE, "a rank has no cache")
        shares.append(used / size)
    return {BACKEND: number(Signal.KV_USAGE, max(shares))}


def _size(document: object) -> Found:
    """Read the memory of the weights, where one accelerator holds them all: what is told is its share."""
    loads = _loads(document)
    if len(loads) > 1 or whole(member(document, "num_accelerators"), MOST_RANKS, "num_accelerators") != 1:
        raise ProbeError(DropReason.NO_EVIDENCE, "the weights are spread over several accelerators")
    gib = member(loads[0], "memory.weight_gb")
    if type(gib) is not float or not 0 <= gib < MOST_RANKS:
        raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(gib)} is no size")
    return {BACKEND: number(Signal.SIZE_BYTES, round(gib * GIB))}


def _work(document: object) -> Found:
    """Read the work of all ranks: prompt tokens computed, and decode steps."""
    done = 0
    for load in _loads(document):
        done += whole(member(load, "total_prefill_uncached_tokens"), MOST_TOKENS, "total_prefill_uncached_tokens")
        if "decode_moments" not in load:
            raise ProbeError(DropReason.NO_EVIDENCE, "decoding is not counted")
        moments = load["decode_moments"]  # null before the first step
        if moments is not None:
            done += whole(next(iter(of_type(moments, list, "decode_moments")), None), MOST_TOKENS, "decode_moments")
    return {BACKEND: number(Signal.WORK_DONE, done)}


def _capacity(document: object) -> Found:
    """Read how many requests the ranks run at once, from a server without /v1/loads."""
    states = of_type(member(document, "internal_states"), list, "internal_states")
    field = "effective_max_running_requests_per_dp"
    slots = [number(Signal.CAPACITY, member(state, field)) for state in states]
    return {BACKEND: number(Signal.CAPACITY, sum(slots))}


def _capabilities(document: object) -> Found:
    """Read what the model can do; one that does not generate may embed, rank or classify, and only some tell."""
    if not of_type(member(document, "is_generation"), bool, "is_generation"):
        of_type(member(document, "embedding"), dict, "embedding")
        return {BACKEND: ("embedding",)}
    about = of_type(document, dict, "the body")
    able = {"completion": True}
    for word, field in (("vision", "has_image_understanding"), ("audio", "has_audio_understanding")):
        able[word] = of_type(member(about, field), bool, field)
    for word, field in (("tools", "tool_call_parser"), ("thinking", "reasoning_parser")):
        if field not in about:
            raise ProbeError(DropReason.NO_VALUE, f"no {field}")
        able[word] = about[field] is not None
    return {BACKEND: tuple(sorted(word for word, can in able.items() if can))}


def _by_rank(name: str, signal: Signal, metric: str, **more: Any) -> Probe:  # noqa: ANN401 - passed on to `prom`
    """Declare a probe of a number that each data-parallel rank has; the ranks that share a model repeat it.

    With priority scheduling the total has no priority, and each level a series beside it.
    """
    return prom(
        name,
        signal,
        metric,
        feed=METRICS,
        aggregate=Aggregate.MAX if signal is Signal.KV_USAGE else Aggregate.SUM,
        over=("dp_rank",),
        where={"priority": ""},
        one=("model_name", "engine_type"),
        alike=("tp_rank", "pp_rank", "moe_ep_rank"),
        **more,
    )


def _metrics() -> tuple[Probe, ...]:
    """The probes for servers without /v1/loads, in order of trust."""
    probes: list[Probe] = []
    for prefix in PREFIXES:
        end = "" if prefix == PREFIXES[0] else "-underscore"
        used, size = f"{prefix}kv_used_tokens", f"{prefix}max_total_num_tokens"
        probes += [
            _by_rank(f"sglang-metrics-running{end}", Signal.RUNNING, f"{prefix}num_running_reqs"),
            _by_rank(f"sglang-metrics-waiting{end}", Signal.WAITING, f"{prefix}num_queue_reqs"),
            _by_rank(f"sglang-metrics-kv{end}", Signal.KV_USAGE, used, share_of=size),
            _by_rank(
                f"sglang-metrics-used{end}",
                Signal.KV_USAGE,
                f"{prefix}num_used_tokens",
                share_of=size,
                without=(used,),
            ),
        ]
    return tuple(probes)


def _judge(pages: Pages) -> Verdict:
    """Recognise by the owner in the list and the loads, which only SGLang tells so; older ones by their settings."""
    other = unclaimed(pages, OWNER)
    if other is not None:
        return other
    loads = confirm(pages, LOADS.path, _about_loads, claimed=True)
    return confirm(pages, SETTINGS.path, _about_settings, claimed=True) if _has_no_loads(pages) else loads


def _about_loads(document: object) -> str:
    loads = of_type(member(document, "loads"), list, "loads")
    return f"has version {quoted(version(document)[BACKEND])} and the loads of {len(loads)}"


def _about_settings(document: object) -> str:
    of_type(member(document, "internal_states"), list, "internal_states")
    return f"has version {quoted(version(document)[BACKEND])} and internal_states"


def _has_no_loads(pages: Pages) -> bool:
    """Whether it is an older server, if it is one."""
    return LOADS.path in pages and pages[LOADS.path].status in {404, 405}


def _may_ask_settings(pages: Pages) -> bool:
    """Settings cost the engine to tell: they are only looked at where nothing cheaper decides."""
    return all_owned(pages, OWNER) and _has_no_loads(pages)


_FIX = "use SGLang 0.5.8 or newer, whose /v1/loads tells it, or start it with --enable-metrics"

RECIPE = Recipe(
    kind=OWNER,
    # What it lacks of these is told as false. Tools and thinking it answers as text where it has no parser for them.
    tells_abilities=frozenset({"audio", "completion", "vision"}),
    rank=310,
    empty_post_tells=True,
    # It leaves the cache field of a message out where nothing was cached, or where it does not report caching.
    dialect=lambda _: Dialect(whole_input=True, says_done=True),
    probes=(
        json_probe("sglang-version", Signal.VERSION, LOADS, version, wants="version"),
        json_probe("sglang-settings-version", Signal.VERSION, SETTINGS, version, wants="version"),
        json_probe("sglang-old-settings-version", Signal.VERSION, OLD_SETTINGS, version, wants="version"),
        json_probe("sglang-models", Signal.MODELS, MODELS, model_names, wants="data"),
        json_probe("sglang-residency", Signal.RESIDENCY, MODELS, always_loaded),
        json_probe("sglang-context", Signal.CONTEXT_LENGTH, MODELS, context_lengths, wants="max_model_len"),
        json_probe("sglang-group", Signal.PHYSICAL_GROUP, MODELS, groups, wants="root"),
        json_probe("sglang-capabilities", Signal.CAPABILITIES, ABOUT_MODEL, _capabilities, wants="is_generation"),
        json_probe("sglang-size", Signal.SIZE_BYTES, LOADS, _size, wants="weight_gb"),
        _sum_of(Signal.CAPACITY, "max_running_requests"),
        json_probe("sglang-settings-capacity", Signal.CAPACITY, SETTINGS, _capacity, wants="internal_states"),
        json_probe("sglang-old-settings-capacity", Signal.CAPACITY, OLD_SETTINGS, _capacity, wants="internal_states"),
        _sum_of(Signal.RUNNING, "num_running_reqs"),
        _sum_of(Signal.WAITING, "num_waiting_reqs"),
        json_probe("sglang-kv", Signal.KV_USAGE, LOADS, _kv_usage, wants="num_used_tokens"),
        json_probe("sglang-work", Signal.WORK_DONE, LOADS, _work, wants="total_prefill_uncached_tokens"),
        *_metrics(),
        # What running requests hold, and what is kept for those to come.
        _by_rank("sglang-cached", Signal.CACHED_TOKENS, "sglang:kv_used_tokens", plus=("sglang:kv_evictable_tokens",)),
    ),
    fingerprint=Fingerprint(paths=(LOADS.path,), judge=_judge, guarded=(SETTINGS.path,), may=_may_ask_settings),
    shared_queue=True,
    shares_cache=True,  # blocks of a radix tree, filled as a prompt is processed
    owners=(OWNER,),
    record_paths=("/ready",),
    hints={
        Signal.SIZE_BYTES: Hint(
            cost="nothing: the model is always loaded",
            fix="none: this engine tells the weights of one accelerator, not of all",
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which is far too few",
            fix="use SGLang 0.5.8 or newer, or give the backend's capacity in the configuration",
        ),
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count", fix=_FIX
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_FIX),
        Signal.KV_USAGE: Hint(
            cost="a full cache is not seen: prompts that it dropped may still count as cached", fix=_FIX
        ),
        Signal.CAPABILITIES: Hint(
            cost="a request that the model cannot serve is sent and refused by the engine",
            fix="use a newer SGLang, whose /model_info tells what the model can do",
        ),
    },
)
