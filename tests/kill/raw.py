"""Reads a reply without an SDK and looks at its bytes: they begin as the engine's, and end as the protocol wants."""

import asyncio
import json
import re
from typing import Final

from tests.kill.cases import Case
from tests.kill.readers import Read
from tests.kill.replies import Wire, request
from tests.proxy.harness import RawClient, Reply

SUCCESS: Final = re.compile(rb'\[DONE\]|message_stop|response\.completed|response\.incomplete|"done": ?true')
PLAIN_ERROR: Final = b"event: error\n"
"""How a stream of responses fails before the engine has told its id."""
LATE: Final = 504
REFUSALS: Final = (502, 503, LATE)
OK: Final = 200


async def read_raw(client: RawClient, case: Case, model: str, *, version: str) -> Read:
    """Ask and read, by HTTP/1.1 or 1.0: an end of the connection is the only end that the latter knows."""
    reply = case.reply
    body = request(reply.protocol, model, streamed=reply.streamed, wants_usage=case.wants_usage)
    client.post(body, "Content-Type: application/json\r\n", path=reply.kind.path, version=version)
    try:
        got = await client.reply()
    except (ConnectionError, asyncio.IncompleteReadError):
        return Read("raised", "cut ahead of the head")
    finally:
        client.close()
    return judge(got, case)


def judge(got: Reply, case: Case) -> Read:
    """What a client without an SDK learns; a fault in the bytes is the outcome `wrong`."""
    whole, at = case.wire, case.at
    if got.status != OK:
        return _refused(got, case)
    reply = whole.reply
    is_stripped = not case.wants_usage and case.kind != "llamacpp"  # which is never asked for it, and tells it anyway
    expected = reply.without_usage if is_stripped else reply.body
    if got.is_whole:
        return _whole(got.body, expected, case)
    if not reply.streamed or not got.header("transfer-encoding"):  # where chunks are none, nothing can be added
        is_prefix = expected.startswith(got.body) and len(got.body) <= len(whole.body_until(at))
        return Read("raised", "cut") if is_prefix else Read("wrong", "other bytes than the engine's")
    return _cut_stream(got.body, expected, whole, at)


def _whole(body: bytes, expected: bytes, case: Case) -> Read:
    """Of a reply whose framing has ended as it should."""
    if not case.streamed:
        try:
            json.loads(body)
        except ValueError:
            return Read("raised", "half a document") if case.way == "orderly" else Read("answer", "")
    if case.at < case.enough:
        return Read("answer", "")  # a short success, whatever its bytes
    sent = case.wire.body_until(case.at)
    is_begun = expected.startswith(body.rstrip()) and len(body) <= len(expected)
    is_even = not case.streamed or body.endswith(b"\n") or body.rstrip() == expected.rstrip()
    if not is_begun or not is_even or (sent == case.reply.body and body != expected):
        return Read("wrong", "whole, but other bytes than the engine's, or half a line")
    return Read("answer", "")


def _refused(got: Reply, case: Case) -> Read:
    whole = case.wire
    is_late = (
        case.way == "silence" and got.status == LATE
    )  # the whole loop may stand still for longer than the deadline
    if got.status not in REFUSALS or (case.at >= whole.head and not is_late):
        return Read("wrong", f"status {got.status} after {case.at - whole.head} bytes of the body")
    if not got.is_whole:
        return Read("wrong", "an error of Pharos that is not whole")
    error = json.loads(got.body)
    shapes = {"messages": lambda: error["type"] == "error" and error["error"]["message"]}
    shape = shapes.get(whole.reply.protocol, lambda: error["error"]["message"])
    if whole.reply.kind.is_ollama:
        shape = lambda: isinstance(error["error"], str)  # noqa: E731
    return Read("raised", str(got.status)) if shape() else Read("wrong", "an error in another protocol's shape")


def _cut_stream(body: bytes, expected: bytes, whole: Wire, at: int) -> Read:
    kind = whole.reply.kind
    place = max(body.rfind(kind.error), body.rfind(PLAIN_ERROR) if whole.reply.protocol == "responses" else -1)
    if place < 0:
        if body.rstrip() == expected.rstrip():
            return Read("raised", "cut behind the end")
        return Read("wrong", "cut without a word")
    given, told = body[:place], body[place:]
    end = b"\n" if kind.is_ollama else b"\n\n"
    kept = given.rstrip(b"\n")
    if kept and not given.endswith(end):
        return Read("wrong", "the error is glued to half an event")
    if not expected.startswith(kept) or len(kept) > len(whole.body_until(at)):
        return Read("wrong", "other bytes than the engine's ahead of the error")
    if kept and not expected.startswith(end, len(kept)) and len(kept) != len(expected.rstrip(b"\n")):
        return Read("wrong", "half an event ahead of the error")
    if not told.endswith(end) or told.rstrip(b"\n").count(end):
        return Read("wrong", "the error is not one whole event")
    if SUCCESS.search(told):
        return Read("wrong", "a false success")
    json.loads(told[told.index(b"{") :])
    return Read("error event", "")
