"""The program of one demo engine: the llama.cpp HTTP server of the xllamacpp package, in a process of its own.

Forbidden here: importing the rest of Pharos; this process is an engine and knows of nothing else.

Prints `ready URL` on standard output once the model is loaded and the port open. Everything llama.cpp says goes to
standard error. It lives as long as its standard input is open: when its parent dies, however it dies, the
pipe ends and this process with it; on Linux the kernel ends it too, should it be too busy to see that.
"""

import argparse
import ctypes
import os
import signal
import sys

PARALLEL = 2
"""Slots of one engine."""
CONTEXT = 8192
"""Tokens of context that its slots share evenly."""

_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>: the signal this process gets when the thread that started it ends."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line; ends the process with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog="pharos.demo.engine")
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", required=True, help="the name clients use")
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--parent", type=int, required=True, help="process id of the one that started this")
    return parser.parse_args(argv)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, also while llama.cpp holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew, or a person gave another number
        sys.exit(
            f"pharos.demo.engine: process {parent} is not the one that started this ({os.getppid()} is, or it has "
            "ended): an engine ends with its parent, so it does not start"
        )


def main(argv: list[str]) -> None:
    """Serve one model until standard input ends or a signal comes."""
    args = arguments(argv)
    die_with(args.parent)
    # Ctrl-C reaches the whole terminal; the parent lets replies finish first and ends this process then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp may print: only our own line goes to the parent

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.model_alias = {args.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = PARALLEL
    params.n_ctx = CONTEXT
    params.endpoint_metrics = params.endpoint_slots = True
    params.ui = False
    # More compute threads than cores to spare starve the engine's own HTTP side, and the demo runs several engines.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    try:
        server = xllamacpp.Server(params)  # returns when it listens, with the model loaded
    except RuntimeError as fault:  # why, llama.cpp has said above
        sys.exit(f"the engine cannot serve {args.model} on port {args.port}: {fault}")
    print("ready", server.listening_address, file=report, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # taking llama.cpp down in order would wait for its replies


if __name__ == "__main__":
    main(sys.argv[1:])
