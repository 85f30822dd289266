"""What is measured of Pharos alone: start, overhead, idle cost, memory beside a slow reader, the pick, a scrape."""

import contextlib
import dataclasses
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cost
import load
import processes
import proxies

IDLE_BACKENDS: Final = 10
READERS: Final = 4  # slow readers at once; the growth is given for one
READER_BYTES_PER_S: Final = 1000
WARM_CHATS: Final = 200
ONE_CHAT: Final = cost.Load("overhead", "stream", kib=32, events=1, concurrency=1)


@dataclass(frozen=True)
class Row:
    """One line of the result: `ok` is None where there is no budget or nothing was measured."""

    what: str
    budget: str
    measured: str
    ok: bool | None
    note: str = ""


def _asked(name: str, *options: str) -> tuple[Any, str]:
    """What a program of this folder found, in a fresh process; `None` and why, where it failed."""
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return json.loads(done.stdout), ""


def pick() -> list[Row]:
    """The benchmark of the pick, by its own program in a fresh process; the step to a lease beside it has no budget."""
    what, budget = "pick over 64 candidates, p99", "< 100 µs"
    found, why = _asked("pick")
    if found is None:
        return [Row(what, budget, "not measured", None, why)]
    rows = []
    for name, times in found["rows"].items():
        us, note = times["p99_us"], f"p50 {times['p50_us']:.0f} µs; CPU time p99 {times['cpu_p99_us']:.0f} µs"
        step, _, policy = name.partition(" ")
        if step == "pick":
            rows.append(Row(f"{what} ({policy})", budget, f"{us:.0f} µs", us < 100, note))
        else:
            rows.append(Row(f"request to lease over 64 targets, p99 ({policy})", "–", f"{us:.0f} µs", None, note))
    return rows


def prefix() -> list[Row]:
    """The prefix index, by its own program in fresh processes."""
    what = "look-up of a chat of 200 messages in a full prefix index"
    found, why = _asked("prefix")
    if found is None:
        return [Row(what, "< 150 µs", "not measured", None, why)]
    rows = []
    for name, times in found["lookups"].items():
        us, note = times["p50_us"], f"median; p99 {times['p99_us']:.0f} µs, of CPU time {times['cpu_p99_us']:.0f} µs"
        rows.append(Row(f"{what}, {name}", "< 150 µs", f"{us:.0f} µs", us < 150, note))
    for name, size in found["weights"].items():
        row = f"{size['entries']:,.0f} entries of the prefix index, {name}"
        rows.append(Row(row, "≤ 60 MB", f"{size['mb']:.0f} MB", size["mb"] <= 60))
    return rows


def scrape() -> list[Row]:
    """The page of metrics with 50 models and 50 keys, by its own program in a fresh process."""
    what = "/metrics with 50 models and 50 keys"
    found, why = _asked("scrape")
    if found is None:
        return [Row(f"{what}, CPU", "< 20 ms", "not measured", None, why)]
    row = found["50 models, 50 keys"]
    note = f"{row['lines']:,} lines, {row['bytes'] / 1e6:.1f} MB"
    cpu, step = row["cpu_ms"], row["longest_step_ms"]
    return [
        Row(f"{what}, CPU", "< 20 ms", f"{cpu:.1f} ms", cpu < 20, note),
        Row(f"{what}, longest time without others", "< 20 ms", f"{step:.1f} ms", step < 20),
    ]


