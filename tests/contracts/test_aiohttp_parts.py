"""The inner parts of aiohttp that the listener stands on: when one of these fails, read client.py again."""

import asyncio
import inspect
from typing import TYPE_CHECKING, cast

import aiohttp
import pytest
from aiohttp import HttpVersion10, HttpVersion11
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from aiohttp.web_server import Server

if TYPE_CHECKING:
    from aiohttp.base_protocol import BaseProtocol

INNER = (
    "_messages", "_request_count", "_force_close", "_close", "_keepalive", "_keepalive_handle", "_keepalive_timeout",
    "_next_keepalive_close_time", "_waiter", "_handler_waiter", "_request_in_progress", "_msg_queue_resume_size",
    "_parser", "_upgraded", "_buffer_paused", "_reading_paused",
)  # fmt: skip


def test_the_release_is_the_one_that_was_read() -> None:
    assert aiohttp.__version__.startswith("3.14.")


def test_a_connection_keeps_its_state_under_the_names_that_we_read() -> None:
    slots = {name for part in RequestHandler.__mro__ for name in getattr(part, "__slots__", ())}
    assert set(INNER) | {"_paused", "_drain_waiter", "transport"} <= slots


def test_what_we_override_is_called_as_we_expect() -> None:
    made = inspect.getsource(RequestHandler.connection_made)
    assert "self.start()" in made  # ours does nothing: requests begin in `data_received`
    assert "call_at(close_time, self._process_keepalive)" in made
    idle = inspect.getsource(RequestHandler._process_keepalive)
    assert "self._next_keepalive_close_time" in idle
    assert "if self._waiter and not self._waiter.done():" in idle  # ours asks whether a request is in work


def test_nothing_but_its_own_task_waits_for_requests() -> None:
    received = inspect.getsource(RequestHandler.data_received)
    assert "self._messages.append((msg, payload))" in received
    assert "if messages and waiter is not None" in received  # without that task there is no waiter to wake
    for closing in (RequestHandler.close, RequestHandler.force_close):
        assert "if self._waiter:" in inspect.getsource(closing)
    start = inspect.getsource(RequestHandler.start)
    assert "self._parser.message_consumed()" in start  # what we do instead when we take a request
    assert "len(self._messages) <= self._msg_queue_resume_size" in start
    assert "self._resume_reading_if_drained()" in start
    shutdown = inspect.getsource(RequestHandler.shutdown)
    assert "if self._request_in_progress:" in shutdown
    assert "await self._handler_waiter" in shutdown


def test_a_request_has_the_parts_that_we_read() -> None:
    assert {"method", "path", "version", "headers", "raw_headers", "should_close", "url"} <= set(dir(RawRequestMessage))
    assert _ErrInfo(status=400, exc=ValueError(), message="").exc is not None


class Reading:
    """What a parser asks of its connection."""

    def pause_reading(self) -> None:
        raise NotImplementedError

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        del resume_parser


async def parsed(data: bytes) -> list[RawRequestMessage]:
    parser = HttpRequestParser(cast("BaseProtocol", Reading()), asyncio.get_running_loop(), 2**16)
    return [message for message, _ in parser.feed_data(data)[0]]


@pytest.mark.parametrize(("minor", "version"), [(b"1", HttpVersion11), (b"0", HttpVersion10)])
async def test_versions_are_told_by_identity(minor: bytes, version: object) -> None:
    (message,) = await parsed(b"GET / HTTP/1.%b\r\nHost: x\r\n\r\n" % minor)
    assert message.version is version


async def test_trailing_py_is_still_needed_since_a_trailer_becomes_a_header_of_the_next_request() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Evil: 1\r\n\r\n"
    _, second = await parsed(chunked + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert second.raw_headers == ((b"X-Evil", b"1"), (b"Host", b"x"))


async def test_look_behind_is_still_needed_since_what_follows_a_request_to_switch_is_dropped() -> None:
    switch = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert len(await parsed(switch + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")) == 1


def test_the_server_s_call_makes_a_connection_from_its_options() -> None:
    assert "RequestHandler(self, loop=self._loop, **self._kwargs)" in inspect.getsource(Server.__call__)


def test_a_body_s_reader_tells_come_from_read() -> None:
    assert "self._eof and not self._buffer" in inspect.getsource(StreamReader.at_eof)
    assert inspect.getsource(StreamReader.is_eof).strip().endswith("return self._eof")
