"""The process around an instance: its loop, its signals, its garbage. Forbidden here: what the instance is made of."""

import asyncio
import gc
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import uvloop
from msgspec.structs import replace

from pharos import clock
from pharos.app.root import App, farewell
from pharos.config.reload import Source
from pharos.config.schema import Config
from pharos.control.fetch import new_session
from pharos.obs import logs

log = logging.getLogger(__name__)

GARBAGE: Final = (10_000, 1, 1_000)
"""When to look for garbage in cycles, of which requests leave none: after so many new objects among these; every second
time also among those of the last one, which with the default of every tenth were 100,000 and took 40 ms beside 2,000
streams; and after so many of that among all: with a hundred that took 15 ms three times a minute under a mixed load,
which together with a burst of events was a stall.
"""
SWITCH_S: Final = 0.0005
"""For how long a worker thread may keep the loop from running on. With Python's own 5 ms, two large bodies that are
read at the same time held up all streams for 10 ms, again and again while they were read.
"""
SAME_SIGNAL_S: Final = 0.1
"""Signals this close are one: what ends a whole process group reaches `make` too, which passes it on."""


class Stop(asyncio.Event):
    """Set once the process is to end."""

    by_hand = False
    """Whether it was Ctrl-C: then no load balancer needs time to notice, and whoever pressed it waits."""


async def serve(
    config: Config,
    *,
    log_level: str,
    log_format: logs.Format,
    on_ready: Callable[[str], None] | None,
    stop: Stop,
    source: Source | None = None,
    on_drain: Callable[[str], None] | None = None,
) -> int:
    """Serve until `stop` is set, then drain, without the grace when it was Ctrl-C; returns the exit status.

    `source`: where `config` is read again from, when it changes or at SIGHUP; without it SIGHUP is
    the caller's business.
    `on_ready` gets the address once requests are let in, `on_drain` a line for people when the end begins.
    Raises OSError when the address cannot be had.
    """
    logs.set_up(log_level, log_format)
    async with new_session() as session:
        app = App(config, session, source)
        async with app.tasks:
            if source is not None:
                handle_hangup(app.reloading.ask)
            await app.start()
            gc.collect()
            gc.freeze()  # what is alive now stays: later collections need not walk it
            gc.set_threshold(*GARBAGE)
            sys.setswitchinterval(SWITCH_S)
            announcing = asyncio.create_task(_announce(app, on_ready), name="announce")
            try:
                await stop.wait()
            finally:
                announcing.cancel()
                drain = replace(app.config.drain, grace_s=0.0) if stop.by_hand else app.config.drain
                if on_drain is not None:
                    on_drain(farewell(app.proxy.inflight, drain))
                await app.end(drain)
    log.info("stopped")
    return 0


async def _announce(app: App, on_ready: Callable[[str], None] | None) -> None:
    await app.is_ready.wait()
    if on_ready is not None:
        on_ready(app.url)


def run(
    config: Config,
    *,
    log_level: str,
    log_format: logs.Format,
    early_signals: Sequence[int] = (),
    source: Source | None = None,
) -> int:
    """Serve on a loop of its own until SIGTERM or SIGINT; a second one ends at once. Raises OSError as `serve`."""

    async def main() -> int:
        stop = Stop()
        ending = (signal.SIGTERM, signal.SIGINT)
        handle_signals(stop, numbers=ending if source is not None else (*ending, signal.SIGHUP))
        if early_signals:
            stop.by_hand = signal.SIGINT in early_signals
            stop.set()
        return await serve(config, log_level=log_level, log_format=log_format, on_ready=None, stop=stop, source=source)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def handle_hangup(then: Callable[[], object]) -> None:
    """What SIGHUP does; where there is no such signal, nothing."""
    with suppress(NotImplementedError, AttributeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, then)


def handle_signals(
    stop: Stop,
    *,
    numbers: Sequence[int] = (signal.SIGTERM, signal.SIGINT),
    before_exit: Callable[[], object] = lambda: None,
) -> None:
    """The first signal sets `stop`, a second one ends at once, after `before_exit`."""
    first_at = -math.inf

    def asked(number: int) -> None:
        nonlocal first_at
        if not stop.is_set():
            first_at = clock.monotonic()
            stop.by_hand = number == signal.SIGINT
            stop.set()
        elif clock.monotonic() - first_at > SAME_SIGNAL_S:
            log.warning("second signal: ending at once")
            before_exit()
            os._exit(128 + number)

    for number in numbers:
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, asked, number)
