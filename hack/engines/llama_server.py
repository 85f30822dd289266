#!/usr/bin/env python3
"""The llama.cpp HTTP server of the package xllamacpp, started with llama-server's own flags.

Prints `ready URL` once the model is loaded and the port open; all that llama.cpp says goes to standard error. Flags
that it does not know are named there and skipped, so that a program which starts a llama-server (Ollama from 0.30 on,
llama-swap) can start this file instead. LLAMA_SERVER_DELAY=SECONDS waits before loading, with the port still closed.
There is no router mode in the package: that needs a compiled llama-server.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import xllamacpp

Params = Any
Setter = Callable[[Params, str], None]

SHARED_SLOTS: Final = 4
"""As llama-server: without --parallel so many slots share one context."""


def put(name: str, kind: Callable[[str], Any] = str) -> Setter:
    """Set one field to the flag's value."""

    def act(params: Params, value: str) -> None:
        setattr(params, name, kind(value))

    return act


def switch(name: str, value: bool = True) -> Setter:  # noqa: FBT001, FBT002 (reads well in the table)
    """Set one field whatever follows."""

    def act(params: Params, _: str) -> None:
        setattr(params, name, value)

    return act


def model(params: Params, value: str) -> None:
    """Set the file."""
    params.model.path = value


def parallel(params: Params, value: str) -> None:
    """Set the slots."""
    params.n_parallel = int(value)
    if params.n_parallel < 0:
        params.n_parallel, params.kv_unified = SHARED_SLOTS, True


def pooling(params: Params, value: str) -> None:
    """Set how an embedding is made of those of the tokens."""
    params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{value.upper()}")


VALUED: Final[dict[str, Setter]] = {
    "--model -m": model,
    "--alias -a": put("model_alias", lambda names: set(names.split(","))),
    "--host": put("hostnames", lambda names: names.split(",")),
    "--port": put("port", int),
    "--ctx-size -c": put("n_ctx", int),
    "--parallel -np": parallel,
    "--predict --n-predict -n": put("n_predict", int),
    "--batch-size -b": put("n_batch", int),
    "--ubatch-size -ub": put("n_ubatch", int),
    "--cache-ram -cram": put("cache_ram_mib", int),
    "--sleep-idle-seconds": put("sleep_idle_seconds", int),
    "--api-key": put("api_keys", lambda keys: keys.split(",")),
    "--chat-template": put("chat_template"),
    "--pooling": pooling,
}
SWITCHES: Final[dict[str, Setter]] = {
    "--metrics": switch("endpoint_metrics"),
    "--slots": switch("endpoint_slots"),
    "--no-slots": switch("endpoint_slots", value=False),
    "--embeddings --embedding": switch("embedding"),
    "--kv-unified -kvu": switch("kv_unified"),
    "--context-shift": switch("ctx_shift"),
    "--no-context-shift": switch("ctx_shift", value=False),
    "--jinja": switch("use_jinja"),
    "--no-jinja": switch("use_jinja", value=False),
    "--no-warmup": switch("warmup", value=False),
}


def spread(table: dict[str, Setter]) -> dict[str, Setter]:
    """Give each name of a flag an entry of its own."""
    return {name: act for names, act in table.items() for name in names.split()}


def parse(argv: list[str]) -> Params:
    """Read the command line. What is not known is named and skipped, with what follows it up to the next flag."""
    params = xllamacpp.CommonParams()
    params.hostnames, params.port, params.n_ctx, params.ui = ["127.0.0.1"], 8080, 8192, False
    # More compute threads than cores to spare starve the HTTP side, and tests share a machine: never more than one.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    parallel(params, "-1")
    valued, switches = spread(VALUED), spread(SWITCHES)
    words, skipped = list(argv), list[str]()
    while words:
        flag, is_joined, value = words.pop(0).partition("=")
        if flag in switches:
            switches[flag](params, "")
        elif flag in valued:
            if not is_joined and not words:
                sys.exit(f"llama_server: {flag} needs a value")
            if flag in ("--parallel", "-np"):
                params.kv_unified = False
            valued[flag](params, value if is_joined else words.pop(0))
        else:
            skipped.append(flag)
            while words and not words[0].startswith("-"):
                words.pop(0)
    if skipped:
        print("llama_server: skipped", *skipped, file=sys.stderr, flush=True)
    return params


def main(argv: list[str]) -> None:
    """Serve until a signal comes."""
    if "--version" in argv:
        print("version: 0 (unknown)")
        return
    if "--list-devices" in argv:
        print("Available devices:")
        return
    params = parse(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp may print: only our own line goes to the parent
    if not params.model.path:  # Ollama starts one without a model to see what hardware there is, and kills it then
        print("system_info:", xllamacpp.get_system_info(), file=sys.stderr, flush=True)
        stop.wait(10)
        return
    if stop.wait(float(os.environ.get("LLAMA_SERVER_DELAY", "0"))):
        return
    server = xllamacpp.Server(params)  # returns when it listens, with the model loaded
    print("ready", server.listening_address, file=report, flush=True)
    while not stop.wait(0.5):
        pass
    os._exit(0)  # taking llama.cpp down in order would wait for its replies


if __name__ == "__main__":
    main(sys.argv[1:])
