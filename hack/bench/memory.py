"""What Pharos takes when it is full: an index of 200,000 beginnings of prompts, and 1,000 streams of 32 KiB prompts."""

import dataclasses
import http.client
import json
import re
import time
from collections.abc import Callable
from typing import Final

import crowd
import gaps
import processes
import proxies
from own import Row

STREAMS: Final = 1000
MESSAGES: Final = 128  # as many new links as one request may add
PROMPTS: Final = 1800
TWICE: Final = 1100  # of them come again, later, and so stay
FULL: Final = 197_000  # entries that are left when some had to go
MOST_MB: Final = 150


def full(engines: list[int], *, seconds: float, say: Callable[[str], None]) -> list[Row]:
    """Memory with everything open at once."""
    ramp_s, settle_s = 4.0, 1.5
    events = round((ramp_s + settle_s + seconds + 2) / crowd.PACE_S)
    options = gaps.Options(
        port=0, engine=engines[0], streams=STREAMS, direct=crowd.DIRECT, kib=32, events=events,
        ramp_s=ramp_s, settle_s=settle_s, seconds=seconds, rest_s=30.0,
    )  # fmt: skip
    with proxies.running(proxies.pharos(), engines[: crowd.BACKENDS]) as pharos:
        crowd.warm(pharos)
        idle = processes.rss_mb(pharos.child.pid)
        entries = fill(pharos)
        time.sleep(1.0)
        filled = processes.rss_mb(pharos.child.pid)
        say(f"  {idle:.1f} MB idle, {filled:.1f} MB with {entries:,} entries")
        others = processes.on_one_core(pharos.child.pid)
        seen = crowd.watch(pharos, dataclasses.replace(options, port=pharos.port), others)
        pharos.child.check()
        kept = known(pharos)
    if seen.through.error or seen.through.whole != STREAMS:
        raise RuntimeError(f"{STREAMS - seen.through.whole} of {STREAMS} streams failed: {seen.through.error}")
    if min(entries, kept) < FULL:
        raise RuntimeError(f"the index has {min(entries, kept):,} entries, not {FULL:,}")
    say(f"  {seen.rss_mb:.1f} MB with {seen.through.open_at_once} streams open as well")
    what = f"{kept:,} prefix entries and {STREAMS:,} streams of 32 KiB prompts open: memory (RSS)"
    note = f"{idle:.0f} MB idle, {filled:.0f} MB before the streams"
    return [Row(what, f"≤ {MOST_MB} MB", f"{seen.rss_mb:.0f} MB", seen.rss_mb <= MOST_MB, note)]


def fill(pharos: proxies.Running) -> int:
    """Send prompts until there is no room for more; how many beginnings are known then."""
    wire = http.client.HTTPConnection("127.0.0.1", pharos.port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {proxies.KEY}"}
    for number in [*range(PROMPTS), *range(TWICE)]:
        messages = [
            {"role": ("user", "assistant")[turn % 2], "content": f"Message {turn} of conversation {number}."}
            for turn in range(MESSAGES)
        ]
        body = json.dumps({"model": "m", "messages": messages, "user": "plain"})
        wire.request("POST", "/v1/chat/completions", body, headers)
        reply = wire.getresponse()
        said = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"a prompt was answered with {reply.status}: {said[:200]!r}")
    wire.close()
    return known(pharos)


def known(pharos: proxies.Running) -> int:
    """Beginnings of prompts that Pharos knows."""
    found = re.search(r"^pharos_prefix_entries (\S+)$", proxies.get(pharos.port, "/metrics"), re.MULTILINE)
    return round(float(found[1])) if found else 0
