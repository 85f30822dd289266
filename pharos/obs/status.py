"""The status page: the fleet and the last requests, as HTML for people and as JSON for programs.

Forbidden here: anything the page would have to fetch elsewhere, and text that is not escaped, since names come from
engines and clients.
"""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from pharos.clock import Clock
from pharos.core.fleet.backend import Backend
from pharos.core.fleet.registry import Fleet
from pharos.obs import describe
from pharos.obs.recent import Recent
from pharos.obs.words import amount, seconds, size

if TYPE_CHECKING:
    import jinja2

REFRESH_S = 10
"""Seconds between two reads of the open page."""
SLOTS_DRAWN = 32
"""Slots that are drawn one by one; more are drawn as shares of this many."""

JSON = "application/json"
HTML = "text/html"

Reply = tuple[int, str, bytes]
"""Status, content type, body."""


class Status:
    """Renders `/status`.

    `phase` says what the instance is doing: starting, ready or draining; `waiting` how many requests wait for which
    model.
    """

    def __init__(
        self,
        fleet: Fleet,
        recent: Recent,
        *,
        version: str,
        policy: str,
        phase: Callable[[], str],
        waiting: Callable[[], Mapping[str, int]],
        monotonic: Clock,
        wall: Clock,
    ) -> None:
        self._fleet = fleet
        self._recent = recent
        self._version = version
        self._policy = policy
        self._phase = phase
        self._waiting = waiting
        self._monotonic = monotonic
        self._wall = wall
        self._began = monotonic()

    def page(self, query: Mapping[str, str], accept: str, is_admin: bool) -> Reply:  # noqa: FBT001 (as the proxy calls)
        """The page, or its content with `?format=json`; 403 for a key that may not read of everybody's requests."""
        if not is_admin:
            body = {
                "error": {
                    "message": (
                        "the status page needs a key with `admin: true`, sent in a header: Authorization: Bearer <key>"
                    ),
                    "type": "permission_error",
                    "code": "admin_only",
                }
            }
            return 403, JSON, msgspec.json.encode(body)
        described = self.describe()
        if query.get("format") == "json" or (JSON in accept and HTML not in accept):
            return 200, JSON, _json(described)
        html = _template().render(status=described, refresh_s=REFRESH_S)
        return 200, f"{HTML}; charset=utf-8", html.encode("utf-8", "replace")

    def describe(self) -> dict[str, Any]:
        """Everything on the page."""
        now = self._monotonic()
        return {
            "schema": describe.SCHEMA,
            "version": self._version,
            "phase": self._phase(),
            "policy": self._policy,
            "at": self._wall(),
            "running_for_s": now - self._began,
            "waiting": dict(self._waiting()),
            "backends": [self._backend(it, now) for it in self._fleet.backends.values()],
            "requests": [describe.request(done) for done in self._recent],
        }

    def _backend(self, it: Backend, now: float) -> dict[str, Any]:
        return describe.backend(it, now) | {
            "state": it.state.value,
            "error": it.error,
            "last_full_s": None if it.last_full_at is None else now - it.last_full_at,
            "last_load_s": None if it.last_load_at is None else now - it.last_load_at,
            "targets": [
                describe.target(target, now) for target in it.targets.values() if target.listed or target.inflight
            ],
        }


def slots(target: dict[str, Any]) -> list[str]:
    """The slot bar of a target: `ours`, `others` (running, but not ours), `free`; empty when capacity is unknown."""
    capacity, running, ours = target["capacity"], target["running"], target["queue_inflight"]
    if not capacity:
        return []
    used = min(capacity, max(ours, running if running is not None else 0))
    drawn = min(capacity, SLOTS_DRAWN)
    ours, used = (-(-count * drawn // capacity) for count in (min(ours, capacity), used))
    return ["ours"] * ours + ["others"] * (used - ours) + ["free"] * (drawn - used)


def clock_time(wall_s: float) -> str:
    """The time of day on this machine's clock."""
    return time.strftime("%H:%M:%S", time.localtime(wall_s))


def _json(described: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(described)
    except UnicodeEncodeError:  # an engine's name has half of a surrogate pair in it: JSON can write that, UTF-8 cannot
        return json.dumps(described).encode("ascii")


def prepare() -> None:
    """Make the page ready to be rendered. Takes a tenth of a second: call it in a thread, once requests are served."""
    _template()


@cache
def _template() -> "jinja2.Template":
    """The compiled page. Its script is allowed by its hash, so that no other script can ever run in it."""
    folder = resources.files("pharos.obs")
    script = (folder / "status.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    import jinja2  # a seventh of the start, and nobody looks at the page so soon

    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters.update(seconds=seconds, amount=amount, size=size, clock_time=clock_time, slots=slots)
    env.globals.update(
        script=script, script_hash=f"sha256-{digest}", style=(folder / "status.css").read_text(encoding="utf-8")
    )
    return env.from_string((folder / "status.html").read_text(encoding="utf-8"))
