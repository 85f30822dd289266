"""The log line of a request, from a whole Pharos; and what a trace that a client began keeps on its way."""

import json
import logging

import pytest

from pharos.obs.logs import JsonLines, TextLines
from tests.app.running import AUTH, KEYS, pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.proxy.engine_script import Turn
from tests.proxy.harness import chat, front

SECRET = "the vault opens at midnight"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def lines(caplog: pytest.LogCaptureFixture, form: logging.Formatter) -> list[str]:
    return [form.format(record) for record in caplog.records]


async def test_each_request_is_one_line_at_debug_and_no_line_has_anything_that_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "pharos")
    async with FakeLlamaCpp() as engine, pharos(engine, keys=KEYS) as running:
        for stream in (True, False):
            body = {
                "model": RECORDED_MODEL,
                "stream": stream,
                "messages": [{"role": "user", "content": SECRET}],
                "user": "mallory\n2026 INFO forged",
            }
            async with running.http.post(running.url + "/v1/chat/completions", json=body, headers=AUTH) as reply:
                said = await reply.text()
                assert reply.status == 200
        await running.until(lambda: len(running.app.reporting.recent) == 2)
        for form in (TextLines(), JsonLines()):
            told = lines(caplog, form)
            assert sum("request" in line and "stages" in line for line in told) == 2
            text = "\n".join(told)
            for hidden in (SECRET, "vault", "mallory", "pk-test", said[-40:]):
                assert hidden not in text
    rows = [json.loads(line) for line in lines(caplog, JsonLines())]
    streamed, whole = (row for row in rows if row["message"] == "request")
    assert (streamed["key"], streamed["model"], streamed["status"]) == ("k", RECORDED_MODEL, 200)
    assert streamed["route"] == "/v1/chat/completions"
    assert "admission=ok" in streamed["stages"]
    assert "upstream=ok" in streamed["stages"]
    assert (streamed["stream"], whole["stream"]) == (True, False)
    for name in ("request_id", "target", "reason", "ttft_s", "overhead_s", "queue_wait_s", "duration_s"):
        assert streamed[name] is not None


async def test_no_request_is_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pharos")
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        async with running.chat() as reply:
            await reply.read()
        assert "request" not in [record.message for record in caplog.records]


async def test_a_trace_that_a_client_began_goes_on_to_the_engine_as_it_came() -> None:
    async def script(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    async with front(script) as (pharos, engine):
        sent = f"traceparent: {TRACE}\r\ntracestate: vendor=1,other=2\r\nbaggage: tenant=7\r\n"
        await pharos.ask(chat(stream=False), sent)
        (turn,) = engine.turns
        assert turn.header("traceparent") == [TRACE]
        assert turn.header("tracestate") == ["vendor=1,other=2"]
        assert turn.header("baggage") == ["tenant=7"]


async def test_a_request_without_a_trace_gets_none() -> None:
    async def script(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    async with front(script) as (pharos, engine):
        await pharos.ask(chat(stream=False))
        (turn,) = engine.turns
        assert turn.header("traceparent") == []
