"""Lets a request in: its key, its limits, its body, its model. What comes out is a call that wants an engine.

Every fault is raised before an engine is asked, and noted as a decision. Forbidden here: choosing an engine.
"""

import asyncio
from collections.abc import Collection, Sequence

from aiohttp import hdrs

from pharos.clock import Clock
from pharos.core.fleet import Fleet
from pharos.proxy import body as bodies
from pharos.proxy import encoding, head, reading
from pharos.proxy import query as queries
from pharos.proxy.auth import Key, Keyring, all_presented
from pharos.proxy.call import Call
from pharos.proxy.done import Done
from pharos.proxy.errors import ClientFault, PharosError, body_too_large, model_not_found, shown
from pharos.proxy.incoming import Incoming, State, check_ready
from pharos.proxy.multipart import parse_multipart
from pharos.proxy.parse import ChatRequest, needs_thread
from pharos.proxy.quotas import Quotas
from pharos.proxy.responses import Responses
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import RESPONSE, Route

ADMISSION = {401: "unauthorized", 408: "body_stalled", 413: "too_large", 404: "model_not_allowed"}
TOO_MANY = 429
CODING = hdrs.CONTENT_ENCODING
LONGEST_UNKNOWN = 128
"""Characters of a model name that are kept in records when it is none of ours."""
LARGE_AT_ONCE = 2
"""Large bodies that are parsed at once: each thread that computes makes the loop wait its turn (5 ms)."""


