"""JSON bodies: a strict decoder, and the probe constructors over it. A missing field is unknown, a wrong type an error.

Forbidden here: defaults, and taking one of two values where a body gives a field twice.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pharos.core.engine.probe import DropReason, Feed, Page, Probe, ProbeError
from pharos.core.engine.values import NUMBERS, decoded, number, quoted
from pharos.core.signals import BACKEND, Found, Signal

T = TypeVar("T", str, int, bool, list[Any], dict[str, Any])

NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a whole number"}
"""What a field must be, in words."""


def document_of(page: Page) -> object:
    """Decode a page's body once, however many probes read it. Raises `ProbeError`."""
    if "json" not in page.parsed:
        try:
            page.parsed["json"] = _decode(decoded(page.body))
        except ProbeError as error:
            page.parsed["json"] = error
    found: object = page.parsed["json"]
    if isinstance(found, ProbeError):
        raise ProbeError(found.reason, found.detail)
    return found


def member(holder: object, path: str) -> object:
    """Return what stands at a dotted path of objects.

    Raises `ProbeError`: no value when missing or null, else a wrong type.
    """
    at = holder
    for step in path.split("."):
        at = of_type(at, dict, "the body" if at is holder else path).get(step)
        if at is None:
            raise ProbeError(DropReason.NO_VALUE, f"no {path}")
    return at


def of_type(value: object, kind: type[T], what: str) -> T:
    """Return the value when it is of exactly this JSON type. Raises `ProbeError`."""
    if isinstance(value, kind) and type(value) is kind:  # exactly: true is no whole number
        return value
    raise ProbeError(DropReason.PARSE_ERROR, f"{what} is not {NAMES[kind]}")


def json_number(name: str, signal: Signal, feed: Feed, path: str, *, beside: bool = False, rank: int = 0) -> Probe:
    """Declare a probe that reads one number, of the whole backend (or a per-model feed's model), at a dotted path.

    Raises `ValueError` for a wrong signal.
    """
    if signal not in NUMBERS:
        raise ValueError(f"{name}: {signal.value} is no number")

    def read(document: object) -> Found:
        return {BACKEND: number(signal, member(document, path))}

    return json_probe(name, signal, feed, read, beside=beside, rank=rank, wants=path)


def json_probe(  # noqa: PLR0913 - a declaration: every argument is a word of it
    name: str,
    signal: Signal,
    feed: Feed,
    read: Callable[[object], Found],
    *,
    when: Callable[[str | None], bool] | None = None,
    beside: bool = False,
    rank: int = 0,
    wants: str = "",
    may_be_empty: bool = False,
) -> Probe:
    """Declare a probe whose function gets the decoded body; it raises `ProbeError` and nothing else."""

    def parse(page: Page) -> Found:
        return read(document_of(page))

    return Probe(
        name=name,
        signal=signal,
        feed=feed,
        parse=parse,
        when=when,
        beside=beside,
        rank=rank,
        wants=wants,
        may_be_empty=may_be_empty,
    )


def listed(document: object) -> list[dict[str, Any]]:
    """Return the entries of an OpenAI-style model list, each with a proper `id`. Raises `ProbeError`.

    One unusable entry makes the list unreadable: a list with a gap would unlist a model.
    """
    entries = of_type(member(document, "data"), list, "data")
    cards = [of_type(entry, dict, "an entry of data") for entry in entries]
    for card in cards:
        if not of_type(card.get("id"), str, "id"):
            raise ProbeError(DropReason.PARSE_ERROR, "an empty id")
    return cards


def model_names(document: object) -> Found:
    """Read the ids of an OpenAI-style model list. An empty list is a known value. Raises `ProbeError`."""
    return {BACKEND: tuple(dict.fromkeys(str(card["id"]) for card in listed(document)))}


def _decode(text: str) -> object:
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        if "\\ud" in text or "\\uD" in text:  # half a character can be written so, and no other way
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except RecursionError:
        raise ProbeError(DropReason.PARSE_ERROR, "nested too deeply") from None
    except UnicodeEncodeError:  # no name or text that is passed on may be half a character
        raise ProbeError(DropReason.PARSE_ERROR, "half a character") from None
    except ValueError:  # also an integer of thousands of digits
        raise ProbeError(DropReason.PARSE_ERROR, "not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        times = Counter(name for name, _ in pairs)
        twice = next(name for name, count in times.items() if count > 1)
        raise ProbeError(DropReason.PARSE_ERROR, f"field {quoted(twice)} comes twice")
    return made


def _refuse(constant: str) -> NoReturn:
    raise ProbeError(DropReason.PARSE_ERROR, f"{constant} is not JSON")
