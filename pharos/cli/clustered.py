"""The part of a running instance's report that tells of its Kubernetes cluster. Forbidden here: asking anybody."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pharos.cli.finding import EXIT_COMPLETE, EXIT_WRONG
from pharos.obs.logs import escaped
from pharos.obs.words import plural

MOST: Final = 50
"""Lines of one kind before the rest are counted."""


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """What people read. `told`: as `/doctor` has it under `kubernetes`."""
    objects, where = told["objects"], told["namespaces"]
    place = "all namespaces" if where is None else f"namespace {', '.join(where)}" if where else "no namespace yet"
    yield (
        f"Kubernetes, {place}: {plural(objects['pods'], 'Pod')}, {plural(objects['services'], 'Service')} and "
        f"{plural(objects['endpointslices'], 'EndpointSlice')} seen, "
        f"{plural(len(told['accepted']), 'backend')} among them"
    )
    yield from _some([f"   {one['object']} is left out: {one['why']}" for one in told["refused"]])
    yield from _some([f"   {one['object']}: {one['text']}" for one in told["notes"]])
    for one in told["troubles"]:
        fix = f"it needs {one['fix']}" if one["fix"] is not None else None
        yield from _with_fix(f"   {one['text']}; what was seen before stays", fix)
    said = {one["text"] for one in told["troubles"]}
    for one in told["remarks"]:
        if one["text"] not in said:
            yield from _with_fix(f"   {one['text']}", one["fix"])
    if told["rights"] and all(one["allowed"] is None for one in told["rights"]):
        yield "   Its rights are not known: the API server did not say."


def exit_code(told: Mapping[str, Any]) -> int:
    """The exit status that it stands for."""
    is_wrong = told["refused"] or told["troubles"] or any(one["is_wrong"] for one in told["remarks"])
    return EXIT_WRONG if is_wrong else EXIT_COMPLETE


def _with_fix(text: str, fix: str | None) -> Iterator[str]:
    yield escaped(text)
    if fix is not None:
        yield escaped(f"      {fix}")


def _some(texts: list[str]) -> Iterator[str]:
    yield from map(escaped, texts[:MOST])
    if len(texts) > MOST:
        yield f"   and {len(texts) - MOST} more"
