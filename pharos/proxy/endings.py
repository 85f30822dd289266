"""How a stream of each protocol is told that it broke off: whole events or lines that no client takes for success.

Forbidden here: what the client already has (the taps begin these on a fresh event or line); I/O; clocks.
"""

from typing import Final

import msgspec

from pharos.proxy.record import Begun, Record

BEHIND_ALL: Final = 2**31 - 1
"""The number of our last event in a stream of numbered ones. Theirs are not counted on the way, and only the order of
numbers means something."""

_LONGEST_NAME: Final = 256


def chat_failure(message: str, code: str, begun: Begun | None) -> bytes:  # noqa: ARG001  # one signature for all
    """Build the event with which an OpenAI stream of chunks reports a failure. No `[DONE]` may follow."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


def response_begun(record: Record) -> Begun | None:
    """Take from `response.created` what makes up the same response in `response.failed`."""
    response = record.get("response")
    if record.get("type") != "response.created" or not isinstance(response, dict):
        return None
    begun: dict[str, object] = {}
    for name in ("id", "model"):
        value = response.get(name)
        if isinstance(value, str) and len(value) <= _LONGEST_NAME:
            begun[name] = value.encode("utf-8", "replace").decode("utf-8")
    if type(at := response.get("created_at")) in (int, float):
        begun["created_at"] = at
    begun["is_numbered"] = type(record.get("sequence_number")) is int
    return begun if "id" in begun else None


def response_failure(message: str, code: str, begun: Begun | None) -> bytes:
    """Build the last event of a stream of `/v1/responses`: `response.failed`, or `error` where no response was begun.

    What `response.created` left out stays left out: llama.cpp names neither the model nor the time there.
    """
    if begun is None:
        event = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
        return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
    response = {
        "id": begun["id"],
        "object": "response",
        "status": "failed",
        "error": {"code": "server_error", "message": message},
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    } | {name: begun[name] for name in ("model", "created_at") if name in begun}
    failed: dict[str, object] = {"type": "response.failed", "response": response}
    if begun["is_numbered"]:
        failed["sequence_number"] = BEHIND_ALL
    return b"event: response.failed\ndata: " + msgspec.json.encode(failed) + b"\n\n"


def message_failure(message: str, code: str, begun: Begun | None) -> bytes:  # noqa: ARG001  # as above
    """Build the event with which an Anthropic stream reports a failure."""
    error = {"type": "error", "error": {"type": "api_error", "message": message}}
    return b"event: error\ndata: " + msgspec.json.encode(error) + b"\n\n"


def ollama_failure(message: str, code: str, begun: Begun | None) -> bytes:  # noqa: ARG001  # as above
    """Build the line with which one of Ollama's own streams reports a failure."""
    return msgspec.json.encode({"error": message}) + b"\n"
