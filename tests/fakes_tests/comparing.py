"""Shared by the tests of engine doubles: what the control path reads of one, and how its replies differ from recorded
ones."""

import json
from typing import Any

import aiohttp

from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.control.inspect import Inspection
from pharos.core.fleet.backend import BackendSpec
from tests.fakes.captures import Recorded
from tests.fakes.engine import EngineDouble
from tests.fakes.http import HttpDouble
from tests.fakes.replayed import Replayed
from tests.fakes.replies import Book, Exchange, events_of, is_stream

NUMBERS = frozenset(
    {"usage", "timings", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
     "eval_duration", "tokens_evaluated", "tokens_predicted", "input_tokens", "original_input_tokens", "request_id"}
)  # fmt: skip
"""Fields that a double puts its own numbers into."""


async def look(double: HttpDouble, *, logs: str | None = None) -> Inspection:
    """What one visit of the control path makes of a double."""
    async with new_session() as session:
        spec = BackendSpec("gpu", double.url, logs=logs)
        return await inspect.resolve(Fetcher(session), spec, budget_s=20.0, get_timeout_s=20.0)


class Look:
    """What was read, in a form that two visits can be compared by."""

    def __init__(self, found: Inspection) -> None:
        assert found.plan is not None, found.why
        assert found.round is not None
        plan = found.plan
        self.kind = plan.kind
        self.version = plan.version
        self.active = [probe.name for probe in plan.active]
        self.dropped = {one.probe: one.reason for one in plan.dropped}
        self.values = {
            (signal.value, model): (reading.value, reading.probe)
            for (signal, model), reading in found.round.readings.items()
        }
        self.asked = sorted(found.pages)

    def known(self, signal: str) -> dict[str, Any]:
        return {model: value for (name, model), (value, _) in self.values.items() if name == signal}


async def assert_like_its_capture(double: EngineDouble, version: str, state: str, engine: str) -> Look:
    """A double is read in the same way and with the same result as the recording that it was made from."""
    there = Look(await look(double))
    async with Replayed(engine, version, state) as recording:
        recorded = Look(await look(recording))
    assert (there.kind, there.version) == (recorded.kind, recorded.version)
    assert there.active == recorded.active
    assert there.dropped == recorded.dropped
    assert there.values == recorded.values
    assert there.asked == recorded.asked
    return there


async def replay(session: aiohttp.ClientSession, double: HttpDouble, book: Book, exchange: Exchange) -> None:
    """Ask a double what was asked in an exchange: it gives a reply that was recorded to that, but for the numbers."""
    body = json.dumps(exchange.body).encode() if exchange.body is not None else None
    headers = {"Content-Type": "application/json", **exchange.headers}
    async with session.request(
        exchange.method, double.url + exchange.path, data=body, headers=headers, allow_redirects=False
    ) as response:
        got = await response.read()
        assert response.status == exchange.reply.status, (exchange.name, got[:300])
        told = {name.lower(): value for name, value in exchange.reply.headers.items()}
        assert response.headers.get("content-type", "") == told.get("content-type", "") or not got
    wanted = [one.reply for one in book.same(exchange)]
    given = _parts(Recorded(response.status, exchange.reply.headers, got))
    assert given in [_parts(one) for one in wanted], exchange.name


def _parts(reply: Recorded) -> list[Any]:
    return [masked(event) for event in (events_of(reply) if is_stream(reply) else [reply.body])]


def masked(event: bytes) -> Any:
    """An event or body without its numbers."""
    lines = event.decode("utf-8", "replace").splitlines()
    return [_without(_record(line)) for line in lines]


def _record(line: str) -> Any:
    try:
        return json.loads(line.removeprefix("data: "))
    except ValueError:
        return line


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(inner) for name, inner in value.items() if name not in NUMBERS}
    return [_without(inner) for inner in value] if isinstance(value, list) else value