def peers(*, seconds: float) -> list[Row]:
    """What instances that tell each other cost, by its own program; `seconds` of three that do nothing else."""
    what = "peers, 200 targets and 50 keys"
    found, why = _asked("peers", "--idle", str(seconds))
    if found is None:
        return [Row(what, "< 2 ms", "not measured", None, why)]
    tick, snapshot, percent = found["tick"], found["snapshot"], found["idle"]["peers_percent"]
    note = (
        f"{tick['delta_bytes'] / 1000:.1f} kB, {tick['kb_per_s_and_pair']:.0f} kB/s; taken in {tick['take_ms']:.1f} ms"
    )
    size = f"snapshot of {snapshot['entries']:,.0f} prefix entries"
    longest = max(snapshot["longest_give_ms"], snapshot["longest_take_ms"])
    spent = f"{snapshot['frames']:.0f} frames; {snapshot['give_s']:.1f} s to give, {snapshot['take_s']:.1f} s to take"
    idle = f"alone {found['idle']['alone_percent']:.2f}%, among three {found['idle']['among_three_percent']:.2f}%"
    return [
        Row(f"{what}: CPU of a tick's delta", "< 2 ms", f"{tick['tell_ms']:.1f} ms", tick["tell_ms"] < 2, note),
        Row(f"{size}: bytes", "< 20 MB", f"{snapshot['mb']:.1f} MB", snapshot["mb"] < 20, spent),
        Row(f"{size}: longest step", "< 20 ms", f"{longest:.1f} ms", longest < 20),
        Row("peers, CPU that two others add to an idle instance", "< 1 %", f"{percent:.2f}%", percent < 1, idle),
    ]


@dataclass(frozen=True)
class Histogram:
    """Cumulative counts of a Prometheus histogram by upper bound, all its series added up."""

    counts: dict[float, float]

    def since(self, before: "Histogram") -> "Histogram":
        """What was added after `before`."""
        return Histogram({bound: count - before.counts.get(bound, 0.0) for bound, count in self.counts.items()})

    def bucket_of(self, share: float) -> float | None:
        """Upper bound of the bucket that holds this share of the sample; None when it is empty."""
        total = max(self.counts.values(), default=0.0)
        inside = [bound for bound, count in sorted(self.counts.items()) if total and count >= share * total]
        return inside[0] if inside else None


def histogram(page: str, name: str) -> Histogram:
    """Read a histogram whose name matches the pattern `name` from a page of metrics."""
    counts: dict[float, float] = {}
    for found in re.finditer(rf'^(?:{name})_bucket{{[^}}]*?le="([^"]+)"[^}}]*}} (\S+)', page, re.MULTILINE):
        bound = float(found[1])
        counts[bound] = counts.get(bound, 0.0) + float(found[2])
    return Histogram(counts)


def overhead(
    direct_port: int, through: list[proxies.Running], *, repetitions: int, seconds: float, say: Callable[[str], None]
) -> list[Row]:
    """TTFT of a 32 KiB chat, one at a time, through a proxy minus direct: the machine's own tail is in both."""
    pharos = next(each for each in through if each.name == proxies.OURS)
    before = histogram(_metrics(pharos), "pharos_overhead_seconds")
    urls = {"direct": proxies.chat_url(direct_port)} | {each.name: each.url for each in through}
    p50: dict[str, list[float]] = {name: [] for name in urls}
    p99: dict[str, list[float]] = {name: [] for name in urls}
    for _ in range(repetitions):
        for name, url in urls.items():
            line = cost.run_load(url, ONE_CHAT, pid=0, seconds=seconds, warmup_s=0.5)
            if isinstance(line["ttft_p50_ms"], float) and isinstance(line["ttft_p99_ms"], float):
                p50[name].append(line["ttft_p50_ms"])
                p99[name].append(line["ttft_p99_ms"])
    if not all(p50.values()):
        return [Row("own overhead, p99", "< 2 ms", "not measured", None, "a chat was not answered")]
    half, most = ({name: statistics.median(values[name]) for name in urls} for values in (p50, p99))
    for name in urls:
        say(f"  TTFT {name:12} p50 {half[name]:.3f} ms, p99 {most[name]:.3f} ms")
    added = most[proxies.OURS] - most["direct"]
    note = f"p50 {half[proxies.OURS] - half['direct']:.2f} ms; direct p99 {most['direct']:.2f} ms"
    if proxies.BASELINE in urls:
        note += f"; HAProxy in the same way {most[proxies.BASELINE] - most['direct']:.2f} ms"
    what = "own overhead: TTFT of a 32 KiB chat, p99 through Pharos minus p99 direct"
    rows = [Row(what, "< 2 ms", f"{added:.2f} ms", added < 2, note)]
    bound = histogram(_metrics(pharos), "pharos_overhead_seconds").since(before).bucket_of(0.99)
    if bound is not None:
        note = "before the first upstream byte; upper bound of the bucket"
        rows.append(
            Row("own overhead: pharos_overhead_seconds, p99", "< 2 ms", f"≤ {bound * 1000:g} ms", bound <= 0.002, note)
        )
    return rows


