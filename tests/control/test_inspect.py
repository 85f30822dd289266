import random
from itertools import chain, repeat
from typing import Any

import aiohttp
import pytest

from pharos.control import inspect
from pharos.control.fetch import MAX_BYTES, Fetcher
from pharos.control.inspect import Contact, Inspection, contact_of
from pharos.control.watch import Watch, Wiring
from pharos.core.engine import detect, plan, recipes
from pharos.core.engine.own import OwnProbeSpec
from pharos.core.engine.probe import LOAD_INTERVAL_S, FetchFault, Page
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import BACKEND, Key, Reading, Signal
from tests.fakes import captures
from tests.fakes.http import Answer, Hang, HttpDouble, Raw, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase
from tests.fakes.patience import Patient
from tests.fakes.steps import Steps

HTML = Reply(200, b"<html><body>Welcome to nginx!</body></html>", {"Content-Type": "text/html"})
MODEL_LIST = Reply(200, b'{"object":"list","data":[{"id":"m","object":"model"}]}', {"Content-Type": "application/json"})


async def visit(session: aiohttp.ClientSession, engine: HttpDouble, kind: str | None = None) -> Inspection:
    spec = BackendSpec(name="gpu", url=engine.url, kind=kind)
    return await inspect.resolve(Patient(session, engine, clock=lambda: 1000.0), spec)


def told(read: plan.Round) -> dict[Key, Reading]:
    """What was read, but for the size of the caches, which is each engine's own."""
    return {key: reading for key, reading in read.readings.items() if key[0] is not Signal.CACHED_TOKENS}


@pytest.mark.parametrize(("state", "running", "deferred"), [("idle", 0, 0), ("busy", 1, 0), ("saturated", 2, 4)])
async def test_resolve_reads_the_double_exactly_as_its_capture(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, state: str, running: int, deferred: int
) -> None:
    llamacpp.report(running, deferred)
    found = await visit(session, llamacpp)
    recorded = captures.pages("llamacpp", "b11434", state, sent_at=1000.0)
    made, first = plan.resolve(
        recipes.by_kind("llamacpp"), (), recorded, kind_source="detected", logs=False, now=1000.0
    )
    assert found.plan is not None
    assert found.round is not None
    assert found.detection == detect.judge(recorded)
    assert told(found.round) == told(first)
    assert found.plan.dropped == made.dropped
    assert found.plan.same_probes(made)
    assert found.round.readings[Signal.RUNNING, BACKEND].value == running
    assert found.round.readings[Signal.WAITING, BACKEND].value == deferred


async def test_a_visit_takes_few_requests_and_none_twice(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp
) -> None:
    await visit(session, llamacpp)
    assert sorted(llamacpp.paths) == ["/metrics", "/props", "/slots", "/v1/models"]


