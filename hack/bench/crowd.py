"""What many and what large replies cost Pharos: two thousand streams at once on one core, and replies of 30 MB."""

import dataclasses
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import gaps
import load
import processes
import proxies
from own import WARM_CHATS, Row

STREAMS: Final = 2000
DIRECT: Final = 100
BACKENDS: Final = 4  # of proxies.SLOTS each
PACE_S: Final = 0.1  # as engine.py's slow streams
LARGE: Final = 4  # large replies at once
LARGE_ROUNDS: Final = 3
LARGE_BYTES: Final = 30_000_000
PROMPT_TOKENS: Final = 8  # as engine.py counts them for every embedding


def warm(pharos: proxies.Running) -> None:
    """Run every step of a request often enough that its memory is no growth any more."""
    for _ in range(WARM_CHATS):
        if (why := proxies.ask(pharos.port)) is not None:
            raise RuntimeError(f"a short chat failed: {why}")


def streams(engines: list[int], *, seconds: float, say: Callable[[str], None]) -> list[Row]:
    """Gaps between the events of each of many streams, and the memory that one takes."""
    ramp_s, settle_s = 4.0, 1.5
    events = round((ramp_s + settle_s + seconds + 2) / PACE_S)
    options = gaps.Options(
        port=0, engine=engines[0], streams=STREAMS, direct=DIRECT, kib=32, events=events,
        ramp_s=ramp_s, settle_s=settle_s, seconds=seconds, rest_s=30.0,
    )  # fmt: skip
    with proxies.running(proxies.pharos(), engines[:BACKENDS]) as pharos:
        warm(pharos)
        before = processes.rss_mb(pharos.child.pid)
        others = processes.on_one_core(pharos.child.pid)
        seen = watch(pharos, dataclasses.replace(options, port=pharos.port), others)
        pharos.child.check()
        time.sleep(1.0)
        after = processes.rss_mb(pharos.child.pid)
    through, direct = seen.through, seen.direct
    for name, group in (("through Pharos", through), ("direct", direct)):
        if group.error or group.whole != group.streams:
            raise RuntimeError(f"{group.streams - group.whole} of {group.streams} streams {name} failed: {group.error}")
        say(
            f"  {name}: {group.open_at_once} open at once, median gap {group.gap_p50_ms:.1f} ms, "
            f"worst p99 {group.worst_p99_ms:.1f} ms, p99/median worst {group.worst_ratio:.2f}, "
            f"typical {group.typical_ratio:.2f}"
        )
    each_kb = (seen.rss_mb - before) / STREAMS * 1000
    say(f"  memory {before:.1f} MB idle, {seen.rss_mb:.1f} MB open, {after:.1f} MB after; CPU {seen.cpu:.0%} of a core")
    what = f"{STREAMS} streams at once on one core, an event every {PACE_S * 1000:.0f} ms"
    note = f"typical {through.typical_ratio:.2f}; straight to the engine {direct.worst_ratio:.2f}; CPU {seen.cpu:.0%}"
    return [
        Row(
            f"{what}: p99 of the gaps of the worst stream, against its median", "≤ 3 ×",
            f"{through.worst_ratio:.2f} ×", through.worst_ratio <= 3, note,
        ),
        Row(
            f"{what}: memory of one (32 KiB prompts)", "≤ 40 kB",
            f"{each_kb:.1f} kB", each_kb <= 40, f"{before:.0f} MB idle, {after:.0f} MB after them",
        ),
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen while all streams were open."""

    through: gaps.Group
    direct: gaps.Group
    rss_mb: float
    cpu: float


def watch(pharos: proxies.Running, options: gaps.Options, cores: set[int]) -> Seen:
    """Run the load and take the memory and CPU of Pharos while all streams are open."""
    command = [sys.executable, str(Path(__file__).with_name("gaps.py"))]
    for name, value in dataclasses.asdict(options).items():
        command += [f"--{name.removesuffix('_s')}", str(value)]
    members = processes.family(pharos.child.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            processes.keep_on(child.pid, cores)
            assert child.stdout is not None
            if child.stdout.readline().strip() != "open":
                raise RuntimeError(f"the streams could not be opened: {child.communicate(timeout=10)[1][-500:]}")
            began, cpu, most = time.monotonic(), processes.cpu_s(members), 0.0
            while time.monotonic() - began < options.seconds - 0.5:
                most = max(most, processes.rss_mb(pharos.child.pid))
                time.sleep(0.5)
            share = (processes.cpu_s(members) - cpu) / (time.monotonic() - began)
            out, err = child.communicate(timeout=options.seconds + options.rest_s + 30)
        finally:
            child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"the load generator failed: {err[-500:]}")
    line = json.loads(out.strip().splitlines()[-1])
    return Seen(gaps.Group(**line["through"]), gaps.Group(**line["direct"]), most, share)


# --- large replies


def large_reply(engine_port: int, *, say: Callable[[str], None]) -> list[Row]:
    """Growth of memory while several embeddings replies of 30 MB pass at once, and whether their usage is counted."""
    with proxies.running(proxies.pharos(), [engine_port]) as pharos:
        warm(pharos)
        before, counted = processes.rss_mb(pharos.child.pid), prompt_tokens(pharos)
        most = before
        began = time.monotonic()
        for _ in range(LARGE_ROUNDS):
            most = max(most, _read_large(pharos))
        took = time.monotonic() - began
        counted = prompt_tokens(pharos) - counted
    replies = LARGE * LARGE_ROUNDS
    if counted != replies * PROMPT_TOKENS:
        raise RuntimeError(f"{counted} prompt tokens were counted for {replies} replies of {PROMPT_TOKENS} each")
    grown = (most - before) / LARGE
    speed = replies * LARGE_BYTES / took / 1e6
    say(f"  {before:.1f} MB before, at most {most:.1f} MB; {speed:.0f} MB/s, all usage counted")
    note = f"{LARGE} at once, {LARGE_ROUNDS} times; usage counted for all; {speed:.0f} MB/s"
    what = "memory that an embeddings reply of 30 MB takes while it passes"
    return [Row(what, "< 1 MB", f"{grown:.2f} MB", grown < 1, note)]


def _read_large(pharos: proxies.Running) -> float:
    """Largest memory seen while the replies are read by as many clients."""
    request = load.request_bytes(
        load.Options(url=f"http://127.0.0.1:{pharos.port}/v1/embeddings", keep_alive=False),
        json.dumps({"model": "m", "input": ["a"]}).encode(),
    )
    failures: list[str] = []
    readers = [threading.Thread(target=_reader, args=(pharos.port, request, failures)) for _ in range(LARGE)]
    for reader in readers:
        reader.start()
    most = 0.0
    while any(reader.is_alive() for reader in readers):
        most = max(most, processes.rss_mb_of(pharos.child.pid))
        time.sleep(0.005)
    if failures:
        raise RuntimeError(f"a large reply failed: {failures[0]}")
    return most


def _reader(port: int, request: bytes, failures: list[str]) -> None:
    """Take one reply and check that it is whole."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
            wire.sendall(request)
            got, start, tail = 0, b"", b""
            while piece := wire.recv(1 << 18):
                start = start or piece
                got += len(piece)
                tail = (tail + piece)[-64:]
    except OSError as error:
        failures.append(str(error))
        return
    stated = re.search(rb"Content-Length: (\d+)\r\n", start)
    length = int(stated[1]) + start.find(b"\r\n\r\n") + 4 if stated else -1
    if not start.startswith(gaps.OK) or got != length or got < LARGE_BYTES or not tail.endswith(b"}}"):
        failures.append(f"{start[:60]!r}, {got} of {length} bytes, ending with {tail[-20:]!r}")


def prompt_tokens(pharos: proxies.Running) -> int:
    """Prompt tokens that Pharos has counted so far."""
    page = proxies.get(pharos.port, "/metrics")
    found = re.findall(r'^pharos_tokens_total\{[^}]*type="prompt"[^}]*\} (\S+)', page, re.MULTILINE)
    return round(sum(map(float, found)))
