"""Shared by the engine tests: pages written by hand, and a fetcher that has only what was recorded."""

import json
from collections.abc import Callable, Mapping, Sequence

from pharos.core.engine import plan
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import FetchFault, Page, Pages, Probe, ProbeError
from pharos.core.engine.recipe import Recipe
from pharos.core.signals import Found

NOW = 100.0


def ok(body: object, *, server: str = "", sent_at: float = NOW - 0.5) -> Page:
    """A 200 with a JSON document, or with text as it is."""
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Page(status=200, body=raw, headers={"server": server} if server else {}, sent_at=sent_at)


def status(code: int) -> Page:
    return Page(status=code, body=b"{}", sent_at=NOW - 0.5)


def fault(kind: FetchFault = FetchFault.TIMEOUT) -> Page:
    return Page(status=None, fault=kind, sent_at=NOW - 0.5)


def fetched(
    wanted: Callable[[Pages], tuple[str, ...]], there: Mapping[str, Page], before: Pages | None = None
) -> dict[str, Page]:
    """Fetch what is wanted until nothing is; a path that is not there gives no answer."""
    got = dict(before) if before is not None else {}
    while paths := wanted(got):
        assert not set(paths) & set(got)
        got |= {path: there.get(path, fault(FetchFault.UNREACHABLE)) for path in paths}
    return got


def resolved(
    recipe: Recipe, there: Mapping[str, Page], own: Sequence[Probe] = (), *, logs: bool = False
) -> tuple[Plan, Round]:
    got = fetched(lambda pages: plan.next_paths(recipe, own, pages), there)
    return plan.resolve(recipe, own, got, kind_source="detected", logs=logs, now=NOW)


def values(read: Round) -> dict[tuple[str, str], object]:
    return {(signal.value, model): reading.value for (signal, model), reading in read.readings.items()}


def reasons(made: Plan) -> dict[str, str]:
    return {one.probe: one.reason.name for one in made.dropped}


def refusal(probe: Probe, page: Page) -> str:
    """The reason with which a probe refuses a page; what it read when it does not."""
    try:
        return f"read {dict(probe.parse(page))}"
    except ProbeError as error:
        return error.reason.name


def read(probe: Probe, page: Page) -> Found:
    return probe.parse(page)