async def test_a_sleeping_engine_is_read_without_waking_it(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaCpp(version="b11549-sleep", phase=Phase.SLEEPING, model="tiny") as engine:
        found = await visit(session, engine)
        assert engine.woken == 0
        assert engine.phase is Phase.SLEEPING
    assert found.plan is not None
    assert "/slots" not in engine.paths


async def test_a_configured_kind_is_not_detected(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        engine.answers["/v1/models"] = MODEL_LIST
        found = await visit(session, engine, kind="openai")
    assert found.plan is not None
    assert (found.plan.kind, found.plan.kind_source) == ("openai", "config")
    assert engine.paths == ["/v1/models"]


async def test_what_no_fingerprint_fits_is_generic_when_it_lists_models(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        engine.answers["/v1/models"] = MODEL_LIST
        found = await visit(session, engine)
    assert found.plan is not None
    assert (found.plan.kind, found.plan.kind_source) == ("openai", "detected")


async def test_a_dead_address_costs_one_request(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        pass
    found = await visit(session, engine)
    assert (found.contact, len(found.pages), found.plan) == (Contact.UNREACHABLE, 1, None)
    assert "connection refused" in found.why


async def test_an_engine_that_loads_is_starting_and_of_no_known_kind(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp
) -> None:
    llamacpp.phase = Phase.LOADING
    found = await visit(session, llamacpp)
    assert (found.contact, found.detection.kind, found.plan) == (Contact.STARTING, None, None)
    assert len(llamacpp.seen) <= 2
    configured = await visit(session, llamacpp, kind="llamacpp")
    assert (configured.contact, configured.plan) == (Contact.STARTING, None)


async def test_an_engine_that_hangs_is_busy_and_costs_one_request(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        engine.every = Hang()
        found = await visit(session, engine)
    assert (found.contact, len(engine.seen)) == (Contact.TIMED_OUT, 1)
    assert "no answer in time" in found.why


async def test_one_fingerprint_page_that_hangs_or_is_503_leaves_the_kind_open(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp
) -> None:
    llamacpp.answers["/v1/models"] = Hang()
    llamacpp.answers["/props"] = Reply(404, b"")
    assert (await visit(session, llamacpp)).contact is Contact.TIMED_OUT
    llamacpp.answers["/v1/models"] = Reply(503, b"")
    assert (await visit(session, llamacpp)).contact is Contact.STARTING


async def test_a_metrics_page_that_hangs_while_planning_does_not_change_the_kind(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp
) -> None:
    llamacpp.answers["/metrics"] = Hang()
    found = await visit(session, llamacpp)
    assert found.plan is not None
    assert found.round is not None
    assert found.plan.kind == "llamacpp"
    assert (Signal.WAITING, BACKEND) not in found.round.readings


@pytest.mark.parametrize(
    ("answer", "contact", "why"),
    [
        pytest.param(HTML, Contact.ANSWERED, "/v1/models is no OpenAI-style model list", id="HTML"),
        pytest.param(Reply(302, b"", {"Location": "/login"}), Contact.ANSWERED, "answers 302", id="redirect"),
        pytest.param(Reply(401, b""), Contact.ANSWERED, "answers 401", id="401"),
        pytest.param(Reply(404, b""), Contact.ANSWERED, "answers 404", id="404"),
        pytest.param(Reply(500, b""), Contact.ANSWERED, "answers 500", id="500"),
        pytest.param(Reply(200, b"\xff\xfe{}"), Contact.ANSWERED, "", id="not UTF-8"),
        pytest.param(Reply(200, b"[" * 100_000), Contact.ANSWERED, "", id="deep nesting"),
        pytest.param(Raw(b"220 ftp ready\r\n"), Contact.NOT_READABLE, "not an HTTP answer", id="FTP"),
        pytest.param(
            Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"),
            Contact.NOT_READABLE,
            "answer too large",
            id="1 GiB",
        ),
    ],
)
async def test_what_is_no_engine_is_unknown_with_a_reason(
    session: aiohttp.ClientSession, answer: Answer, contact: Contact, why: str
) -> None:
    async with HttpDouble() as engine:
        engine.every = answer
        found = await visit(session, engine)
        assert (found.contact, found.plan, found.round) == (contact, None, None)
        assert found.why
        assert why in found.why
        assert len(engine.seen) <= 15


async def test_a_configured_kind_of_which_nothing_works_says_why(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        found = await visit(session, engine, kind="llamacpp")
    assert (found.contact, found.plan) == (Contact.ANSWERED, None)
    assert "no probe for llamacpp works" in found.why
    assert "not found" in found.why


async def test_a_kind_without_a_recipe_is_an_error_of_the_caller(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        with pytest.raises(KeyError):
            await visit(session, engine, kind="abacus")


async def test_a_visit_makes_25_requests_at_most(session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp) -> None:
    own = tuple(OwnProbeSpec(f"own {number}", Signal.KV_USAGE, "x", path=f"/own/{number}") for number in range(40))
    spec = BackendSpec(name="gpu", url=llamacpp.url, probes=own)
    found = await inspect.resolve(Patient(session, llamacpp, clock=lambda: 1000.0), spec)
    assert len(llamacpp.seen) == len(found.pages) == 25


class Timed(Patient):
    """The patient fetcher, which notes how long it was allowed to take."""

    allowed: list[float]

    async def get(self, url: str, path: str, timeout_s: float, max_bytes: int = MAX_BYTES, **rest: Any) -> Page:
        self.allowed.append(timeout_s)
        return await super().get(url, path, timeout_s, max_bytes, **rest)


async def test_a_get_may_take_800_ms_which_is_less_than_the_shortest_interval(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp
) -> None:
    fleet, steps, fetcher = Fleet(), Steps(), Timed(session, llamacpp, clock=lambda: 1000.0)
    fetcher.allowed = []
    await inspect.resolve(fetcher, BackendSpec(name="gpu", url=llamacpp.url))
    planning = len(fetcher.allowed)
    (backend,) = fleet.set_backends([BackendSpec(name="gpu", url=llamacpp.url)], steps.now).added
    wiring = Wiring(
        fleet=fleet, fetcher=fetcher, on_event=lambda _: None, on_round=lambda _: None,
        clock=steps.clock,
    )  # fmt: skip
    watch = Watch(backend, wiring, random.Random(0))
    for _ in range(3):
        await watch.round()
        steps.now += 1.0
    assert len(fetcher.allowed) > planning + planning, "its own plan, then rounds"
    assert set(fetcher.allowed) == {0.8}
    assert LOAD_INTERVAL_S == 1.0


async def test_a_visit_ends_when_its_time_is_up(session: aiohttp.ClientSession) -> None:
    times = chain([0.0, 0.0, 0.1], repeat(9.0))
    async with FakeLlamaCpp() as engine:
        fetcher = Fetcher(session, clock=lambda: next(times))
        found = await inspect.resolve(fetcher, BackendSpec(name="gpu", url=engine.url))
    assert len(engine.seen) == 1
    assert (found.plan, found.why) == (None, "/props has not been asked")
    times = chain([0.0] * 5, repeat(9.0))
    async with FakeLlamaCpp() as engine:
        fetcher = Fetcher(session, clock=lambda: next(times))
        found = await inspect.resolve(fetcher, BackendSpec(name="gpu", url=engine.url))
    assert len(engine.seen) == 2
    assert found.plan is not None
    assert found.plan.trusted  # the pages that did not come are hoped for, and planned again once they do


@pytest.mark.parametrize(
    ("pages", "contact"),
    [
        ([], Contact.TIMED_OUT),
        ([Page(200), Page(None, fault=FetchFault.REFUSED)], Contact.ANSWERED),
        ([Page(503), Page(404)], Contact.ANSWERED),
        ([Page(503), Page(None, fault=FetchFault.TIMEOUT)], Contact.STARTING),
        ([Page(None, fault=FetchFault.REFUSED), Page(None, fault=FetchFault.TIMEOUT)], Contact.TIMED_OUT),
        ([Page(None, fault=FetchFault.RESET)], Contact.UNREACHABLE),
        ([Page(None, fault=FetchFault.NAME)], Contact.UNREACHABLE),
        ([Page(None, fault=FetchFault.TLS)], Contact.UNREACHABLE),
        ([Page(None, fault=FetchFault.NOT_HTTP)], Contact.NOT_READABLE),
    ],
)
def test_pages_are_summed_up(pages: list[Page], contact: Contact) -> None:
    assert contact_of(pages) is contact


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (FetchFault.REFUSED, "connection refused; is it running, and is the port right?"),
        (FetchFault.NAME, "name not found; is the name right, and does this machine know it?"),
        (FetchFault.TLS, "TLS failed; try http://"),
        (FetchFault.UNREACHABLE, "no connection; is the address right"),
        (FetchFault.RESET, "connection closed (/props)"),
        (FetchFault.TIMEOUT, "no answer in time (/props)"),
    ],
)
def test_a_fault_is_told_with_what_to_do_or_with_its_path(fault: FetchFault, told: str) -> None:
    assert inspect.fault_text({"/v1/models": Page(200), "/props": Page(None, fault=fault)}).startswith(told)
