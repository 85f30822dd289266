"""Every request that a client was recorded to send, through the whole proxy to an engine of each fitting kind."""

from pathlib import Path

import pytest

from pharos.proxy import ollama
from pharos.proxy.auth import Key
from pharos.proxy.table import ROUTES
from tests.clients.replies import answer_of, answering, check_error, check_whole, nobody
from tests.clients.requests import KEY, UNKNOWN, Request, files, name_of, read
from tests.proxy.harness import Front, Reply, front

KINDS = ("llamacpp", "ollama")
ASKED = b'"stream_options":{"include_usage":true}'
FILES = files()


def kinds_of(request: Request) -> tuple[str, ...]:
    return ("ollama",) if request.route.startswith("/api/") else KINDS


def is_served(request: Request) -> bool:
    """Whether an engine shall see it."""
    return request.route in ROUTES and request.model != UNKNOWN and not request.has_wrong_key


CASES = [(path, kind) for path in FILES for kind in kinds_of(read(path))]
IDS = [f"{name_of(path)}-{kind}" for path, kind in CASES]
SERVED = [(path, kind) for path, kind in CASES if is_served(read(path))]
OTHER_WAY = [(path, kind) for path, kind in SERVED if ROUTES[read(path).route].streams != "never"]


async def send(pharos: Front, request: Request) -> Reply:
    client = await pharos.client()
    client.send(request.raw())
    return await client.reply(no_body=request.method == "HEAD")


async def is_passed(request: Request, kind: str) -> None:
    """Send one, and look at what the engine got and what came back."""
    keys = {KEY: Key("client")} if request.has_key else None
    answer = answer_of(kind, request.route, request.asked, streams=request.streams)
    async with front(answering(answer), nobody, kind=kind, keys=keys, models=(request.model,)) as (pharos, one, _):
        pharos.bring_up("b", ("another",))
        reply = await send(pharos, request)
        done = await pharos.finished()
        assert (reply.status, reply.is_whole, done.model) == (200, True, request.model)
        (turn,) = one.turns
        body = request.body.encode()
        if ("usage", "pharos_asked") in done.stages:
            end = body.rindex(b"}")
            assert turn.body == body[:end] + b"," + ASKED + body[end:]
        else:
            assert turn.body == body
        assert turn.line == f"{request.method} {request.path} HTTP/1.1"
        assert KEY.encode() not in turn.head
        wants_usage = bool((request.asked.get("stream_options") or {}).get("include_usage"))
        check_whole(request.route, reply.body, streams=request.streams, wants_usage=wants_usage)
        assert pharos.inflight == 0


def test_every_client_that_ran_is_replayed() -> None:
    clients = {path.parts[-3] for path in FILES}
    assert len(clients) >= 9
    assert {path.parts[-3] for path, _ in SERVED} == clients


@pytest.mark.parametrize(("path", "kind"), SERVED, ids=[f"{name_of(path)}-{kind}" for path, kind in SERVED])
async def test_a_request_reaches_an_engine_as_it_was_sent_and_its_reply_is_whole(path: Path, kind: str) -> None:
    await is_passed(read(path), kind)


@pytest.mark.parametrize(("path", "kind"), OTHER_WAY, ids=[f"{name_of(path)}-{kind}" for path, kind in OTHER_WAY])
async def test_so_does_the_same_request_streamed_instead_of_whole_and_the_other_way_round(
    path: Path, kind: str
) -> None:
    await is_passed(read(path).other_way(), kind)


REFUSED = [path for path in FILES if read(path).has_wrong_key or read(path).model == UNKNOWN]


@pytest.mark.parametrize("path", [path for path in REFUSED if read(path).route in ROUTES], ids=name_of)
async def test_what_is_wrong_is_told_in_the_client_s_protocol_and_no_engine_is_asked(path: Path) -> None:
    request = read(path)
    keys = {KEY: Key("client")} if request.has_key or request.has_wrong_key else None
    async with front(nobody, kind="ollama", keys=keys, models=("another",)) as (pharos, _):
        reply = await send(pharos, request)
        assert reply.status == (401 if request.has_wrong_key else 404)
        said = check_error(request.route, request.route.startswith("/v1/messages"), reply.body)
        assert ("key" if request.has_wrong_key else UNKNOWN) in said


LISTED = [path for path in FILES if read(path).method in ("GET", "HEAD")]


@pytest.mark.parametrize("path", LISTED, ids=name_of)
async def test_lists_and_greetings_are_answered_in_the_client_s_shape(path: Path) -> None:
    request = read(path)
    keys = {KEY: Key("client")} if request.has_key else None
    async with front(nobody, kind="ollama", keys=keys, models=(request.model or "tiny",)) as (pharos, _):
        reply = await send(pharos, request)
        assert reply.status == 200
        if request.route in ("/v1/models", "/api/tags", "/api/ps"):
            told = reply.json()
            is_anthropic = any(line.startswith("anthropic-version:") for line in request.headers)
            assert isinstance(told["models" if request.route.startswith("/api/") else "data"], list)
            assert ("has_more" in told) is is_anthropic
        elif request.method == "GET" and request.model:
            assert reply.json()["id"] == request.model


MANAGES = [path for path in FILES if ollama.manages_models(read(path).route)]


@pytest.mark.parametrize("path", MANAGES, ids=name_of)
async def test_what_pharos_does_not_manage_is_a_501_that_says_so(path: Path) -> None:
    request = read(path)
    keys = {KEY: Key("client")} if request.has_key else None
    async with front(nobody, kind="ollama", keys=keys, models=("tiny",)) as (pharos, _):
        reply = await send(pharos, request)
        assert reply.status == 501
        assert "Pharos" in check_error(request.route, False, reply.body)  # noqa: FBT003 - as its name says


def test_every_request_is_in_one_of_these_tests() -> None:
    seen = {path for path, _ in SERVED} | set(REFUSED) | set(LISTED) | set(MANAGES)
    assert seen == set(FILES)
