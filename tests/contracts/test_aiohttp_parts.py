"""The inner parts of aiohttp that the listener stands on: when one of these fails, read client.py again."""

import inspect

import aiohttp
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from aiohttp.web_server import Server

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
    finish = inspect.getsource(RequestHandler.finish_response)
    assert "request._finish()" in finish
    assert "await prepare_meth(request)" in finish
    assert "await resp.write_eof()" in finish


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


def test_the_server_s_call_makes_a_connection_from_its_options() -> None:
    assert "RequestHandler(self, loop=self._loop, **self._kwargs)" in inspect.getsource(Server.__call__)


def test_a_body_s_reader_tells_come_from_read() -> None:
    assert "self._eof and not self._buffer" in inspect.getsource(StreamReader.at_eof)
    assert inspect.getsource(StreamReader.is_eof).strip().endswith("return self._eof")
