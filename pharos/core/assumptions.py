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
        "measured on CPU with Qwen2.5-0.5B: 0.0031 to 0.015 (2026-09-27); SmolLM2-135M 0.006 (recorded of b11434)",
    ),
    "load_s": Assumption(
        10.0,
        "s",
        "policy, fleet without samples",
        "assumed: Ollama 0.32.15 took 0.8 to 19 s for a 3B model (2026-09-29)",
    ),
    "base_s": Assumption(
        0.02,
        "s",
        "policy, fleet without samples",
        "llama.cpp reports 20 to 100 ms for a prompt of 1 uncached token; with SmolLM2-135M 11 ms (recorded of b11434)",
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
    "capacity_ollama": Assumption(
        1,
        "slots",
        "ledger, for Ollama when neither its log nor the configuration tells",
        "its default since July 2025 (its change 11330), and what it takes for a dozen families whatever is configured",
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
    "overdue_load": Assumption(
        0.1,
        "share of a load",
        "policy, what is left at least of a load that is not over",
        "assumed: one that takes longer than usual is not over the next moment",
    ),
    "overdue_reply": Assumption(
        1.5,
        "times as long as expected before",
        "ledger, a request that runs longer than expected",
        "assumed: lengths of replies spread so widely that one which is late has, as far as anyone knows, a good part "
        "of what it took so far before it",
    ),
    "context_margin": Assumption(
        1.6,
        "times the context length",
        "policy, estimated prompts above it do not fit",
        "the estimate's own error: up to 6.2 bytes per token were measured where 4 are taken",
    ),
    "output_tokens": Assumption(
        256.0,
        "tokens",
        "fleet, length of a reply when nothing like it was seen",
        "assumed: not measured on real users",
    ),
    "passed_for_s": Assumption(
        60.0,
        "s",
        "queue, a request that has waited so long is passed by no shorter one of its key",
        "measured in virtual time (docs/adr/0011): with less, short requests gain little while engines are busy; with "
        "more, long ones wait longer",
    ),
    "second_copy_margin": Assumption(
        1.2,
        "times its load",
        "ledger, the wait that one more copy of a model must take off those who wait",
        "assumed: what pushes another model out and rests on two estimates must be worth more than it costs",
    ),
    "regret_half_life_s": Assumption(
        300.0,
        "s",
        "ledger, waits that one more copy of a model would have saved count half after so long",
        "chosen: minutes, so that a queue which forms again and again pays for a load and one burst of today does not",
    ),
    "turn_loads": Assumption(
        4.0,
        "loads",
        "ledger, a model's turn on an engine that cannot hold another one besides",
        "chosen: a fifth of the time at most goes into loads while two models take turns",
    ),
    "linger_loads": Assumption(
        0.1,
        "share of a load",
        "ledger, an engine waits so long for the next request of a model before it loads another one",
        "assumed: a client that answers its own tools comes back within it; the other one waits a tenth of a load more",
    ),
    "calibration_window": Assumption(
        31,
        "requests",
        "calibration, per target",
        "chosen: an odd number, so that one has a middle, of which a run of 16 is the greater part",
    ),
    "calibration_least": Assumption(
        8, "requests", "calibration, fewer per model say nothing", "assumed: fewer may all be of one kind"
    ),
    "calibration_floor_s": Assumption(
        0.01,
        "s",
        "calibration, predicted and actual times below it count as it",
        "assumed: below it the network and the event loop are measured",
    ),
    "calibration_small_s": Assumption(
        0.05,
        "s",
        "calibration, a prediction that is off by no more is taken for right when a model is judged",
        "assumed: half of what people begin to notice; an engine's fixed part alone varies between 20 and 100 ms",
    ),
    "calibration_falls_at": Assumption(
        2.0, "times", "calibration, median error at which least-load takes over", "the design's figure"
    ),
    "calibration_recovers_at": Assumption(
        1.5,
        "times",
        "calibration, median error at which the cost policy comes back",
        "assumed: far enough below 2 that it does not go to and fro",
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
    "lacking_for_s": Assumption(
        600.0,
        "s",
        "fleet, a route that an engine was found not to serve is tried there again",
        "chosen: what is tried in vain costs one retry; a rule of a proxy in front that brings the route is found soon",
    ),
    "stale_within_s": Assumption(
        0.25,
        "s",
        "attempts, a kept connection that ends so soon behind a request had been closed before",
        "assumed: the reset that answers bytes on a closed connection takes a round trip, across an ocean 0.2 s; "
        "llama.cpp reports 0.02 to 0.1 s at least for any prompt, so little work is begun twice",
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
        "ledger, waiting for a model whose backends are gone, and for a backend that never told its models",
        "assumed: a restart with a large model ends within it",
    ),
    "peer_silent_s": Assumption(
        2.0, "s", "ledger, what another instance told of its requests counts for so long", "the design's figure"
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
    "sim_prefill_s_per_token": Assumption(
        0.0005, "s/token", "simulator, a fast engine", "assumed: four times as fast as the slow one"
    ),
    "sim_slow_prefill_s_per_token": Assumption(
        0.00195,
        "s/token",
        "simulator, a slow engine",
        "measured: learned from llama.cpp b6890 with Qwen2.5-3B on Metal (2026-09-29)",
    ),
    "sim_decode_s_per_token": Assumption(0.015, "s/token", "simulator, a fast engine", "assumed: a 7B model on a GPU"),
    "sim_slow_decode_s_per_token": Assumption(
        0.03, "s/token", "simulator, a slow engine", "assumed: a 7B model on a laptop"
    ),
    "sim_slowdown": Assumption(
        0.15,
        "share per further request",
        "simulator, what requests on one engine cost each other",
        "assumed: mlx-lm 0.31.3 batches 4 at nearly the speed of one (2026-09-29), llama.cpp on CPU shares its cores",
    ),
    "sim_slots": Assumption(
        4, "slots", "simulator", "llama-server's own choice when it is not told (with one context for all)"
    ),
    "sim_host_cache_tokens": Assumption(
        150_000,
        "tokens",
        "simulator, prompts that slots gave up and the host's memory keeps",
        "computed: llama-server's --cache-ram is 8 GiB unless given, a token of Qwen2.5-7B takes 57,344 bytes",
    ),
    "sim_load_s": Assumption(
        8.0, "s", "simulator", "assumed: Ollama 0.32.15 took 0.8 to 19 s for a 3B model (2026-09-29)"
    ),
    "sim_model_gb": Assumption(4.7, "GB", "simulator", "the file of Qwen2.5-7B in Q4_K_M"),
    "sim_scrape_s": Assumption(
        0.01, "s", "simulator, question to answer of a scrape", "assumed: one that is near and not busy"
    ),
    "sim_think_s": Assumption(
        20.0, "s", "simulator, mean pause of a person before the next turn", "assumed: not measured on real users"
    ),
    "sim_turns": Assumption(6.0, "turns", "simulator, mean length of a conversation", "assumed"),
    "sim_message_tokens": Assumption(
        150.0, "tokens", "simulator, median message of a person", "assumed: a few paragraphs"
    ),
    "sim_system_tokens": Assumption(
        600.0, "tokens", "simulator, instructions that all chats of a key share", "assumed: a page"
    ),
    "sim_reply_tokens": Assumption(
        129.0,
        "tokens",
        "simulator, median reply to a person",
        "measured: the chats of Azure's trace of 2023, whose mean is 211",
    ),
    "sim_agent_tokens": Assumption(
        5000.0,
        "tokens",
        "simulator, instructions and tools of an agent",
        "measured: 35 tools of Open WebUI made a prompt of 4,963 tokens on Ollama 0.32.15 (2026-09-29)",
    ),
    "sim_agent_reply_tokens": Assumption(
        28.0, "tokens", "simulator, mean reply to an agent", "measured: the code service of Azure's trace of 2023"
    ),
    "sim_agent_think_s": Assumption(2.0, "s", "simulator, mean pause of an agent while its tool runs", "assumed"),
    "sim_agent_turns": Assumption(12.0, "turns", "simulator, mean steps of an agent", "assumed"),
    "sim_classifier_tokens": Assumption(
        1000.0, "tokens", "simulator, prompt of a classifier that asks for one token", "assumed"
    ),
    "sim_bytes_per_token_least": Assumption(
        2.8, "bytes", "simulator", "measured: four languages, two tokenizers (2026-09-29)"
    ),
    "sim_bytes_per_token_most": Assumption(
        6.2, "bytes", "simulator", "measured: four languages, two tokenizers (2026-09-29)"
    ),
    "smg_cache_threshold": Assumption(
        0.3, "share of a prompt", "simulator, prefix affinity", "SMG 1.13.0, its default (wheel, router_args.py)"
    ),
    "smg_balance_abs": Assumption(
        64, "requests", "simulator, prefix affinity", "SMG 1.13.0, its default (wheel, router_args.py)"
    ),
    "smg_balance_rel": Assumption(
        1.5, "times the mean", "simulator, prefix affinity", "SMG 1.13.0, its default (wheel, router_args.py)"
    ),
    "smg_balance_least": Assumption(
        4, "requests", "simulator, prefix affinity", "SMG 1.13.0: the least that its margin may shrink to (router.py)"
    ),
}
