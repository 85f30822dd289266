"""What operators ask a running process, on an address of this machine only: it needs no key, so who asks is checked.

A web page that somebody opens on this machine reaches loopback addresses, too. Two things it cannot forge: `Host`,
which names what the browser believes to talk to (a foreign name that resolves to this machine is refused), and
`Origin`, which browsers add to whatever a page sends elsewhere. Both must be this very listener.

Forbidden here: what ends a request, reads a prompt or a key, or changes the configuration.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from aiohttp.http_parser import RawRequestMessage

from pharos.core.fleet import Event, Fleet
from pharos.obs.listener import GETS, PageListener
from pharos.obs.overview import Overview
from pharos.obs.replies import HTML, JSON, encoded, fault_page
from pharos.obs.status import Status
from pharos.proxy import strict
from pharos.proxy.answer import Answer
from pharos.proxy.errors import ClientFault
from pharos.proxy.incoming import Page, Steps, in_steps

PATHS: Final = "/status, /doctor, /config, /backends, /explain/ID; POST /backend/NAME/drain and /backend/NAME/undrain"
LOOPBACK: Final = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
"""What names this machine and nothing else, whoever resolves it."""
BACKEND: Final = re.compile(r"/backend/(.+)/(drain|undrain)")
EXPLAIN: Final = "/explain/"
FOREIGN: Final = frozenset({"cross-site", "same-site"})
"""What `Sec-Fetch-Site` says of requests that another page makes."""
HEADERS: Final = (
    (b"Cache-Control", b"no-store"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"X-Frame-Options", b"DENY"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Pharos-Admin", b"1"),
)
"""No page of another origin may frame, embed or read what is answered, and nothing keeps it. By the last one commands
know whom they reached."""


def refused(method: str, headers: Mapping[str, str]) -> str | None:
    """Why a request may come from a web page and not from an operator; `None`: it does not."""
    host = headers.get("Host", "")
    if not LOOPBACK.fullmatch(host):
        return "the admin listener answers to localhost, 127.0.0.1 and [::1] only: name one of them in the address"
    origin = headers.get("Origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return "the admin listener does not answer web pages of other origins"
    is_visit = method in GETS and headers.get("Sec-Fetch-Mode") == "navigate"  # somebody followed a link
    if headers.get("Sec-Fetch-Site") in FOREIGN and not is_visit:
        return "the admin listener does not answer web pages of other origins"
    return None


class Admin:
    """The routes."""

    def __init__(
        self,
        overview: Overview,
        status: Status,
        fleet: Fleet,
        *,
        on_event: Callable[[Event], None],
        on_change: Callable[[], None],
        config: Callable[[], Any] = lambda: None,
        before_page: Callable[[], None] = lambda: None,
        before_doctor: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_change`: requests that wait may have a slot now. `config`: the effective configuration, keys masked.

        `before_doctor`: asks others what the doctor tells of them.
        """
        self.before_doctor = before_doctor
        self._overview = overview
        self._status = status
        self._fleet = fleet
        self._on_event = on_event
        self._on_change = on_change
        self._config = config
        self._before_page = before_page

    def __repr__(self) -> str:
        return f"<Admin of {self._overview!r}>"

    def answer(self, method: str, path: str, query: Mapping[str, str], accept: str) -> Page | Steps:
        """Answer a request. `path` is percent-encoded, as it came. Raises `ClientFault`."""
        found = BACKEND.fullmatch(path)
        if found is not None:
            if method != "POST":
                raise ClientFault(405, "method_not_allowed", "draining is a POST: pharos backend drain NAME")
            return self._drain(unquote(found[1]), is_wanted=found[2] == "drain")
        if method not in GETS:
            raise ClientFault(405, "method_not_allowed", f"{path} is read with GET")
        self._before_page()
        if path in {"/", "/status"}:
            return self._status.page(query, accept if accept or path == "/status" else HTML, True)  # noqa: FBT003 - as pages are called
        if path == "/doctor":
            return self._doctor()
        if path == "/backends":
            return _json({"schema": 1, "backends": self._overview.backends()})
        if path == "/config":
            return self._shown_config()
        if path.startswith(EXPLAIN):
            return self._explain(unquote(path.removeprefix(EXPLAIN)))
        raise ClientFault(404, "unknown_route", f"the admin listener serves {PATHS}")

    def _doctor(self) -> Steps:
        described = yield from self._overview.doctor()
        return _json(described)

    def _shown_config(self) -> Page:
        shown = self._config()
        if shown is None:
            raise ClientFault(404, "no_config", "this instance was started without a configuration that can be shown")
        return _json(shown)

    def _explain(self, request_id: str) -> Page:
        found = self._overview.explain(request_id)
        if found is None:
            kept = self._overview.recent
            raise ClientFault(
                404,
                "unknown_request",
                f"no request of this id is among the last {len(kept)}: a decision log (decision_log in the "
                "configuration) keeps more",
            )
        return _json(found)

    def _drain(self, name: str, *, is_wanted: bool) -> Page:
        try:
            events = self._fleet.cordons.put(name) if is_wanted else self._fleet.cordons.lift(name)
        except KeyError:
            known = ", ".join(list(self._fleet.backends)[:20]) or "none"
            raise ClientFault(404, "unknown_backend", f"there is no backend {name!r}; there are: {known}") from None
        for event in events:
            self._on_event(event)
        if events:
            self._on_change()
        return _json(self._overview.brief(name) | {"changed": bool(events)})


def _json(value: object) -> Page:
    return 200, JSON, encoded(value)


class AdminListener(PageListener):
    """Answers on a loopback address what `Admin` knows."""

    def __init__(self, admin: Admin) -> None:
        super().__init__({})
        self._admin = admin

    def __repr__(self) -> str:
        return f"<AdminListener on port {self.port}>"

    async def _answer(self, message: RawRequestMessage, answer: Answer) -> None:
        doubt = strict.doubt(message, self._hosts) or strict.doubtful_target(message.path)
        why = refused(message.method, message.headers)
        if doubt is not None or why is not None:
            answer.close_after()
            raise doubt if doubt is not None else ClientFault(403, "not_here", why or "")
        url = message.url.relative() if message.url.absolute else message.url
        if self._admin.before_doctor is not None and message.method in GETS and url.raw_path == "/doctor":
            await self._admin.before_doctor()
        try:
            made = self._admin.answer(message.method, url.raw_path, url.query, message.headers.get("Accept", ""))
        except ClientFault as fault:
            made = fault_page(fault)
        status, content_type, body = made if isinstance(made, tuple) else await in_steps(made)
        answer.whole(status, content_type.encode("ascii"), body, HEADERS)
