"""Measures Pharos beside HAProxy and the Rust routers in one run, prints the ratios, and renews docs/performance.md.

Parts (for --only): plain, chat, slope and paced load all proxies in turns; start, overhead, idle, slow-reader, pick,
prefix, scrape and peers measure Pharos alone; large-reply, streams, memory and stalls put a crowd before it. The page
is written only by a whole run: without --only, --quick, --no-peers, and with Pharos in it.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import cost
import crowd
import memory
import own
import processes
import proxies
import report
import stalls

OWN_PARTS: Final = (
    "start", "overhead", "idle", "slow-reader", "large-reply", "streams", "memory", "stalls", "pick", "prefix",
    "scrape", "peers",
)  # fmt: skip
PARTS: Final = (*cost.GROUPS, *OWN_PARTS)
PAGE: Final = proxies.ROOT / "docs" / "performance.md"


def say(text: str) -> None:
    """Progress for the person who waits."""
    print(text, flush=True)


def parse() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,…", help="some parts: " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="one short repetition of everything: a look, not a result")
    parser.add_argument("--no-peers", action="store_true", help="without SMG and vllm-router")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=COMMAND", help="load this one too; {port}, {engine}"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one window")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole result there")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page to renew")
    chosen = parser.parse_args()
    chosen.only = [part.strip() for part in chosen.only.split(",")]
    if unknown := sorted(set(chosen.only) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if chosen.quick:
        chosen.repetitions, chosen.seconds = 1, 1.5
    if chosen.repetitions < 1 or chosen.seconds <= 0:
        parser.error("--repetitions and --seconds must be above 0")
    return chosen


def entrants(chosen: argparse.Namespace) -> list[proxies.Proxy]:
    """The proxies of this run; the first is the measure of the others."""
    haproxy = proxies.program("haproxy")
    if haproxy is None:
        raise SystemExit("haproxy is not installed; every ratio is against it. Run hack/setup-haproxy first.")
    found = [proxies.haproxy(haproxy)]
    if nginx := proxies.program("nginx"):
        found.append(proxies.nginx(nginx))
    if not chosen.no_peers:
        if subprocess.run([proxies.ROOT / "hack" / "setup-peers"], check=False).returncode != 0:
            raise SystemExit("the Rust routers could not be installed; --no-peers measures without them.")
        found += [proxies.rust_router(name) for name in proxies.RUST]
    return [*found, *map(proxies.other, chosen.also), proxies.pharos(proxies.CHOICE), proxies.pharos()]


def measure(chosen: argparse.Namespace, entering: list[proxies.Proxy], result: report.Result) -> None:
    """Run every part asked for, one after another; what fails becomes a problem of the result."""
    ports = processes.free_ports(own.IDLE_BACKENDS)
    with contextlib.ExitStack() as held:
        engine = held.enter_context(proxies.engine(ports))
        loaded = [part for part in chosen.only if part in cost.GROUPS]
        if loaded or "overhead" in chosen.only:
            with contextlib.ExitStack() as compared:
                compare(chosen, start_all(compared, entering, ports[0], result), loaded, ports[0], result)
        if "start" in chosen.only:
            part("start", lambda: own.start(ports[:1]), result)
        if "idle" in chosen.only:
            part("idle", lambda: own.idle(ports, seconds=10 if chosen.quick else 30), result)
        if "slow-reader" in chosen.only:
            part("slow reader", lambda: own.slow_reader(ports[0], seconds=5 if chosen.quick else 15, say=say), result)
        measure_crowds(chosen, ports, engine, result)
    if "pick" in chosen.only:
        part("pick", own.pick, result)
    if "prefix" in chosen.only:
        part("prefix", own.prefix, result)
    if "scrape" in chosen.only:
        part("scrape", own.scrape, result)
    if "peers" in chosen.only:
        part("peers", lambda: own.peers(seconds=5 if chosen.quick else 20), result)


def measure_crowds(
    chosen: argparse.Namespace, ports: list[int], engine: processes.Child, result: report.Result
) -> None:
    """The parts with large replies, with thousands of streams, and with a mixed load."""
    if "large-reply" in chosen.only:
        part("large reply", lambda: crowd.large_reply(ports[0], say=say), result)
    if "streams" in chosen.only:
        part("streams", lambda: crowd.streams(ports, seconds=5 if chosen.quick else 12, say=say), result)
    if "memory" in chosen.only:
        part("memory", lambda: memory.full(ports, seconds=5 if chosen.quick else 10, say=say), result)
    if "stalls" in chosen.only:
        part("stalls", lambda: stalls.stalls(ports, engine, seconds=10 if chosen.quick else 60, say=say), result)


def start_all(
    held: contextlib.ExitStack, entering: list[proxies.Proxy], engine: int, result: report.Result
) -> list[proxies.Running]:
    """Start the proxies; one that does not start is left out and said so."""
    started = []
    for proxy in entering:
        say(f"starting {proxy.name} {proxy.version}".rstrip())
        try:
            started.append(held.enter_context(proxies.running(proxy, [engine])))
        except (RuntimeError, OSError) as error:
            result.problems.append(f"{proxy.name} is left out: {error}")
            say(f"  {result.problems[-1]}")
    return started


def compare(
    chosen: argparse.Namespace,
    started: list[proxies.Running],
    loaded: list[str],
    engine: int,
    result: report.Result,
) -> None:
    """The parts that need all proxies."""
    result.versions = {
        name: version for name, version in result.versions.items() if name in {each.name for each in started}
    }
    if loaded:
        say(f"loading {len(started)} proxies in turns: {', '.join(loaded)}")
        result.costs = cost.measure(started, loaded, repetitions=chosen.repetitions, seconds=chosen.seconds, say=say)
        result.problems += result.costs.errors.values()
    ours = next((each for each in started if each.name == proxies.OURS), None)
    if "overhead" in chosen.only and ours is not None:
        through = [each for each in started if each.name in (proxies.OURS, proxies.BASELINE)]
        repetitions, seconds = chosen.repetitions, chosen.seconds
        part(
            "overhead", lambda: own.overhead(engine, through, repetitions=repetitions, seconds=seconds, say=say), result
        )


def part(name: str, run: Callable[[], list[own.Row]], result: report.Result) -> None:
    """Run one part; its failure is a problem, not the end of the run."""
    say(f"measuring: {name}")
    try:
        rows = run()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        result.problems.append(f"{name}: {error}")
        say(f"  {error}")
        return
    for row in rows:
        say(f"  {row.what}: {row.measured} (budget {row.budget})")
    result.rows += rows


def main() -> int:
    """Exit code 1 when something could not be measured; a missed budget is a finding, not a failure."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the programs started here end too
    chosen = parse()
    entering = entrants(chosen)
    how = f"{chosen.repetitions} repetitions of {chosen.seconds:g} s for each load and proxy, in turns"
    busy = os.getloadavg()[0]
    if busy > 0.5:
        say(f"note: this machine is busy (load {busy:.2f}); ratios will move more than they should")
    result = report.Result({proxy.name: proxy.version for proxy in entering}, how, busy_before=busy)
    began = time.monotonic()
    measure(chosen, entering, result)
    say(f"\n{report.budget_table(result)}\n")
    if result.costs.repetitions:
        say(f"CPU µs (ratio to HAProxy)\n\n{report.cost_table(result)}\n\n{report.noise(result)}")
    say(f"took {time.monotonic() - began:.0f} s")
    for problem in result.problems:
        say(f"problem: {problem}")
    if chosen.json:
        chosen.json.write_text(json.dumps(result.as_json(), indent=1, ensure_ascii=False) + "\n")
    whole = set(chosen.only) == set(PARTS) and not chosen.quick and not chosen.no_peers
    if whole and proxies.OURS in result.versions:
        chosen.page.write_text(report.document(result))
        say(f"written: {chosen.page.name}")
    else:
        say(f"{chosen.page.name} stays as it is: this was not a whole run with Pharos in it")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
