"""Every number that stands in for a measurement, with its source. `docs/assumptions.md` is generated from here.

Forbidden here: imports of other Pharos modules.
"""

import msgspec


class Assumption(msgspec.Struct, frozen=True):
    """A number that a default or a test double stands in for until it is measured."""

    value: float
    unit: str
    used_by: str
    source: str


ASSUMPTIONS = {
    "prefill_s_per_token": Assumption(
        0.005,
        "s/token",
        "policy, fleet without samples",
        "measured on CPU with Qwen2.5-0.5B: 0.0031 to 0.015 (2026-09-27)",
    ),
    "load_s": Assumption(
        10.0,
        "s",
        "policy, fleet without samples",
        "assumed: Ollama 0.32.15 took 0.8 to 19 s for a 3B model (2026-09-29)",
    ),
    "service_s": Assumption(5.0, "s", "policy, fleet without samples", "assumed: not measured on real models"),
    "bytes_per_token": Assumption(
        4.0,
        "bytes",
        "prompt estimate",
        "measured: 2.8 to 6.2 in four languages and two tokenizers (2026-09-29)",
    ),
    "capacity": Assumption(
        2,
        "slots",
        "ledger, when neither engine nor configuration tells",
        "assumed: small enough not to flood an engine",
    ),
    "capacity_vllm": Assumption(
        128,
        "slots",
        "ledger, for vLLM when neither it nor the configuration tells",
        "the least of its defaults in 0.32.0: 128 on CPU, 256 for each rank on GPUs, 1024 on those of 70 GB",
    ),
    "kv_pressure_from": Assumption(
        0.9, "share of the cache", "policy", "assumed: above it, cached prompts are likely evicted"
    ),
    "ewma_weight": Assumption(
        0.3,
        "share of the newest sample",
        "fleet statistics",
        "assumed: half of the weight within two samples",
    ),
    "min_uncached_tokens": Assumption(
        256,
        "tokens",
        "prefill samples",
        "a nearly cached prompt measures fixed overhead: llama.cpp reports 20 to 100 ms for 1 uncached token",
    ),
    "loaded_nothing_s": Assumption(
        0.01, "s", "load samples", "measured: a warm Ollama 0.32.15 reports 0.0005 s (2026-09-28)"
    ),
    "busy_for_s": Assumption(
        30.0,
        "s",
        "fleet, a backend that does not answer scrapes in time",
        "assumed: an engine that works on a long prompt may answer nothing else for that long",
    ),
    "frozen_s": Assumption(
        60.0,
        "s",
        "fleet, gauges that show work while the counters stand still",
        "assumed: longer than any pause between two steps of an engine at work; vLLM kept its last gauges for good "
        "after all requests were aborted at once (its issue 29928)",
    ),
    "absent_seen_s": Assumption(
        300.0,
        "s",
        "ledger, waiting for a model whose backends are gone",
        "assumed: a restart with a large model ends within it",
    ),
    "retry_wait_s": Assumption(
        5.0, "s", "ledger, a retry that already holds an engine's refusal", "assumed: longer than a short reply"
    ),
    "retry_after_s": Assumption(5.0, "s", "Retry-After while no backend is up", "assumed: one full scrape interval"),
    "tie_s": Assumption(
        0.001, "s", "policy, costs this close are equal", "assumed: below what any estimate can tell apart"
    ),
    "decode_s_per_token": Assumption(
        0.0107,
        "s/token",
        "engine doubles",
        "measured on CPU with SmolLM2-135M Q4_1: predicted_per_token_ms of the recorded chats of llama.cpp b11434",
    ),
    "cache_block_tokens": Assumption(
        16,
        "tokens",
        "engine doubles of vLLM",
        "assumed: the block size that vLLM takes on GPUs; its CPU build takes 128",
    ),
    "listed_from": Assumption(
        0.4,
        "share of a load",
        "engine doubles of Ollama",
        "measured: 0.17.4 listed a model from 0.69 s of the 1.74 s of its load on; 0.33 lists none that loads",
    ),
}
