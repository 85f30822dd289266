"""Who is at fault when a request fails, and how its client is told, in the shape of the protocol it speaks.

Forbidden here: I/O, logging; echoing a key, a header or a prompt into a message.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

Shape = Literal["openai", "anthropic", "ollama"]

OPENAI_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""Status -> `type` of an OpenAI error; any other 4xx is the request's fault, a 5xx the side that serves it."""

ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
"""Status -> `type` of an Anthropic error; any other 4xx is `invalid_request_error`, a 5xx `api_error`."""

_SHOWN = 100


class PharosError(Exception):
    """A request that cannot be served. Only its three kinds are raised."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        type: str | None = None,  # noqa: A002  # the name in the protocol
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.code = code
        """For programs; OpenAI's word where it has one, since SDKs read it."""
        self.type = type if type is not None else _openai_type(status)
        self.message = message
        """For people: what happened, and what to do next."""
        self.param = param
        """The field of the request that is wrong."""
        self.retry_after_s = retry_after_s
        """Whole seconds after which another try makes sense, for `Retry-After`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status} {self.code}>"


class ClientFault(PharosError):  # noqa: N818  # named after the side at fault
    """The request is wrong: sending it again as it is will fail again."""


class EngineFault(PharosError):  # noqa: N818  # named after the side at fault
    """The engine failed or is not there."""


class PharosFault(PharosError):  # noqa: N818  # named after the side at fault
    """Pharos cannot take it: not ready, full, or broken."""


def invalid_json(message: str) -> ClientFault:
    """400: the body cannot be read."""
    return ClientFault(400, "invalid_json", message)


def invalid_value(param: str, message: str) -> ClientFault:
    """400: a field of the body is wrong."""
    return ClientFault(400, "invalid_value", message, param=param)


def missing_parameter(param: str) -> ClientFault:
    """400: a field of the body is missing."""
    return ClientFault(400, "missing_required_parameter", f"The request has no `{param}`: add it.", param=param)


def missing_key() -> ClientFault:
    """401: no key was presented."""
    return ClientFault(
        401,
        "invalid_api_key",
        "No API key was sent: send yours as `Authorization: Bearer KEY`, `x-api-key` or `api-key`.",
    )


def invalid_key() -> ClientFault:
    """401: the presented key is not one of ours."""
    return ClientFault(
        401, "invalid_api_key", "This API key is not known here: ask whoever runs this Pharos for a valid one."
    )


def admin_only(page: str, otherwise: str = "") -> ClientFault:
    """403: the key is valid, but not an admin's. `otherwise`: a sentence on how else the page is to be had."""
    message = f"{page} needs a key with `admin: true`, sent in a header: `Authorization: Bearer KEY`."
    return ClientFault(403, "admin_required", f"{message} {otherwise}".rstrip())


def model_not_found(model: str, unread: Sequence[str] = ()) -> ClientFault:
    """404: no backend lists the model, or the key may not use it, which looks alike, so that no name leaks.

    `unread`: backends that never told what they have; a key is turned away whatever the names are, without them.
    """
    text = f"The model `{shown(model)}` does not exist here: see GET /v1/models."
    if unread:
        text += f" Not known is what these have, which never told their models: {', '.join(map(shown, unread))}."
    return ClientFault(404, "model_not_found", text, param="model")


def unknown_route(method: str, path: str, meant: str | None = None) -> ClientFault:
    """404: Pharos has no such path. `meant`: the one that the client probably wants."""
    text = f"Pharos does not serve {shown(method)} {shown(path)}."
    if meant is not None:
        text += f" Did you mean {shown(meant)}? Then the client's base URL has to change."
    return ClientFault(404, "unknown_url", text)


def body_too_large(limit_bytes: int) -> ClientFault:
    """413: the body is over `limits.body`."""
    return ClientFault(
        413, "request_too_large", f"The request body is over {limit_bytes} bytes: shorten it, or raise `limits.body`."
    )


def does_not_fit(message: str) -> ClientFault:
    """400: it is longer, or needs more, than any engine of its model takes."""
    return ClientFault(400, "context_length_exceeded" if "context holds" in message else "unsupported_ability", message)


def rate_limited(message: str, retry_after_s: int | None) -> PharosFault:
    """429: the queue is full."""
    return PharosFault(429, "rate_limit_exceeded", message, retry_after_s=retry_after_s)


def too_many_requests(limit: int, retry_after_s: int) -> PharosFault:
    """429: the key has sent as many requests within a minute as it may."""
    return PharosFault(
        429,
        "rate_limit_exceeded",
        f"This key may send {limit} requests in 60 s, and has: try again in {retry_after_s} s.",
        retry_after_s=retry_after_s,
    )


def quota_used_up(limit: int, retry_after_s: int) -> PharosFault:
    """429: the key has used its tokens of the day."""
    hours, minutes = divmod(-(-retry_after_s // 60), 60)
    return PharosFault(
        429,
        "insufficient_quota",
        f"This key has used its {limit} tokens of this day: try again in {hours} h {minutes} min, when the next one "
        "begins, or ask whoever runs this Pharos for more.",
        type="insufficient_quota",
        retry_after_s=retry_after_s,
    )


def unavailable(message: str, retry_after_s: int | None) -> PharosFault:
    """503: nothing can take the request now."""
    return PharosFault(503, "service_unavailable", message, retry_after_s=retry_after_s)


def engine_failed(message: str) -> EngineFault:
    """502: the engine gave no reply that can be passed on."""
    return EngineFault(502, "bad_gateway", message)


def engine_late(message: str) -> EngineFault:
    """504: the engine did not begin to reply within the configured deadline."""
    return EngineFault(504, "gateway_timeout", message)


def route_not_served(route: str, backends: Sequence[str]) -> ClientFault:
    """400: nobody who has the model serves the route. Clients read a 404 as an unknown model."""
    names = ", ".join(map(shown, backends))
    verb = "does" if len(backends) == 1 else "do"
    return ClientFault(
        400,
        "route_not_served",
        f"{names} {verb} not serve {route} for this model: use another route, or an engine that has it.",
    )


def internal_error() -> PharosFault:
    """500: a fault of Pharos itself; the log has what the client must not see."""
    return PharosFault(500, "internal_error", "Pharos failed on this request: see its log, and try again.")


def shown(text: str) -> str:
    """Make text of a client fit for a message: one line, cut, printable, encodable."""
    kept = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:_SHOWN])
    return kept if len(text) <= _SHOWN else kept + "…"


def shape_for(path: str, headers: Mapping[str, str]) -> Shape:
    """Tell which protocol a client speaks, by the path it asks for; `/v1/models` is shared, there its header tells."""
    path = path.partition("?")[0]
    if path == "/api" or path.startswith("/api/"):
        return "ollama"
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return "anthropic"
    if (path == "/v1/models" or path.startswith("/v1/models/")) and "anthropic-version" in headers:
        return "anthropic"
    return "openai"


def render(fault: PharosError, shape: Shape) -> bytes:
    """Write the JSON body of an error reply."""
    message = fault.message.encode("utf-8", "replace").decode("utf-8")
    if shape == "ollama":
        return msgspec.json.encode({"error": message})
    if shape == "anthropic":
        return msgspec.json.encode(
            {"type": "error", "error": {"type": _anthropic_type(fault.status), "message": message}}
        )
    error = {"message": message, "type": fault.type, "param": fault.param, "code": fault.code}
    return msgspec.json.encode({"error": error})


def _openai_type(status: int) -> str:
    return OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004


def _anthropic_type(status: int) -> str:
    return ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
