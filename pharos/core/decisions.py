"""All that Pharos can decide, one line each: stage, outcome, and what that means.

`pharos_decisions_total` has a series for each line and `docs/metrics.md` a row; what is not listed cannot be counted.
"""

from typing import Final

DECISIONS: Final[dict[str, dict[str, str]]] = {
    "admission": {
        "ok": "the request was let in",
        "not_ready": "Pharos has not read its engines yet: 503",
        "unauthorized": "no key, or one that is not configured: 401",
        "bad_request": "the request cannot be understood: 400",
        "body_stalled": "no byte of the body came for 30 s: 408",
        "too_large": "the body is over limits.body: 413",
        "buffers_full": "request bodies in memory reached limits.buffered: 503",
        "model_not_allowed": "the key's models do not include this one: 404",
    },
    "route": {
        "only_choice": "one backend could take it",
        "least_loaded": "the least occupied target won",
        "warm": "its loaded model won",
        "cache": "its cached prompt won",
        "fastest": "it processes prompts fastest",
        "tied": "others were as good: one of them by chance",
        "unknown_model": "no backend ever listed the model: 404",
        "unavailable": "no backend that serves the model is up: 503",
        "route_not_served": "no backend of the model serves the route: 400",
        "maker_gone": "the backend that made the response it goes on from is gone: 400",
        "queue_full": "the queue is at queue.size: 429",
        "wait_too_long": "it waited queue.max_wait or queue.absent_wait: 503",
        "client_left": "the client went away while it waited",
    },
    "queue": {
        "immediate": "a slot was free",
        "waited": "it waited for a slot",
    },
    "load": {
        "cold_start": "dispatched to a model that was not loaded",
    },
    "usage": {
        "pharos_asked": "Pharos asked the engine for usage and takes that chunk out again",
        "client_asked": "the client asked for usage and gets it untouched",
        "not_needed": "the engine reports usage without being asked",
        "refused_by_engine": "the engine refused the added field: sent again without it",
    },
    "upstream": {
        "ok": "the engine answered and the reply ended as its protocol says",
        "error_status": "the engine answered with an error status, passed on",
        "error_in_stream": "a 200 carried an error object",
        "empty_reply": "a 200 without any output: a blank or torn body, or a stream with neither a token nor usage",
        "connect_failed": "no connection to the engine: ejected until it answers a scrape",
        "stale_connection": "a kept connection had been closed: sent again on a new one to the same engine",
        "busy_retried": "429, 409 or 503 from the engine: tried elsewhere",
        "error_retried": "another 5xx, 401 or 403 (our credentials), 404 (the model), a router's 400: tried elsewhere",
        "route_lacking": "the engine does not serve the route: not asked for it again until its version changes",
        "credential_refused": "the engine wants a credential of Pharos that it did not get (401, 403): 502",
        "first_byte_late": "no byte of a reply within deadlines.first_byte_warm or first_byte_cold",
        "stalled": "no byte for deadlines.idle inside a reply: cut honestly",
        "retry_refused": "a retry was due but nobody could take it or the retry budget was spent",
        "died_before_reply": "the engine closed before the first byte of a reply: ejected",
        "died_mid_reply": "the engine closed inside the reply: cut honestly, ejected",
        "bad_reply": "the engine sent what is no HTTP reply",
        "client_left": "the client went away during the reply",
        "pharos_error": "a fault of Pharos itself",
        "cut_at_shutdown": "the reply outlasted drain.timeout: cut honestly",
    },
    "resolve": {
        "new_plan": "the set of working probes changed",
        "same_plan": "the set of working probes is as before",
        "failed": "the backend's kind or plan could not be told",
        "probe_lost": "a probe that told something before an upgrade does not any more, and no other one tells it",
    },
    "scrape": {
        "ok": "every planned probe answered",
        "probe_failed": "a planned probe failed; the rest was published",
        "new_version": "the engine's version changed",
        "timeout": "the engine did not answer in time: values age, it is not taken for down",
        "starting": "the engine says that it is still starting (503)",
        "unreachable": "no connection to the engine",
        "frozen": "requests are said to run, but the engine's counters stand still: its load is taken for unknown",
    },
    "generation": {
        "unloaded": "the model left memory",
        "unlisted": "the model left the backend's list",
        "new_version": "the engine's version changed",
        "restarted": "the engine's process is another one",
        "reloaded": "the model was loaded anew, with another context size",
        "cache_lost": "the engine's caches were emptied while its process ran on",
    },
    "task": {
        "restarted": "a background task died and was started again",
    },
}
"""stage -> outcome -> meaning, for people."""

Outcome = tuple[str, str]
"""A stage and an outcome of `DECISIONS`."""
