"""How long Pharos's event loop stands still under a mixed load, seen from outside beside an idle process."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import processes
import proxies
from own import Row
from probe import SLOW_S, Seen, Slow

HERE: Final = Path(__file__).parent
SETTLE_S: Final = 3.0
"""Seconds of the load before the first question: the streams of the mixture begin within two."""


def stalls(engines: list[int], engine: processes.Child, *, seconds: float, say: Callable[[str], None]) -> list[Row]:
    """Count the answers of /livez that took longer than a stall may last, and that no lack of a core explains."""
    idle_port = processes.free_ports(1)[0]
    idle = [sys.executable, str(HERE / "probe.py"), "idle", str(idle_port)]
    with (
        proxies.running(proxies.pharos(), engines) as pharos,
        processes.started("idle", idle, proxies.CACHE / "logs") as beside,
        contextlib.ExitStack() as held,
    ):
        beside.wait_open(idle_port)
        cores = processes.on_one_core(pharos.child.pid)
        mixed = _program(held, "mixed.py", pharos.port, "--seconds", seconds + SETTLE_S + 1)
        for child in (engine.pid, beside.pid, mixed.pid):
            processes.keep_on(child, cores)
        time.sleep(SETTLE_S)
        members = processes.family(pharos.child.pid)
        (core,) = os.sched_getaffinity(pharos.child.pid)
        watching = _program(held, "probe.py", "core", core, seconds + 1)
        began, cpu = time.monotonic(), processes.cpu_s(members)
        asking = [
            _program(held, "probe.py", port, seconds, pid)
            for port, pid in ((pharos.port, pharos.child.pid), (idle_port, beside.pid))
        ]
        ours, others = (_seen(_output(program, seconds + 60)) for program in asking)
        share = (processes.cpu_s(members) - cpu) / (time.monotonic() - began)
        still = _still(watching, seconds, say)
        tallies = json.loads(_output(mixed, 120))
        pharos.child.check()
    for name, tally in tallies.items():
        say(f"  {name}: {tally['answered']} of {tally['asked']}, slowest {tally['slowest_s'] * 1000:.0f} ms")
        if tally["answered"] != tally["asked"]:
            raise RuntimeError(f"{name}: {tally['asked'] - tally['answered']} of {tally['asked']}: {tally['error']}")
    ours = replace(ours, slow=[replace(slow, still_ms=_overlap_ms(slow, still)) for slow in ours.slow])
    return [_row(ours, others, seconds, share, say)]


def _still(watching: "subprocess.Popen[str]", seconds: float, say: Callable[[str], None]) -> list[tuple[float, float]]:
    """When Pharos's core stood still as a whole; nothing where that cannot be watched."""
    out, err = watching.communicate(timeout=seconds + 60)
    if watching.returncode:
        say(f"  whether the core stood still is not known here: {err.strip().splitlines()[-1]}")
        return []
    spans: list[tuple[float, float]] = json.loads(out)
    whole_s = sum(end - start for start, end in spans)
    say(f"  the core stood still {len(spans)} times, {whole_s * 1000:.0f} ms in all")
    return spans


def _overlap_ms(slow: Slow, spans: list[tuple[float, float]]) -> float:
    """How much of a slow answer the core stood still."""
    until = slow.clock_s + slow.took_ms / 1000
    return round(sum(max(0.0, min(end, until) - max(start, slow.clock_s)) for start, end in spans) * 1000, 1)


def _row(ours: Seen, others: Seen, seconds: float, share: float, say: Callable[[str], None]) -> Row:
    limit_ms = SLOW_S * 1000
    stood = [slow for slow in ours.slow if slow.stood_ms > limit_ms]
    for slow in ours.slow:
        lost = f"{slow.no_core_ms:.1f} ms without a core, {slow.still_ms:.1f} ms with one that stood still"
        say(f"  at {slow.at_s:.2f} s: {slow.took_ms:.1f} ms, of it {lost}")
    for name, seen in (("Pharos", ours), ("idle process", others)):
        times = f"p50 {seen.p50_ms:.2f} ms, p99 {seen.p99_ms:.2f} ms, longest {seen.longest_ms:.1f} ms"
        say(f"  {name}: {seen.asked} asked, {times}")
    note = (
        f"longest answer of /livez {ours.longest_ms:.0f} ms, p99 {ours.p99_ms:.1f} ms; of an idle process beside it "
        f"{others.longest_ms:.0f} ms; CPU {share:.0%}"
    )
    if without := len(ours.slow) - len(stood):
        note += f"; {without} more for want of a core, or because it stood still"
    what = f"event-loop stalls over {limit_ms:.0f} ms in {seconds:.0f} s of a mixed load"
    return Row(what, "none", str(len(stood)), not stood, note)


def _program(held: contextlib.ExitStack, name: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start a program of this folder, which ends with `held` at the latest."""
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    held.enter_context(program)
    held.callback(program.kill)
    return program


def _output(program: "subprocess.Popen[str]", timeout_s: float) -> str:
    out, err = program.communicate(timeout=timeout_s)
    if program.returncode != 0:
        raise RuntimeError(f"a program of the load failed: {err.strip()[-500:]}")
    return out


def _seen(line: str) -> Seen:
    said = json.loads(line)
    return Seen(**{**said, "slow": [Slow(**slow) for slow in said["slow"]]})
