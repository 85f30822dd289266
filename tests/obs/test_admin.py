"""The admin listener without an app: its routes, and who is turned away."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from pharos.core.fleet import Event
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.obs.admin import Admin, AdminListener, refused
from pharos.obs.recent import Recent
from pharos.obs.status import Status
from pharos.proxy.done import Done

from .test_overview import overview_of


@dataclass
class Stand:
    """A listener and what it told others."""

    http: aiohttp.ClientSession
    url: str
    fleet: Fleet
    recent: Recent
    events: list[Event] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    config: Any = None

    async def ask(self, method: str, path: str, **headers: str) -> tuple[int, Any]:
        async with self.http.request(method, self.url + path, headers=headers) as reply:
            is_json = reply.content_type == "application/json"
            return reply.status, (await reply.json() if is_json else await reply.text())


@pytest.fixture
async def stand(fleet: Fleet) -> AsyncIterator[Stand]:
    recent = Recent()
    overview = overview_of(fleet, recent)
    async with aiohttp.ClientSession() as http:
        stand = Stand(http, "", fleet, recent)
        admin = Admin(
            overview,
            Status(overview),
            fleet,
            on_event=stand.events.append,
            on_change=lambda: stand.changes.append("looked"),
            config=lambda: stand.config,
        )
        listener = AdminListener(admin)
        await listener.start("127.0.0.1:0")
        stand.url = f"http://127.0.0.1:{listener.port}"
        yield stand
        await listener.close()


async def test_a_backend_is_drained_and_undrained_and_waiting_requests_are_looked_at(stand: Stand) -> None:
    status, told = await stand.ask("POST", "/backend/gpu-1/drain")
    assert (status, told["name"], told["drained_by"], told["inflight"], told["changed"]) == (
        200, "gpu-1", "operator", 0, True,
    )  # fmt: skip
    assert not stand.fleet.targets_for("tiny", 1000.0)
    assert (await stand.ask("POST", "/backend/gpu-1/drain"))[1]["changed"] is False
    assert (await stand.ask("POST", "/backend/gpu-1/undrain"))[1]["drained_by"] is None
    assert [event.outcome for event in stand.events] == ["begun", "ended"]
    assert stand.changes == ["looked", "looked"]


async def test_a_name_of_any_letters_can_be_drained(stand: Stand) -> None:
    stand.fleet.set_backends([BackendSpec("[::1]:80/a b", "http://[::1]:80")], 1000.0)
    status, told = await stand.ask("POST", "/backend/%5B%3A%3A1%5D%3A80%2Fa%20b/drain")
    assert (status, told["name"]) == (200, "[::1]:80/a b")


async def test_what_is_not_there_is_said_with_what_is(stand: Stand) -> None:
    status, told = await stand.ask("POST", "/backend/nix/drain")
    assert (status, told["error"]["message"]) == (404, "there is no backend 'nix'; there are: gpu-1, gpu-2")
    status, told = await stand.ask("GET", "/explain/unknown")
    assert (status, told["error"]["code"]) == (404, "unknown_request")
    status, told = await stand.ask("GET", "/nothing")
    assert status == 404
    assert "/doctor" in told["error"]["message"]
    assert (await stand.ask("GET", "/config"))[0] == 404


async def test_a_change_is_a_post_and_a_look_is_none(stand: Stand) -> None:
    assert (await stand.ask("GET", "/backend/gpu-1/drain"))[0] == 405
    assert (await stand.ask("POST", "/doctor"))[0] == 405
    assert (await stand.ask("DELETE", "/status"))[0] == 405
    assert stand.events == []


async def test_everything_can_be_read_without_a_key(stand: Stand, finished: Callable[..., Done]) -> None:
    stand.recent.add(finished(request_id="r/1"))
    stand.config = {"schema": 1, "listen": ":8090"}
    assert (await stand.ask("GET", "/doctor"))[1]["backends"][0]["name"] == "gpu-1"
    assert (await stand.ask("GET", "/backends"))[1]["backends"][1]["name"] == "gpu-2"
    assert (await stand.ask("GET", "/explain/r%2F1"))[1]["request_id"] == "r/1"
    assert (await stand.ask("GET", "/config"))[1]["listen"] == ":8090"
    assert "<h1>" in (await stand.ask("GET", "/", Accept="text/html"))[1]
    assert (await stand.ask("GET", "/status?format=json"))[1]["requests"][0]["request_id"] == "r/1"


async def test_no_page_of_another_origin_may_keep_frame_or_read_it(stand: Stand) -> None:
    async with stand.http.get(stand.url + "/status") as reply:
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["X-Frame-Options"] == "DENY"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8091", "localhost.evil.example", "10.0.0.1:8091", ""])
async def test_a_foreign_name_that_leads_here_is_refused(stand: Stand, host: str) -> None:
    """So a page cannot have its own name resolve to this machine and read or change anything."""
    for method, path in (("GET", "/status"), ("GET", "/explain/x"), ("POST", "/backend/gpu-1/drain")):
        status, told = await stand.ask(method, path, Host=host)
        assert status == 403 or (host == "" and status == 400)
        assert "gpu-1" not in str(told)
    assert stand.events == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "https://127.0.0.1:8091"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
async def test_a_form_of_another_page_changes_nothing(stand: Stand, headers: dict[str, str]) -> None:
    assert (await stand.ask("POST", "/backend/gpu-1/drain", **headers))[0] == 403
    assert stand.fleet.backends["gpu-1"].drained_by is None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8091", "127.0.0.1:8091", "127.8.9.1", "[::1]:8091"])
def test_this_machine_may_ask_under_each_of_its_names(host: str) -> None:
    assert refused("POST", {"Host": host}) is None
    assert refused("POST", {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}) is None


def test_somebody_may_follow_a_link_to_the_page() -> None:
    link = {"Host": "localhost:8091", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert refused("GET", link) is None
    assert refused("GET", link | {"Sec-Fetch-Mode": "no-cors"}) is not None
    assert refused("POST", link) is not None
    assert refused("GET", {}) is not None, "whoever names no host is no browser and no command of ours"
