"""The status page: the fleet and the last requests, as HTML for people and as JSON for programs.

Forbidden here: anything the page would have to fetch elsewhere, and text that is not escaped, since names come from
engines and clients. The templates, the style and the script are in `page/`.
"""

import base64
import hashlib
from collections.abc import Generator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pharos.obs import attention, drawing, rows
from pharos.obs.overview import Overview
from pharos.obs.replies import HTML, JSON, encoded, fault_page
from pharos.obs.words import amount, clock_time, plural, seconds, size
from pharos.proxy.errors import admin_only
from pharos.proxy.incoming import Steps

if TYPE_CHECKING:
    import jinja2

REFRESH_S: Final = 10
"""Seconds between two reads of the open page."""

STEP_CHARS: Final = 4096
"""Characters of the page after which others get their turn: less than a millisecond's work."""

SHOWN: Final = {"BACKENDS": 60, "MODELS": 6, "ROWS": 30, "REQUESTS": 15, "CANDIDATES": 8, "EVENTS": 15, "PLACES": 6}
SHOWN_MORE: Final = {"LOOKS": 6, "DOTS": 60}
"""How many of each are on the page before somebody asks for all of them; of the latter there are never more."""
CROWD: Final = 12
CROWDED: Final = {"MODELS": 4, "ROWS": 8, "CANDIDATES": 4}
"""The same where more backends than `CROWD` are on the page: a page is for people."""

BESIDE: Final = "On the machine of the process the address of `admin_listen` shows it without one."
PARTS: Final = (
    *("page.html", "parts.html", "glance.html", "backends.html", "requests.html"),
    *("usage.html", "models.html", "peers.html", "events.html", "config.html"),
)


class Status:
    """Renders `/status`."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def page(self, query: Mapping[str, str], accept: str, is_admin: bool) -> Steps:  # noqa: FBT001 (as the proxy calls)
        """The page, or its content with `?format=json`; 403 for a key that may not read of everybody's requests.

        `?show=WHAT` shows all of something: backends, models, requests, events, usage, or `backend:NAME`.
        """
        if not is_admin:
            return fault_page(admin_only("/status", BESIDE))
        described = yield from self._overview.described()
        if query.get("format") == "json" or (JSON in accept and HTML not in accept):
            return 200, JSON, (yield from _encoded(described))
        shown = yield from _shown(described, query.get("show", ""))
        html, grown = [], 0
        for part in _template().generate(shown):
            html.append(part)
            grown += len(part)
            if grown > STEP_CHARS:
                grown = 0
                yield
        return 200, f"{HTML}; charset=utf-8", "".join(html).encode("utf-8", "replace")


def _shown(described: dict[str, Any], show: str) -> Generator[None, None, dict[str, Any]]:
    """What the template is given: everything, and the beginnings of long lists."""
    backends, summaries = described["backends"], {}
    for backend in backends:
        summaries[backend["name"]] = rows.summary(backend)
        yield
    looks = attention.items(described)
    yield
    found = [one for one in backends if show == f"backend:{one['name']}"]
    found = found or (backends if show == "backends" else backends[: SHOWN["BACKENDS"]])
    return (SHOWN | (CROWDED if len(found) > CROWD else {})) | {
        "status": described,
        "glance": rows.glance(described, list(summaries.values())),
        "summaries": summaries,
        "looks": looks,
        "at_once": sum(item["tone"] == "bad" for item in looks),
        "shown": show,
        "backends": found,
        "requests": described["requests"] if show == "requests" else described["requests"][: SHOWN["REQUESTS"]],
        "models": described["models"] if show == "models" else described["models"][: SHOWN["ROWS"]],
        "refresh_s": REFRESH_S,
    }


def _encoded(described: dict[str, Any]) -> Generator[None, None, bytes]:
    """As JSON, a backend at each step."""
    pieces = []
    for backend in described["backends"]:
        pieces.append(encoded(backend))
        yield
    rest = encoded({name: value for name, value in described.items() if name != "backends"})
    return b'%b, "backends": [%b]}' % (rest[:-1], b", ".join(pieces))


def prepare() -> None:
    """Make the page ready to be rendered. Takes a tenth of a second: call it in a thread, once requests are served."""
    _template()


def _anchor(name: str) -> str:
    """A name as it stands in an address."""
    return quote(name.encode("utf-8", "replace"), safe="")


def _link(name: str, kind: str) -> str:
    """Where all of one thing is shown."""
    return f"?show={kind}:{_anchor(name)}#{kind}-{_anchor(name)}"


def _hash_of(text: str) -> str:
    """What allows a style or a script in the page's own policy, and nothing else."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _template() -> "jinja2.Template":
    """The compiled page. Style and script are allowed by their hashes, so that no others can ever count in it."""
    folder = resources.files("pharos.obs") / "page"
    import jinja2  # a seventh of the start, and nobody looks at the page so soon

    env = jinja2.Environment(
        loader=jinja2.DictLoader({name: (folder / name).read_text(encoding="utf-8") for name in PARTS}),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.filters.update(
        seconds=seconds, amount=amount, size=size, plural=plural, clock_time=clock_time, link=_link, anchor=_anchor
    )
    env.filters.update(
        slots=drawing.slots, curve=drawing.curve, columns=drawing.columns, share=drawing.share, tokens=drawing.tokens,
        stacked=drawing.stacked, total_s=drawing.total_s, longest_s=drawing.longest_s,
        by_cost=rows.by_cost, since_the_first=drawing.since_the_first,
    )  # fmt: skip
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    env.globals.update(script=script, script_hash=_hash_of(script), style=style, style_hash=_hash_of(style))
    env.globals.update(SHOWN_MORE)
    for name in PARTS:
        env.get_template(name)  # compiled now, and not in the middle of the first page
    return env.get_template("page.html")
