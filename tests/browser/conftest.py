"""A browser for all tests of a file, and a page that is served as it is in a running Pharos."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.policy import Score
from pharos.core.prefix.buster import Busted
from pharos.core.signals import BACKEND, Signal
from pharos.core.usage import Count
from pharos.obs.admin import Admin, AdminListener
from pharos.obs.happened import Happened
from pharos.obs.overview import Overview, Parts
from pharos.obs.pulse import Pulse
from pharos.obs.recent import Recent
from pharos.obs.status import Status
from pharos.proxy.done import Done
from tests.browser.chromium import Browser, chromium, find
from tests.obs.conftest import NOW, VALUES, Chosen, publish
from tests.obs.test_status import peer

HOSTILE = '</script><script>window.hit=1</script><img src=x onerror="window.hit=2">\'"><svg/onload=window.hit=3>{{7}}'
LONG = "an-organisation/" + "a-model-with-quite-a-long-name-" * 5 + "q4_k_m.gguf"


def _scores(*names: str) -> tuple[Score, ...]:
    return tuple(
        Score(
            target_id=place, name=name, wait_s=0.5 * place, load_s=4.0 * place, prefill_s=0.4, kv_s=0.1 * place,
            total_s=0.4 + 4.6 * place, feasible=place < 2, why_not="" if place < 2 else "no free slot", free=True,
            occupancy=0.0,
        )
        for place, name in enumerate(names)
    )  # fmt: skip


@dataclass
class Stage:
    """A fleet with something of everything, and the listener that serves its page."""

    fleet: Fleet
    recent: Recent = field(default_factory=Recent)
    pulse: Pulse = field(default_factory=Pulse)
    happened: Happened = field(default_factory=Happened)
    url: str = ""
    listener: AdminListener | None = None

    def request(self, request_id: str, model: str = "tiny", status: int = 200) -> None:
        """A request that just ended."""
        done = Done(
            request_id=request_id, path="/v1/chat/completions", at_wall=time.time() - 1, key="alice", model=model,
            target=f"{model}@gpu-1", backend="gpu-1", status=status, ttft_s=0.3, predicted_s=0.4, duration_s=0.9,
            stages=[("admission", "ok"), ("route", "warm"), ("upstream", "ok")],
            choice=Chosen(f"warm, est 0.4 s for {model}", _scores("gpu-1", "gpu-2", "gpu-3")),
        )  # fmt: skip
        self.recent.add(done)
        self.pulse.note(done)

    async def start(self) -> None:
        count = {name: getattr(Count(3, 1000, 200, 500, 1), name) for name in Count.__struct_fields__}
        used = {
            "today": "2026-11-30",
            "days": [{"day": f"2026-11-{day:02}", "requests": day, "tokens": day * 100} for day in range(1, 31)],
            "keys": [
                {
                    "key": key, "today": count, "month": count, "tokens_per_day": 3000, "tokens_left": 1500, "rpm": 60,
                    "rpm_left": 57,
                }
                for key in ("alice", HOSTILE)
            ],
        }  # fmt: skip
        overview = Overview(
            self.fleet,
            self.recent,
            Parts(
                phase=lambda: "ready",
                waiting=lambda: {"tiny": 2, LONG: 1},
                policy=lambda: "cost",
                busted=lambda: [Busted(HOSTILE, LONG, 64, 32, 5)],
                usage=lambda: used,
                peers=lambda: [peer("pharos-2"), peer(LONG, up=False, heard_ago_s=None, error=HOSTILE)],
                config=lambda: {
                    "file": "pharos.yaml",
                    "in_use_since": NOW,
                    "last_read_at": NOW,
                    "error": f"pharos.yaml: line 3: {LONG}",
                    "waits_for_a_restart": ["listen"],
                },
            ),
            version="1.2.3",
            monotonic=lambda: NOW,
            wall=time.time,
            pulse=self.pulse,
            happened=self.happened,
        )
        admin = Admin(overview, Status(overview), self.fleet, on_event=lambda _: None, on_change=lambda: None)
        self.listener = AdminListener(admin)
        await self.listener.start("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.listener.port}"

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    fleet = Fleet()
    names = ("gpu-1", "gpu-2", "gpu-3", HOSTILE)
    fleet.set_backends([BackendSpec(name, f"http://gpu-{place}:8080") for place, name in enumerate(names)], NOW)
    models = ("tiny", LONG, HOSTILE, *(f"model-{number}" for number in range(12)))
    publish(fleet, "gpu-1", VALUES | {(Signal.MODELS, BACKEND): models, (Signal.RUNNING, BACKEND): 3})
    publish(fleet, "gpu-2", VALUES)
    fleet.unreachable(fleet.backends["gpu-3"], f"connection refused by {LONG}")
    fleet.cordons.put("gpu-2")
    stage = Stage(fleet)
    for number in range(20):
        stage.request(f"request-{number}", ("tiny", LONG, HOSTILE)[number % 3], 200 if number % 5 else 503)
    for number in range(30):
        stage.happened.add("warning" if number % 2 else "info", f"event {number} of {HOSTILE}", time.time())
    await stage.start()
    yield stage
    await stage.stop()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if find() is None:
        pytest.skip("no Chromium here: hack/setup-chromium")
    async with chromium() as running:
        yield running
