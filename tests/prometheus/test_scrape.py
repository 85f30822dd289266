"""A real Prometheus scrapes a Pharos with traffic: every query of the dashboard has data, every alert can be evaluated.

What needs hours or other instances to happen (peers, quotas, a lost probe) is told to the metrics here by hand.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from pharos import clock
from pharos.obs.reports import PeerShown, QuotaShown
from pharos.proxy.done import Done
from tests.app.running import Running, pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

from .test_rules import ALERTS, expressions, rules

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: hack/setup-prometheus installs it"),
    pytest.mark.timeout(180),
    pytest.mark.slow,
]
WAIT_S = 100.0
"""Longest wait for anything; reached only when the test fails."""
KEYS = [
    {"name": name, "sha256": hashlib.sha256(f"pk-{name}".encode()).hexdigest()} for name in ("alice", 'b"ob\\', "zoë")
]


class Prometheus:
    """A running Prometheus that scrapes one address twice a second."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.http = http

    async def api(self, path: str, **fields: str) -> Any:
        async with self.http.get(f"{self.url}/api/v1/{path}", params=fields) as reply:
            answer = await reply.json()
            assert answer["status"] == "success", (fields, answer)
            return answer["data"]

    async def values(self, query: str) -> list[float]:
        """The numbers that a query gives now."""
        return [float(one["value"][1]) for one in (await self.api("query", query=query))["result"]]


@contextlib.asynccontextmanager
async def prometheus(scraped: int, folder: Path) -> AsyncIterator[Prometheus]:
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "pharos", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = await asyncio.create_subprocess_exec(
        str(PROMETHEUS), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:0", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    reading: asyncio.Task[None] | None = None
    try:
        async with aiohttp.ClientSession() as http:
            made = Prometheus(await _port(process), http)
            reading = asyncio.create_task(_read_away(process))
            async with asyncio.timeout(WAIT_S):
                while not await _is_ready(made):
                    assert process.returncode is None, "Prometheus ended"
                    await asyncio.sleep(0.05)
            yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _port(process: asyncio.subprocess.Process) -> int:
    """The port that it says it listens on."""
    said = []
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        async for line in process.stderr:
            said.append(line.decode())
            found = re.search(r"Listening on\" address=\S+:(\d+)", said[-1])
            if found is not None:
                return int(found[1])
    raise AssertionError("".join(said))


async def _read_away(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass


async def _is_ready(prometheus: Prometheus) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with prometheus.http.get(f"{prometheus.url}/-/ready") as reply:
            return reply.status == 200
    return False


async def traffic(running: Running) -> None:
    """Chats of three keys that share their beginning, streamed and not, and some that go wrong; without an end."""
    number = 0
    while True:
        number += 1
        key = KEYS[number % len(KEYS)]["name"]
        model = "nobody-has-this" if number % 7 == 0 else RECORDED_MODEL
        messages = [{"role": "user", "content": "All that glitters is not gold. " * 60 + str(number % 3)}]
        body = json.dumps({"model": model, "stream": number % 3 > 0, "messages": messages})
        headers = {"Authorization": f"Bearer pk-{key}" if number % 11 else "Bearer wrong"}
        async with running.http.post(f"{running.url}/v1/chat/completions", data=body, headers=headers) as reply:
            await reply.read()
        await asyncio.sleep(0.02)


def tell_the_rest(running: Running) -> None:
    """What no short run shows."""
    reports, fleet = running.app.reporting.metrics.reports, running.app.fleet
    backend = next(iter(fleet.backends.values()))
    now = clock.wall()
    reports.peers = lambda: [
        PeerShown("b:8081", up=True, mismatched=False, protocol_mismatched=False, last_heard_at=clock.wall(),
                  dropped_prefix_ops=3, sent_bytes=int(1000 * (clock.wall() - now))),
        PeerShown("silent:8081", up=False),
    ]  # fmt: skip
    reports.quotas = lambda: [QuotaShown("alice", "rpm", 0.25)]
    reports.state_written(now, ok=True)
    backend.lost_probes["slots"] = ""
    fleet.calibration.note(RECORDED_MODEL, backend.name, 2.0, 1.0)
    fleet.calibration.note_wait(RECORDED_MODEL, backend.name, 2.0, 1.0)
    for number in range(300):
        prompt = f"It is {number:03} o'clock. ".encode() + b"The same words each time, many of them. " * 200
        running.app.ledger.caches.busters.note("dora", RECORDED_MODEL, 0.0, prompt)
    unmetered = Done("r", "/v1/chat/completions", now, key="alice", model=RECORDED_MODEL, target="t", status=200)
    running.app.reporting.done(unmetered)


@contextlib.asynccontextmanager
async def scraped(folder: Path) -> AsyncIterator[tuple[Running, Prometheus]]:
    log = folder / "engine.log"
    log.write_text("slots=2\n")
    probe = {"name": "slots-told", "signal": "capacity", "log": {"match": r"slots=(?P<value>\d+)"}}
    async with (
        FakeLlamaCpp() as one,
        FakeLlamaCpp() as other,
        pharos(
            keys=KEYS,
            metrics_listen="127.0.0.1:0",
            backends=[{"url": one.url}, {"url": other.url, "logs": f"file://{log}", "probes": [probe]}],
        ) as running,
        prometheus(running.app.metering.port, folder) as made,
    ):
        tell_the_rest(running)
        asking = asyncio.create_task(traffic(running))
        try:
            yield running, made
        finally:
            asking.cancel()
            await asyncio.wait([asking])


def filled(expression: str) -> str:
    """A query with what Grafana puts in for its variables."""
    done = expression.replace("$__rate_interval", "20s").replace("$instance", ".*").replace("$model", ".*")
    assert "$" not in done
    return done


async def test_every_query_of_the_dashboard_has_data_and_every_alert_can_be_evaluated(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, made):
        alerts = {rule["alert"] for rule in rules()}
        open_queries = {where: filled(text) for where, text in expressions().items() if where not in alerts}
        assert len(open_queries) > 40
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while open_queries:
                    for where, query in list(open_queries.items()):
                        if any(math.isfinite(value) for value in await made.values(query)):
                            del open_queries[where]
                    await asyncio.sleep(0.2)
        assert not open_queries, "these give nothing"
        found = await _alerts(made)
        async with asyncio.timeout(WAIT_S):
            while {one["health"] for one in found} != {"ok"}:
                await asyncio.sleep(0.2)
                found = await _alerts(made)
        assert {one["name"] for one in found} == alerts
        state = {one["name"]: one["state"] for one in found}
        assert state["PharosProbeLost"] == "pending", "and one that holds is on its way"
        assert state["PharosPeerSilent"] == "pending"
        (silent,) = [one["alerts"] for one in found if one["name"] == "PharosPeerSilent"]
        assert "silent:8081" in silent[0]["annotations"]["summary"]
        (target,) = (await made.api("targets"))["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")


async def _alerts(made: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in (await made.api("rules"))["groups"] for rule in group["rules"]]


async def test_prometheus_gets_every_name_back_as_it_was_and_counts_what_was_asked(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, made):
        async with asyncio.timeout(WAIT_S):
            while len(keys := await made.api("label/key/values")) < 4:  # the three, and nobody's
                await asyncio.sleep(0.2)
        assert set(keys) >= {one["name"] for one in KEYS}
        models = await made.api("label/model/values")
        assert set(models) <= {RECORDED_MODEL, "_other", ""}
        async with asyncio.timeout(WAIT_S):
            while not any(await made.values('pharos_requests_total{status="401"}')):
                await asyncio.sleep(0.2)
        assert await made.values("scrape_samples_scraped") != [0.0]
