"""The inner parts of aiohttp that the listener stands on: when one of these fails, read client.py again."""

import inspect

import aiohttp
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

INNER = ("_waiter", "_messages", "_request_count", "_force_close", "_close", "_keepalive", "_task_handler")


def test_the_release_is_the_one_that_was_read() -> None:
    assert aiohttp.__version__.startswith("3.14.")


def test_a_connection_keeps_its_state_under_the_names_that_we_read() -> None:
    slots = {name for part in RequestHandler.__mro__ for name in getattr(part, "__slots__", ())}
    assert set(INNER) | {"_paused", "_drain_waiter", "transport"} <= slots


def test_what_we_override_is_called_as_we_expect() -> None:
    assert list(inspect.signature(RequestHandler.handle_error).parameters) == [
        "self",
        "request",
        "status",
        "exc",
        "message",
    ]
    start = inspect.getsource(RequestHandler.start)
    assert "resp.keep_alive" in start
    assert "self._waiter = loop.create_future()" in start
    finish = inspect.getsource(RequestHandler.finish_response)
    assert "await prepare_meth(request)" in finish
    assert "await resp.write_eof()" in finish
    lost = inspect.getsource(RequestHandler.connection_lost)
    assert "handler_cancellation" in lost


def test_the_server_s_call_makes_a_connection_from_its_options() -> None:
    assert "RequestHandler(self, loop=self._loop, **self._kwargs)" in inspect.getsource(Server.__call__)


def test_a_body_s_reader_tells_come_from_read() -> None:
    assert "self._eof and not self._buffer" in inspect.getsource(StreamReader.at_eof)
    assert inspect.getsource(StreamReader.is_eof).strip().endswith("return self._eof")
