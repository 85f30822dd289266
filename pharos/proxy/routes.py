"""The routes and what each answers. No socket and no header bytes: those are answer.py's and server.py's business."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import hdrs
from multidict import CIMultiDictProxy

from pharos.clock import Clock
from pharos.core.fleet import Fleet
from pharos.core.sched import Refusal
from pharos.proxy import body as bodies
from pharos.proxy import head
from pharos.proxy.answer import Answer
from pharos.proxy.auth import Keyring
from pharos.proxy.call import Call
from pharos.proxy.done import CLIENT_LEFT_STATUS, Done, OnDone
from pharos.proxy.errors import (
    ClientFault,
    PharosError,
    PharosFault,
    body_too_large,
    model_not_found,
    rate_limited,
    render,
    shape_for,
    unavailable,
    unknown_route,
)
from pharos.proxy.forward import Forwarder
from pharos.proxy.gate import RefusedError
from pharos.proxy.parse import ChatRequest, SlowBodyError, needs_thread, parse_chat
from pharos.proxy.relay import Client
from pharos.proxy.settings import ProxySettings

log = logging.getLogger(__name__)

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
POSTS = ("/v1/chat/completions", "/v1/completions")
MODELS = "/v1/models"
GETS = frozenset({"GET", "HEAD"})
RETRY_AFTER_S = 1
"""Seconds after which a client of an instance that is not ready should ask again."""

PageView = Callable[[Mapping[str, str], str, bool], tuple[int, str, bytes]]
"""(query, Accept header, whether the key is an administrator's) -> (status, content type, body)."""

ADMISSION = {401: "unauthorized", 408: "body_stalled", 413: "too_large", 404: "model_not_allowed"}
LONGEST_UNKNOWN = 128
"""Characters of a model name that are kept in records when it is none of ours."""
LARGE_AT_ONCE = 2
"""Large bodies that are parsed at once: each thread that computes makes the loop wait its turn (5 ms)."""


class Incoming(msgspec.Struct, kw_only=True, frozen=True, eq=False):
    """One request as the routes see it."""

    method: str
    path: str
    """As it came, percent-encoded."""
    query: str
    """As it came, without the question mark."""
    headers: CIMultiDictProxy[str]
    raw_headers: head.Headers
    payload: bodies.Payload
    http11: bool
    answer: Answer
    client: Client
    arrived_at: float

    def __repr__(self) -> str:
        return f"<Incoming {self.method} {self.path}>"

    def refuse(self, fault: PharosError, allow: str = "") -> None:
        """Answer with a fault, in the shape of the path."""
        if self.answer.is_started:
            self.answer.break_off()
            return
        if not self.payload.is_eof():
            self.answer.close_after()  # the rest of the body is not wanted
        headers: list[tuple[bytes, bytes]] = []
        if fault.retry_after_s is not None:
            headers.append((b"Retry-After", b"%d" % fault.retry_after_s))
        if allow:
            headers.append((b"Allow", allow.encode()))
        self.answer.whole(fault.status, JSON, render(fault, shape_for(self.path, self.headers)), headers)


class State(Protocol):
    """What the routes ask of the proxy."""

    ready: bool
    draining: bool


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
        pages: Mapping[str, PageView],
        on_done: OnDone,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        self._state = state
        self._settings = settings
        self._fleet = fleet
        self._keyring = keyring
        self._forwarder = forwarder
        self._pages = pages
        self._on_done = on_done
        self._clock = clock
        self._wall = wall
        self._started = int(wall())
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self.buffers = bodies.Buffers(settings.buffered_bytes)
        self.body_idle_s = bodies.IDLE_S

    def __repr__(self) -> str:
        return f"<Routes {self.buffers!r}>"

    async def serve(self, incoming: Incoming) -> None:
        """Answer one request; cancelled when its client leaves."""
        path = incoming.path
        if path in POSTS:
            if incoming.method == "POST":
                await self._chat(incoming)
            else:
                self._wrong_method(incoming, "POST")
        elif path in ("/healthz", "/livez") or path == MODELS or path.startswith(MODELS + "/") or path in self._pages:
            if incoming.method not in GETS:
                self._wrong_method(incoming, "GET, HEAD")
            elif path in self._pages:
                self._page(incoming)
            elif path in ("/healthz", "/livez"):
                self._health(incoming)
            else:
                self._models(incoming)
        else:
            incoming.refuse(unknown_route(incoming.method, incoming.path))

    # --- plain routes

    def _wrong_method(self, incoming: Incoming, allow: str) -> None:
        incoming.refuse(ClientFault(405, "method_not_allowed", f"this route takes {allow}"), allow)

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

    def _page(self, incoming: Incoming) -> None:
        key = self._keyring.find(incoming.headers)
        is_admin = self._keyring.is_open or (key is not None and key.admin)
        accept = incoming.headers.get("Accept", "")
        query = dict(parse_qsl(incoming.query, keep_blank_values=True))
        status, content_type, body = self._pages[incoming.path](query, accept, is_admin)
        incoming.answer.whole(status, content_type.encode("latin-1", "replace"), body)

    def _models(self, incoming: Incoming) -> None:
        try:
            self._admit()
            key = self._keyring.require(incoming.headers)
            found = [name for name in self._fleet.models(self._clock()) if key.allows(name)]
            if incoming.path == MODELS:
                listed: object = {"object": "list", "data": [self._model(name) for name in found]}
            else:
                wanted = unquote(incoming.path[len(MODELS) + 1 :])
                if wanted not in found:
                    raise model_not_found(wanted)
                listed = self._model(wanted)
        except PharosError as fault:
            incoming.refuse(fault)
            return
        incoming.answer.whole(200, JSON, json.dumps(listed, ensure_ascii=False).encode("utf-8", "replace"))

    def _model(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "pharos"}

    # --- the main route

    def _admit(self) -> None:
        if not self._state.ready:
            raise PharosFault(
                503, "not_ready", "this instance has not read its engines yet", retry_after_s=RETRY_AFTER_S
            )

    async def _chat(self, incoming: Incoming) -> None:
        done = Done(request_id=incoming.answer.request_id, path=incoming.path, at_wall=self._wall())
        reservation = bodies.Reservation(self.buffers)
        try:
            call = await self._accept(incoming, done, reservation)
            done.stages.append(("admission", "ok"))
            await self._forwarder.run(call)
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
        if done.status == 0:
            done.status = incoming.answer.status if incoming.answer.is_started else 500
        done.duration_s = self._clock() - incoming.arrived_at
        self._on_done(done)

    async def _accept(self, incoming: Incoming, done: Done, reservation: bodies.Reservation) -> Call:
        """Let the request in: key, limits, body, model. Raises the fault that the client shall see."""
        try:
            self._admit()
            key = self._keyring.require(incoming.headers)
            done.key = key.name
            length = self._check_head(incoming)
            if incoming.http11 and hdrs.EXPECT in incoming.headers and not incoming.payload.is_eof():
                incoming.answer.transport.write(head.CONTINUE)
            started = self._clock()
            limit = self._settings.body_bytes
            body = await bodies.read(incoming.payload, length, limit, reservation, self.body_idle_s)
            upload_s = self._clock() - started
            parsed = _parsed_here(body, incoming.path)
            if parsed is None:
                async with self._large:
                    parsed = await asyncio.to_thread(parse_chat, body, incoming.path)
            done.model, done.streamed = self._recorded(parsed.model), parsed.stream
            if not key.allows(parsed.model):
                raise model_not_found(parsed.model)
        except PharosError as fault:
            done.stages.append(("admission", _admission(fault)))
            raise
        return Call(
            path=incoming.path,
            query=head.query_to_engine(incoming.query) if incoming.query else "",
            headers=incoming.raw_headers,
            key=key,
            parsed=parsed,
            body=body,
            reservation=reservation,
            client=incoming.client,
            answer=incoming.answer,
            done=done,
            arrived_at=incoming.arrived_at,
            upload_s=upload_s,
        )

    def _recorded(self, model: str) -> str:
        """A model name as records keep it: short when it is any text of a client."""
        if len(model) <= LONGEST_UNKNOWN or self._fleet.knows(model):
            return model
        return model[:LONGEST_UNKNOWN]

    def _check_head(self, incoming: Incoming) -> int | None:
        """Refuse what need not be read. The stated length of the body, `None` when it is chunked."""
        headers = incoming.headers
        coding = headers.get(hdrs.CONTENT_ENCODING)
        if coding is not None and coding.strip().lower() not in ("identity", ""):
            raise ClientFault(415, "unsupported_encoding", "compressed request bodies are not supported")
        expectation = headers.get(hdrs.EXPECT)
        if expectation is not None and expectation.strip().lower() != "100-continue":
            raise ClientFault(417, "expectation_failed", "the only expectation that can be met is 100-continue")
        if incoming.query and "model" in _query_names(incoming.query):
            raise ClientFault(400, "duplicate_model", "name the model in the body only")
        stated = headers.get(hdrs.CONTENT_LENGTH)
        if stated is None:
            return None
        try:
            length = int(stated)
        except ValueError:
            raise ClientFault(400, "bad_framing", "the stated length of the body is no number") from None
        if length > self._settings.body_bytes:
            raise body_too_large(self._settings.body_bytes)
        return length


def _parsed_here(body: bytes, path: str) -> ChatRequest | None:
    """What the body says; `None` when reading it takes so long that a worker thread must."""
    if needs_thread(body):
        return None
    try:
        return parse_chat(body, path, in_loop=True)
    except SlowBodyError:
        return None


def _query_names(query: str) -> set[str]:
    """Names of the fields of a query string, in lower case."""
    return {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}


def _admission(fault: PharosError) -> str:
    if fault.code in ("not_ready", "buffers_full"):
        return fault.code
    return ADMISSION.get(fault.status, "bad_request")


def _refusal(refusal: Refusal, model: str) -> PharosError:
    """The ledger's refusal as the client gets it."""
    if refusal.outcome == "unknown_model":
        return model_not_found(model)
    if refusal.outcome == "queue_full":
        return rate_limited(refusal.text, refusal.retry_after_s)
    return unavailable(refusal.text, refusal.retry_after_s)
