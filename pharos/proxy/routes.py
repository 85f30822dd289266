"""Which request is answered by what: paths and methods. What a route to an engine needs is in table.py.

# ops: serve · goal: a request for an engine is told by one look-up, before anything else is looked at
# plan: rows of `ROUTES`, then ids of responses, then what Pharos answers itself, then 404
# warning: paths are compared as they came: an encoded slash is no slash

No socket and no header bytes: those are answer.py's and server.py's business.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from multidict import istr

from pharos.clock import Clock
from pharos.core.fleet import Fleet
from pharos.core.sched import Refusal
from pharos.proxy import body as bodies
from pharos.proxy import lists, ollama
from pharos.proxy import query as queries
from pharos.proxy.accept import Door
from pharos.proxy.auth import Keyring, is_presented
from pharos.proxy.cors import Cors
from pharos.proxy.done import CLIENT_LEFT_STATUS, Done, OnDone
from pharos.proxy.errors import (
    PharosError,
    does_not_fit,
    model_not_found,
    rate_limited,
    unavailable,
    unknown_route,
)
from pharos.proxy.forward import Forwarder
from pharos.proxy.gate import RefusedError
from pharos.proxy.incoming import (
    JSON,
    PAGE_TAKEN_S,
    RETRY_AFTER_S,
    TEXT,
    Incoming,
    Page,
    PageView,
    State,
    Steps,
    check_ready,
    in_steps,
)
from pharos.proxy.ollama import LastPage, OllamaLists
from pharos.proxy.quotas import Quotas
from pharos.proxy.responses import Responses
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES, Route, of_response
from pharos.proxy.turn import as_task

__all__ = ["JSON", "Incoming", "PageView", "Routes", "TracedRoutes"]

GETS = ("GET", "HEAD")
OPTIONS = "OPTIONS"
TRACE = istr("traceparent")
HEALTH = ("/healthz", "/livez")
ROOT = "/"
HIDDEN = "(hidden)"
"""Kept as the model of a request that sent its key as one."""


class Routes:
    """Answers requests, each by its path and method."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        state: State,
        settings: ProxySettings,
        fleet: Fleet,
        keyring: Keyring,
        forwarder: Forwarder,
        responses: Responses,
        pages: Mapping[str, PageView],
        last_page: LastPage,
        on_done: OnDone,
        clock: Clock,
        wall: Callable[[], float],
        cors: Cors | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`cors`: which web pages may call; `None`: none, and nothing is said of them. `quotas`: see `Door`."""
        self._cors = cors
        self._state = state
        self._fleet = fleet
        self._keyring = keyring
        self._forwarder = forwarder
        self._pages = pages
        self._on_done = on_done
        self._clock = clock
        self._wall = wall
        self._started = int(wall())
        self._ollama = OllamaLists(fleet, last_page)
        self.buffers = bodies.Buffers(settings.buffered_bytes)
        self.door = Door(
            state=state, settings=settings, fleet=fleet, keyring=keyring, responses=responses, clock=clock,
            quotas=quotas,
        )  # fmt: skip

    def adopt(self, settings: ProxySettings) -> None:
        """Go by these from the next request on."""
        self.buffers.limit = settings.buffered_bytes
        self.door.adopt(settings)
        self._forwarder.adopt(settings)

    def __repr__(self) -> str:
        return f"<Routes {self.buffers!r}>"

    def serve(self, incoming: Incoming) -> Coroutine[Any, Any, None] | None:
        """Answer a request at once, or give what will."""
        if incoming.method == OPTIONS and self._cors is not None and self._cors.answer(incoming):
            return None
        route, response_id = ROUTES.get(incoming.path), None
        if route is None:
            about = of_response(incoming.path)
            if about is None:
                return self._ours(incoming)
            route, response_id = about
        if incoming.method in route.methods:
            return self.engine(route, incoming, response_id)
        incoming.wrong_method(route.methods)
        return None

    # --- what engines answer

    async def engine(self, route: Route, incoming: Incoming, response_id: str | None = None) -> None:
        """Have an engine answer; cancelled when the client leaves. `response_id`: of the path, if it has one."""
        done = Done(request_id=incoming.answer.request_id, path=route.path, at_wall=self._wall())
        reservation = bodies.Reservation(self.buffers)
        try:
            if response_id is None:
                call = await self.door.accept(route, incoming, done, reservation)
            else:
                call = self.door.accept_by_id(route, incoming, response_id, done, reservation)
            done.stages.append(("admission", "ok"))
            await self._forwarder.run(call)
            if response_id is not None:
                self.door.is_deleted(call, response_id)
        except RefusedError as refused:
            done.stages.append(
                ("route", refused.refusal.outcome if refused.refusal.outcome != "nowhere_else" else "unavailable")
            )
            incoming.refuse(_refusal(refused.refusal, done.model or ""))
        except PharosError as fault:
            incoming.refuse(fault)
        except asyncio.CancelledError:
            done.status = CLIENT_LEFT_STATUS
            done.stages.append(("upstream" if done.target is not None else "route", "client_left"))
            raise
        finally:
            reservation.release()
            self._finished(incoming, done)

    def _finished(self, incoming: Incoming, done: Done) -> None:
        if done.target is None and done.model and is_presented(done.model, incoming.headers):
            done.model = HIDDEN
        if done.status == 0:
            done.status = incoming.answer.status if incoming.answer.is_started else 500
        done.duration_s = self._clock() - incoming.arrived_at
        self._on_done(done)

    # --- what Pharos answers itself

    def _ours(self, incoming: Incoming) -> Coroutine[Any, Any, None] | None:
        path = incoming.path
        answer = self._answer_to(path)
        if answer is None:
            incoming.refuse(
                ollama.not_managed(path)
                if ollama.manages_models(path)
                else unknown_route(incoming.verb, path, self._meant(path))
            )
        elif incoming.method not in GETS:
            incoming.wrong_method(GETS)
        else:
            try:
                return answer(incoming)
            except PharosError as fault:
                incoming.refuse(fault)
        return None

    def _answer_to(self, path: str) -> Callable[[Incoming], Coroutine[Any, Any, None] | None] | None:
        """What answers a path; `None`: there is no such path."""
        if path in self._pages:
            return self._page
        if path in HEALTH:
            return self._health
        if path == lists.MODELS or path.startswith(lists.MODELS_PREFIX):
            return self._models
        if path in ollama.LISTS:
            return self._ollama_list
        return self._running if path == ROOT else None

    def _meant(self, path: str) -> str | None:
        """The path that is served, where a base URL with `/v1` or `/api` too little or too much made another of it."""
        for near in (f"/v1{path}", path.removeprefix("/v1"), path.removeprefix("/api"), path.rstrip("/")):
            if near not in (path, ROOT) and (near in ROUTES or self._answer_to(near) is not None):
                return near
        return None

    def _health(self, incoming: Incoming) -> None:
        answer = incoming.answer
        if incoming.path == "/livez" or (self._state.ready and not self._state.draining):
            answer.whole(200, TEXT, b"ok\n")
            return
        answer.whole(
            503,
            TEXT,
            b"draining\n" if self._state.draining else b"not ready\n",
            [(b"Retry-After", b"%d" % RETRY_AFTER_S)],
        )

    def _page(self, incoming: Incoming) -> Coroutine[Any, Any, None] | None:
        key = self._keyring.find(incoming.headers)
        is_admin = self._keyring.is_open or (key is not None and key.admin)
        accept = incoming.headers.get("Accept", "")
        query = queries.fields(incoming.query)
        page = self._pages[incoming.path](query, accept, is_admin)
        if not isinstance(page, tuple):
            return _give_in_steps(incoming, page)
        _give(incoming, page)
        return None

    def _models(self, incoming: Incoming) -> None:
        check_ready(self._state)
        key = self._keyring.require(incoming.headers)
        found = lists.usable(self._fleet, key, self._clock())
        incoming.give(lists.models(incoming, found, self._started))

    def _ollama_list(self, incoming: Incoming) -> None:
        check_ready(self._state)
        # The version is asked for by clients that never send a key, to learn what they may ask for.
        key = None if incoming.path == ollama.VERSION else self._keyring.require(incoming.headers)
        incoming.give(self._ollama.answer(incoming.path, key, self._clock()))

    def _running(self, incoming: Incoming) -> None:
        incoming.give(ollama.RUNNING, TEXT)


class TracedRoutes(Routes):
    """The same, and each record keeps the trace that its client said it belongs to."""

    def _finished(self, incoming: Incoming, done: Done) -> None:
        done.trace = incoming.headers.get(TRACE)
        super()._finished(incoming, done)


async def _give_in_steps(incoming: Incoming, steps: Steps) -> None:
    """Answer with a page that takes long."""
    _give(incoming, await in_steps(steps))
    await _taken(incoming)


async def _taken(incoming: Incoming) -> None:
    """Wait until the client has taken the page, and part from one that leaves it in memory."""
    await as_task()
    try:
        async with asyncio.timeout(PAGE_TAKEN_S):
            await incoming.client.drained()
    except TimeoutError:
        incoming.answer.transport.abort()


def _give(incoming: Incoming, page: Page) -> None:
    status, content_type, body = page
    incoming.answer.whole(status, content_type.encode("latin-1", "replace"), body)


def _refusal(refusal: Refusal, model: str) -> PharosError:
    """The ledger's refusal as the client gets it."""
    if refusal.outcome == "unknown_model":
        return model_not_found(model, refusal.unread)
    if refusal.outcome == "does_not_fit":
        return does_not_fit(refusal.text)
    if refusal.outcome == "queue_full":
        return rate_limited(refusal.text, refusal.retry_after_s)
    return unavailable(refusal.text, refusal.retry_after_s)
