"""What vLLM answers and others after it: model cards with `root` and `parent`, a plain version, series of one name.

Forbidden here: believing cards of one name that differ, and a queue for a card that does not say whose it is.
"""

from typing import Any

from pharos.core.engine.jsonfeed import listed, member, of_type
from pharos.core.engine.probe import DropReason, Pages, ProbeError
from pharos.core.engine.promtext import exposition_of
from pharos.core.engine.recipe import LIST_PATH, Verdict, all_owned, confirm, is_ok, is_web_page, lacking
from pharos.core.engine.values import number, quoted
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value


def groups(document: object) -> Found:
    """Read which names share a queue: the first card without a parent names that of all cards of its root and theirs.

    An adapter may name as its parent what is not in the list; where there is one queue only, it is that one's. Raises
    `ProbeError`.
    """
    cards = listed(document)
    mains: dict[str, str] = {}
    found: dict[str, Value] = {}
    for card in _bases(cards):
        main = mains.setdefault(of_type(card.get("root"), str, "root"), str(card["id"]))
        _put(found, card, main)
    if len(set(mains.values())) != len(mains):
        raise ProbeError(DropReason.PARSE_ERROR, "two cards of one name have different roots")
    for card in _adapters(cards):
        _put(found, card, _main_of(card, found, mains))
    return found


def one_queue(document: object) -> Found:
    """Read the names of an engine that has one model, whatever the names: all share its queue. Raises `ProbeError`."""
    names = [str(card["id"]) for card in listed(document)]
    return dict.fromkeys(names, names[0]) if names else {}


def context_lengths(document: object) -> Found:
    """Read each card's `max_model_len`; an adapter without one has that of its parent. Raises `ProbeError`."""
    cards = listed(document)
    queues = groups(document)
    found: dict[str, Value] = {}
    for card in (*_bases(cards), *_adapters(cards)):
        told = card.get("max_model_len")
        if told is not None:
            _put(found, card, number(Signal.CONTEXT_LENGTH, told))
        elif card.get("parent") is not None and queues[card["id"]] in found:
            _put(found, card, found[str(queues[card["id"]])])
    return found


def version(document: object) -> Found:
    """Read the field `version`. Raises `ProbeError`."""
    text = of_type(member(document, "version"), str, "version")
    if not text.strip():
        raise ProbeError(DropReason.NO_VALUE, "the version is empty")
    return {BACKEND: text}


def always_loaded(document: object) -> Found:
    """Read from the list that the model is loaded, of an engine that has it before it answers and until it ends.

    Raises `ProbeError`.
    """
    if not listed(document):
        raise ProbeError(DropReason.NO_VALUE, "no model is listed")
    return {BACKEND: Residency.LOADED}


def unclaimed(pages: Pages, owner: str) -> Verdict | None:
    """Judge by the model list alone whether it may be the engine that owns its models so; `None` when it may."""
    missing = lacking(pages, LIST_PATH)
    if missing is not None:
        return Verdict(matches=None, text=missing)
    return None if all_owned(pages, owner) else Verdict(matches=False)


def told_version(pages: Pages, path: str) -> Verdict:
    """Judge by a page that tells a version, where the list or another page already speaks for the engine."""
    return confirm(pages, path, lambda document: f"is version {quoted(version(document)[BACKEND])}", claimed=True)


def _bases(cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [card for card in cards if card.get("parent") is None]


def _adapters(cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [card for card in cards if card.get("parent") is not None]


def _main_of(card: dict[str, Any], bases: Found, mains: dict[str, str]) -> Value:
    """The queue of an adapter."""
    parent = of_type(card["parent"], str, "parent")
    if parent in bases:
        return bases[parent]
    if len(mains) != 1:
        raise ProbeError(DropReason.NO_EVIDENCE, f"{quoted(parent)} is the parent of a card, and not in the list")
    return next(iter(mains.values()))


def _put(found: dict[str, Value], card: dict[str, Any], value: Value) -> None:
    """Add a card's value. Raises `ProbeError` when another card of its name says something else."""
    if found.setdefault(card["id"], value) != value:
        raise ProbeError(DropReason.PARSE_ERROR, f"two cards of {quoted(card['id'])} differ")


def own_series(pages: Pages, path: str, prefix: str) -> Verdict:
    """Judge whether a metrics page has the series of one engine, by their common beginning."""
    missing = lacking(pages, path)
    if missing is not None:
        return Verdict(matches=None, text=missing)
    page = pages[path]
    try:
        series = exposition_of(page).series if is_ok(page) and not is_web_page(page) else {}
    except ProbeError as error:
        return Verdict(matches=None, text=f"{path}: {error}")
    if any(name.startswith(prefix) for name in series):
        return Verdict(matches=True, text=f"{path} has {prefix} series")
    return Verdict(matches=False)
