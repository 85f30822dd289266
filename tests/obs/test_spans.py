import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from pharos.config.otel import Collector
from pharos.obs.spans import KEPT, Spans, Trace, read_parent
from pharos.proxy.done import Done

if TYPE_CHECKING:
    from pharos.core.fleet.events import Event

Finished = Callable[..., Done]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
WAIT_S = 20.0


class Stand:
    """A collector that answers as a test says, and spans that are sent to it."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.events: list[Event] = []
        self.dropped = 0
        self.ended: list[Done] = []
        self.spans: Spans

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        return web.Response(status=self.status)

    def drop(self) -> None:
        self.dropped += 1

    def fetch(self) -> None:
        while self.ended:
            self.spans.add(self.ended.pop(0))

    @property
    def got(self) -> list[dict[str, Any]]:
        """Every span that came."""
        return [
            span
            for body in self.bodies
            for one in body["resourceSpans"]
            for scope in one["scopeSpans"]
            for span in scope["spans"]
        ]


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    made = Stand()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        made.spans = Spans(
            Collector(f"http://127.0.0.1:{port}/v1/traces", (("Authorization", "Bearer hush"),), "router", 0.5),
            session, instance="i1", version="1.2.3", chance=random.Random(1), on_event=made.events.append,
            on_dropped=made.drop, fetch=made.fetch,
        )  # fmt: skip
        yield made
    await runner.cleanup()


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


async def test_a_request_is_a_span_of_its_client_s_trace(stand: Stand, finished: Finished) -> None:
    stand.ended.append(finished(trace=SAMPLED, duration_s=1.5))
    await stand.spans.close()
    (span,) = stand.got
    assert (span["traceId"], span["parentSpanId"]) == (TRACE, PARENT)
    assert len(span["spanId"]) == 16
    assert (span["kind"], span["status"], span["name"]) == (2, {}, "POST /v1/chat/completions")
    assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == 1_500_000_000
    told = attributes(span)
    assert told["gen_ai.usage.input_tokens"] == "100"
    assert told["http.response.status_code"] == "200"
    assert told["pharos.ttft_s"] == 0.3
    assert told["pharos.streamed"] is True
    assert told["pharos.target"] == "tiny@gpu-1"
    (headers,) = stand.headers
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer hush", "application/json")
    resource = {
        one["key"]: one["value"]["stringValue"] for one in stand.bodies[0]["resourceSpans"][0]["resource"]["attributes"]
    }
    assert resource == {"service.name": "router", "service.version": "1.2.3", "service.instance.id": "i1"}


async def test_a_trace_that_is_not_recorded_gets_no_span(stand: Stand, finished: Finished) -> None:
    stand.ended.append(finished(trace=f"00-{TRACE}-{PARENT}-00"))
    await stand.spans.close()
    assert not stand.bodies


async def test_of_requests_without_a_trace_a_share_begins_one(stand: Stand, finished: Finished) -> None:
    stand.ended += [finished(trace=None, status=503, usage=None) for _ in range(200)]
    await stand.spans.close()
    assert 50 < len(stand.got) < 150
    assert len({span["traceId"] for span in stand.got}) == len(stand.got)
    assert not any("parentSpanId" in span for span in stand.got)
    assert all(span["status"] == {"code": 2} for span in stand.got)
    assert "gen_ai.usage.input_tokens" not in attributes(stand.got[0]), "unknown is left out"


async def test_spans_are_sent_at_once_when_there_are_many_and_the_task_goes_on(
    stand: Stand, finished: Finished
) -> None:
    task = asyncio.create_task(stand.spans.run())
    for _ in range(600):
        stand.spans.add(finished(trace=SAMPLED))
    async with asyncio.timeout(WAIT_S):
        while len(stand.got) < 600:
            await asyncio.sleep(0.001)
    assert [len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in stand.bodies] == [512, 88]
    task.cancel()
    await asyncio.wait([task])


async def test_a_collector_that_refuses_is_told_once_with_its_status_and_costs_its_spans_only(
    stand: Stand, finished: Finished
) -> None:
    stand.status = 401
    for _ in range(2):
        stand.spans.add(finished(trace=SAMPLED))
        await stand.spans._send()
    assert stand.dropped == 2
    assert [event.level for event in stand.events] == ["warning"]
    assert "it answered 401" in stand.events[0].text
    assert "hush" not in stand.events[0].text
    stand.status = 200
    stand.spans.add(finished(trace=SAMPLED))
    await stand.spans._send()
    assert [event.level for event in stand.events] == ["warning", "info"]


async def test_a_collector_that_is_away_ends_nothing(finished: Finished) -> None:
    events: list[Event] = []
    dropped: list[None] = []
    async with aiohttp.ClientSession() as session:
        spans = Spans(
            Collector("http://127.0.0.1:1/v1/traces"), session, instance="", version="", chance=random.Random(1),
            on_event=events.append, on_dropped=lambda: dropped.append(None), fetch=lambda: None,
        )  # fmt: skip
        for _ in range(KEPT + 5):
            spans.add(finished(trace=SAMPLED))
        assert len(dropped) == 5, "more than so many do not wait"
        await spans.close()
    assert len(dropped) == 5 + 512, "once it fails, the end does not wait for the others"
    assert [event.level for event in events] == ["warning"]


async def test_no_text_of_others_breaks_what_is_sent(stand: Stand, finished: Finished) -> None:
    stand.spans.add(finished(trace=SAMPLED, model='m"\n\ud800', target="t\x00"))
    await stand.spans._send()
    assert attributes(stand.got[0])["gen_ai.request.model"] == 'm"\n?'
    assert json.dumps(stand.bodies)


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (SAMPLED, Trace(TRACE, PARENT, sampled=True)),
        (f"00-{TRACE}-{PARENT}-00", Trace(TRACE, PARENT, sampled=False)),
        (f"cc-{TRACE}-{PARENT}-03-later", Trace(TRACE, PARENT, sampled=True)),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}-01\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_read_as_its_standard_says(header: str | None, read: Trace | None) -> None:
    assert read_parent(header) == read