class Door:
    """What stands between a request and the engines."""

    def __init__(
        self,
        *,
        state: State,
        settings: ProxySettings,
        fleet: Fleet,
        keyring: Keyring,
        responses: Responses,
        clock: Clock,
        quotas: Quotas | None = None,
    ) -> None:
        """`quotas`: what keeps keys within theirs; `None`: nothing does."""
        self._quotas = quotas
        self._state = state
        self._settings = settings
        self._fleet = fleet
        self._keyring = keyring
        self._responses = responses
        self._clock = clock
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._reader = reading.Reader(fleet, reading.memory())
        self.uploads = bodies.Uploads()
        self.body_idle_s = bodies.IDLE_S

    def adopt(self, settings: ProxySettings) -> None:
        """Go by these from the next request on."""
        self._settings = settings

    def __repr__(self) -> str:
        return f"<Door {self._keyring!r}>"

    async def accept(self, route: Route, incoming: Incoming, done: Done, reservation: bodies.Reservation) -> Call:
        """Let a request with a body in. Raises the fault that the client shall see."""
        try:
            check_ready(self._state)
            headers = incoming.headers
            key = self._keyring.require(headers)
            done.key = key.name
            codings = encoding.codings(headers.getall(CODING)) if CODING in headers else ()
            length = self._check_head(route, incoming, key)
            if incoming.http11 and hdrs.EXPECT in incoming.headers and not incoming.payload.is_eof():
                incoming.answer.transport.write(head.CONTINUE)
            limit, payload, upload_s = self._settings.body_bytes, incoming.payload, 0.0
            if payload.is_eof() and not payload.at_eof():
                body = bodies.read_at_once(payload, limit, reservation)
            else:
                started = self._clock()
                body = await bodies.read(payload, length, limit, reservation, self.uploads, self.body_idle_s)
                upload_s = self._clock() - started
            if codings:
                body = await self._unpacked(body, codings, reservation)
            if route.body == "multipart":
                form = await self._form(route, incoming, body)
                said = self._reader.read_prompt(form, body, route, key)
            else:
                quick = self._reader.read_here(body, route, key)
                said = quick if quick is not None else await self._apart(body, route, key)
            parsed, model = said.parsed, said.parsed.model
            done.model, done.streamed, done.chain = self._recorded(model), parsed.stream, said.chain
            if not key.allows(model):
                raise model_not_found(said.named)
            only = None
            if route.kinds is not None:
                only = self._of_kinds(model, route.kinds)
            elif parsed.previous_response is not None:
                only = self._knowing(parsed, key)
            if key.quota is not None and route.takes_slot and self._quotas is not None:
                self._quotas.admit(key.name, key.quota, incoming.answer, route.shape)
        except PharosError as fault:
            done.stages.append(("admission", _admission(fault)))
            raise
        return Call(
            route=route,
            path=incoming.path,
            query=_to_engine(incoming),
            headers=incoming.raw_headers,
            key=key,
            parsed=parsed,
            named=said.named,
            body=body,
            reservation=reservation,
            client=incoming.client,
            answer=incoming.answer,
            done=done,
            arrived_at=incoming.arrived_at,
            upload_s=upload_s,
            prompt_bytes=said.prompt_bytes,
            chain=said.chain,
            needs=said.needs,
            only=only,
        )

    def accept_by_id(
        self, route: Route, incoming: Incoming, response_id: str, done: Done, reservation: bodies.Reservation
    ) -> Call:
        """Let a request in that names a response in its path. Raises the fault that the client shall see."""
        try:
            check_ready(self._state)
            key = self._keyring.require(incoming.headers)
            done.key = key.name
            origin = self._responses.origin(response_id, key.name, self._fleet)
            done.model = origin.model
            if not key.allows(origin.model):
                raise model_not_found(origin.model)
            query = _to_engine(incoming)
        except PharosError as fault:
            done.stages.append(("admission", _admission(fault)))
            raise
        if not incoming.payload.is_eof():
            incoming.answer.close_after()  # such requests have no body
        return Call(
            route=route,
            path=incoming.path,
            method="GET" if incoming.method == "HEAD" else incoming.method,
            query=query,
            headers=incoming.raw_headers,
            key=key,
            parsed=ChatRequest.empty(origin.model),
            named=origin.model,
            body=b"",
            reservation=reservation,
            client=incoming.client,
            answer=incoming.answer,
            done=done,
            arrived_at=incoming.arrived_at,
            upload_s=0.0,
            only=frozenset({self._fleet.backends[origin.backend].targets[origin.model].id}),
        )

    def is_deleted(self, call: Call, response_id: str) -> None:
        """Forget a response that its engine has deleted."""
        if call.route is RESPONSE and call.method == "DELETE" and call.answer.status < 300:  # noqa: PLR2004 - HTTP
            self._responses.forget(response_id)

    # --- what the body says

    async def _unpacked(self, packed: bytes, codings: Sequence[str], reservation: bodies.Reservation) -> bytes:
        """The body as it was before it was compressed. Raises the fault that the client shall see."""
        limit = self._settings.body_bytes
        body = encoding.unpack_at_once(packed, codings, limit)
        if body is None:
            async with self._large:
                body = await encoding.unpack(packed, codings, limit, reservation)
        reservation.settle(len(body))
        return body

    async def _form(self, route: Route, incoming: Incoming, body: bytes) -> ChatRequest:
        content_type = incoming.headers.get(hdrs.CONTENT_TYPE, "")
        if needs_thread(body):
            async with self._large:
                return await asyncio.to_thread(parse_multipart, body, route, content_type)
        return parse_multipart(body, route, content_type)

    async def _apart(self, body: bytes, route: Route, key: Key) -> reading.Read:
        """Read a JSON body and its prompt in a worker thread, beside the streams."""
        async with self._large:
            return await asyncio.to_thread(self._reader.read, body, route, key)

    def _recorded(self, model: str) -> str:
        """A model name as records keep it: short when it is any text of a client."""
        if len(model) <= LONGEST_UNKNOWN or self._fleet.knows(model):
            return model
        return model[:LONGEST_UNKNOWN]

    # --- who may serve it

    def _of_kinds(self, model: str, kinds: Collection[str]) -> frozenset[int] | None:
        """Targets of a model on backends of these kinds, up or not; `None` when nobody has the model, as is told later.

        Raises ClientFault when only other kinds have it.
        """
        backends = [target.backend for target in self._fleet.targets_listed(model)]
        fitting = [b for b in backends if (b.plan.kind if b.plan is not None else b.spec.kind) in kinds]
        if backends and not fitting:
            names = " or ".join(sorted(kinds))
            raise ClientFault(
                400,
                "route_not_served",
                f"No backend of kind {names} has the model `{shown(model)}`: the others speak OpenAI's protocol, "
                "ask for it at /v1/chat/completions.",
            )
        return frozenset(b.targets[model].id for b in fitting) or None

    def _knowing(self, parsed: ChatRequest, key: Key) -> frozenset[int]:
        """The target of this model on the backend that made the response which this request goes on from."""
        origin = self._responses.origin(str(parsed.previous_response), key.name, self._fleet)
        target = self._fleet.backends[origin.backend].targets.get(parsed.model)
        if target is None:
            raise ClientFault(
                400,
                "invalid_value",
                f"The response `{shown(str(parsed.previous_response))}` is kept by a backend without the model "
                f"`{shown(parsed.model)}`: name `{shown(origin.model)}`, or send the whole conversation as `input`.",
                param="model",
            )
        return frozenset({target.id})

    # --- what the head says

    def _check_head(self, route: Route, incoming: Incoming, key: Key) -> int | None:
        """Refuse what need not be read. The stated length of the body, `None` when it is chunked."""
        headers = incoming.headers
        expectation = headers.get(hdrs.EXPECT)
        if expectation is not None and expectation.strip().lower() != "100-continue":
            raise ClientFault(417, "expectation_failed", "the only expectation that can be met is 100-continue")
        if incoming.query:
            queries.refuse_model(incoming.query, route.model_names)
        if key.quota is not None and self._quotas is not None and route.takes_slot and not incoming.payload.is_eof():
            self._quotas.look(key.name, key.quota, incoming.answer, route.shape)
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


def _to_engine(incoming: Incoming) -> str:
    return queries.to_engine(incoming.query, all_presented(incoming.headers)) if incoming.query else ""


def _admission(fault: PharosError) -> str:
    if fault.code in ("not_ready", "buffers_full"):
        return fault.code
    if fault.code in ("response_not_found", "response_lost"):
        return "bad_request"
    if fault.status == TOO_MANY:
        return "rate_limited" if fault.code == "rate_limit_exceeded" else "quota_exceeded"
    return ADMISSION.get(fault.status, "bad_request")
