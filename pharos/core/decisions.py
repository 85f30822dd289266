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
        "rate_limited": "the key has sent its rpm requests within the last 60 s: 429",
        "quota_exceeded": "the key has used its tokens_per_day: 429",
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
        "does_not_fit": "no backend of the model has the context or the abilities that it takes: 400",
        "queue_full": "the queue is at queue.size: 429",
        "wait_too_long": "it waited queue.max_wait or queue.absent_wait: 503",
        "client_left": "the client went away while it waited",
    },
    "queue": {
        "immediate": "a slot was free",
        "waited": "it waited for a slot",
    },
    "load": {
        "cold_start": "dispatched to a model that no backend which could take it had loaded",
        "second_copy": "dispatched to a model that was not loaded there, though it is elsewhere: the queue pays for it",
        "new_context": "dispatched to a model that is loaded anew for the context size asked for",
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
        "route_lacking": "the engine does not serve the route: once that is sure, not asked for 10 minutes",
        "credential_refused": "the engine wants a credential of Pharos that it did not get (401, 403, 407): 502",
        "first_byte_late": "no byte of a reply within deadlines.first_byte_warm or first_byte_cold",
        "stalled": "no byte for deadlines.idle inside a reply: cut honestly",
        "retry_refused": "a retry was due but nobody could take it or the retry budget was spent",
        "died_before_reply": "the engine closed before the first byte of a reply: ejected",
        "died_mid_reply": "the engine closed inside the reply: cut honestly, ejected",
        "ended_early": "a 200 ended in good order, yet blank or without the end of its protocol: cut honestly",
        "bad_reply": "the engine sent no HTTP reply, a web page, a redirect, or no stream where one was asked for",
        "client_left": "the client went away during the reply",
        "pharos_error": "a fault of Pharos itself",
        "cut_at_shutdown": "the reply outlasted drain.timeout: cut honestly",
    },
    "prefix": {
        "predicted_hit": "the engine had at least half of what the prefix index promised in its cache",
        "wrong_prediction": "it had less than half of that: the index forgets the rest of the prompt there",
        "unpredicted_hit": "it had some of the prompt in its cache though the index promised none",
        "miss": "nothing was promised, and nothing was cached",
        "unknown": "the engine did not tell how much of the prompt came from its cache",
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
    "log_feed": {
        "connected": "a backend's log, or its stream of events, is followed",
        "ended": "one that was followed broke off: it is opened again",
        "open_failed": "it could not be opened",
    },
    "generation": {
        "unloaded": "the model left memory",
        "unlisted": "the model left the backend's list",
        "new_version": "the engine's version changed",
        "restarted": "the engine's process is another one",
        "reloaded": "the model was loaded anew, with another context size",
        "cache_lost": "the engine's caches were emptied while its process ran on",
    },
    "calibration": {
        "fell_back": "a model's estimates were off by 2 times or more (median): least-load chooses for it",
        "recovered": "they are good again: the cost policy chooses for it",
    },
    "drain": {
        "begun": "an operator or discovery keeps new requests from a backend; those that run there finish",
        "ended": "it gets new requests again",
    },
    "discovery": {
        "refused": "the labels of a container make no backend: it is left out",
        "lost": "what tells of the containers does not answer: the backends that it told stay",
    },
    "reload": {
        "applied": "the configuration was read again, and is served as far as it can be without a restart",
        "refused": "the configuration was read again and is wrong or half written: the one before is served on",
    },
    "decision_log": {
        "dropped": "a request was not written to the decision log: the disk is full, or slower than requests come",
    },
    "spans": {
        "dropped": "the span of a request was not sent: the collector refuses it, or is slower than requests come",
    },
    "task": {
        "restarted": "a background task died and was started again",
    },
}
"""stage -> outcome -> meaning, for people."""

Outcome = tuple[str, str]
"""A stage and an outcome of `DECISIONS`."""
