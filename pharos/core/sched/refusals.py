"""Every way to say no, in words for the caller. Forbidden here: deciding when."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet.backend import Backend, State
from pharos.core.sched.lease import Refusal

RETRY_AFTER_S = int(ASSUMPTIONS["retry_after_s"].value)
_DOES: Final = {
    State.UNKNOWN: ("was not asked yet", "were not asked yet"),
    State.STARTING: ("is starting", "are starting"),
    State.UNRECOGNISED: ("answers like no known engine", "answer like no known engine"),
}
_DEAD: Final = ("does not answer", "do not answer")
_DRAINED: Final = ("is drained", "are drained")


def unknown_model(model: str, unread: tuple[str, ...] = ()) -> Refusal:
    """No backend lists it; `unread` have told no list, and were waited for long enough."""
    return Refusal("unknown_model", None, f"The model '{model}' does not exist: no backend lists it.", unread)


def not_told(model: str, unread: Iterable[Backend]) -> Refusal:
    """Those that are up do not list it; `unread` may."""
    names = [f"{backend.name} ({_doing(backend)[0]})" for backend in unread]
    verb = "has not told its" if len(names) == 1 else "have not told their"
    text = f"No backend that is up lists the model '{model}', and {', '.join(names)} {verb} models yet."
    return Refusal("unavailable", RETRY_AFTER_S, text)


def unavailable(model: str, absent: Iterable[Backend]) -> Refusal:
    """Backends list it, or may, but none is up; `absent` do, counted, as not every caller may know names."""
    found = Counter(map(_doing, absent))
    why = ", ".join(f"{count} {several if count > 1 else one}" for (one, several), count in found.items())
    text = f"No backend that serves the model '{model}' is up"
    return Refusal("unavailable", RETRY_AFTER_S, f"{text}: {why}." if why else f"{text}.")


def _doing(backend: Backend) -> tuple[str, str]:
    """What one that gets no request does, of one and of several."""
    return _DRAINED if backend.drained_by is not None else _DOES.get(backend.state, _DEAD)


def still_absent(model: str, waited_s: float) -> Refusal:
    """Its backends were up lately, and did not come back in time."""
    text = f"No backend that serves the model '{model}' came back within {waited_s:.0f} s."
    return Refusal("wait_too_long", RETRY_AFTER_S, text)


def waited_too_long(model: str, waited_s: float, retry_after_s: int) -> Refusal:
    """`queue.max_wait` is over."""
    text = f"No slot for the model '{model}' became free within {waited_s:.0f} s."
    return Refusal("wait_too_long", retry_after_s, text)


def does_not_fit(model: str, why: str, *, are_all: bool) -> Refusal:
    """No backend of the model that is up can ever take the request; one that is not up may, unless these `are_all`."""
    text = f"No backend of the model '{model}' can take this request: {why}."
    if not are_all:
        return Refusal("unavailable", RETRY_AFTER_S, f"{text} Another one is not up now.")
    return Refusal("does_not_fit", None, text)


def queue_full(waiting: int, retry_after_s: int) -> Refusal:
    """`queue.size` is reached."""
    return Refusal("queue_full", retry_after_s, f"The queue is full: {waiting} requests are waiting.")


def nowhere_else(model: str) -> Refusal:
    """A retry finds nobody else; the caller passes on the answer it holds."""
    return Refusal("nowhere_else", None, f"No other backend that serves the model '{model}' can take the request.")