def _metrics(pharos: proxies.Running) -> str:
    with contextlib.suppress(OSError):
        return proxies.get(pharos.port, "/metrics")
    return ""


def start(engines: list[int]) -> list[Row]:
    """Seconds from starting the process to the first ready answer."""
    began = time.monotonic()
    port = processes.free_ports(1)[0]
    proxy = proxies.pharos()
    proxies.write_configs(proxy, port, engines)
    with processes.started("pharos-start", list(proxy.command), proxies.CACHE / "logs") as child:
        while time.monotonic() < began + 30:
            child.check()
            with contextlib.suppress(OSError):
                proxies.get(port, "/healthz")
                took = time.monotonic() - began
                return [Row("start to ready beside a live engine", "< 2 s", f"{took:.2f} s", took < 2)]
            time.sleep(0.01)
    raise RuntimeError("Pharos was not ready within 30 s")


def idle(engines: list[int], *, seconds: float) -> list[Row]:
    """Memory and CPU of a Pharos that has nothing to do but to read its backends."""
    with proxies.running(proxies.pharos(), engines) as pharos:
        time.sleep(3)  # the first full rounds are no idling
        members = processes.family(pharos.child.pid)
        began, cpu = time.monotonic(), processes.cpu_s(members)
        time.sleep(seconds)
        share = (processes.cpu_s(members) - cpu) / (time.monotonic() - began)
        rss = processes.rss_mb(pharos.child.pid)
    what = f"{len(engines)} backends"
    return [
        Row(f"idle memory (RSS), {what}", "≤ 70 MB", f"{rss:.0f} MB", rss <= 70),
        Row(f"idle CPU, {what}, {seconds:.0f} s", "≤ 1 % of a core", f"{share:.2%}", share <= 0.01),
    ]


def slow_reader(engine_port: int, *, seconds: float, say: Callable[[str], None]) -> list[Row]:
    """Growth of memory while clients take 1 KB/s of replies of 50 MB that the engine sends at once."""
    rows = []
    for streamed in (True, False):
        with proxies.running(proxies.pharos(), [engine_port]) as pharos:
            for _ in range(WARM_CHATS):
                if (why := proxies.ask(pharos.port)) is not None:
                    raise RuntimeError(f"a short chat failed: {why}")
            before = processes.rss_mb(pharos.child.pid)
            most, got = _read_slowly(pharos, streamed=streamed, seconds=seconds)
            pharos.child.check()
        grown = (most - before) / READERS
        kind = "streamed" if streamed else "one JSON object"
        say(f"  slow reader, {kind}: {before:.1f} MB before, then at most {most:.1f} MB; {got} bytes read")
        note = f"mean of {READERS} readers over {seconds:.0f} s"
        rows.append(Row(f"slow reader (1 KB/s) on 50 MB, {kind}", "< 1 MB", f"{grown:.2f} MB", grown < 1, note))
    return rows


def _read_slowly(pharos: proxies.Running, *, streamed: bool, seconds: float) -> tuple[float, int]:
    """Largest memory seen, and the bytes that the readers took."""
    options = load.Options(url=pharos.url, mode="stream" if streamed else "plain", key=proxies.KEY)
    body = load.chat_body(options.mode, 0, 64, options.model).replace(
        f'"user": "{options.mode}"'.encode(), b'"user": "big"'
    )
    request = load.request_bytes(dataclasses.replace(options, keep_alive=False), body)
    most, got = 0.0, 0
    with contextlib.ExitStack() as held:
        readers = [held.enter_context(socket.socket()) for _ in range(READERS)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(10)
            reader.connect(("127.0.0.1", pharos.port))
            reader.sendall(request)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for reader in readers:
                piece = reader.recv(READER_BYTES_PER_S)
                if not piece or (got == 0 and not piece.startswith(b"HTTP/1.1 200")):
                    raise RuntimeError(f"the slow reader got {piece[:120]!r} after {got} bytes")
                got += len(piece)
            for _ in range(4):
                time.sleep(0.25)
                most = max(most, processes.rss_mb(pharos.child.pid))
    return most, got
