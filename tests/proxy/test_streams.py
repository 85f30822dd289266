import json

from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, USAGE_EVENT, chat, event, front


async def stream(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event("a"))
    await turn.chunk(event("b") + USAGE_EVENT)
    await turn.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))


async def test_a_stream_reaches_the_client_without_the_usage_event_that_pharos_asked_for() -> None:
    async with front(stream) as (pharos, engine):
        reply = await pharos.ask()
        assert reply.status == 200
        assert reply.is_whole
        assert reply.body == event("a") + event("b") + DONE
        assert b'"include_usage"' in engine.turns[0].body
        done = await pharos.finished()
        assert done.usage is not None
        assert done.usage.completion_tokens == 3
        assert done.status == 200
        assert ("upstream", "ok") in done.stages
        assert done.ttft_s is not None
        assert pharos.inflight == 0


async def test_a_client_that_asked_for_usage_gets_the_stream_untouched() -> None:
    async with front(stream) as (pharos, engine):
        body = chat(stream_options={"include_usage": True})
        reply = await pharos.ask(body)
        assert reply.body == event("a") + event("b") + USAGE_EVENT + DONE
        assert engine.turns[0].body == body


async def test_a_streamed_text_completion_is_asked_for_usage_too_and_its_usage_event_taken_out() -> None:
    text = b'data: {"object":"text_completion","choices":[{"index":0,"text":"hi","finish_reason":null}]}\n\n'

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(text)
        await turn.chunk(USAGE_EVENT + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, engine):
        asked = {"model": "m", "prompt": "hello", "stream": True}
        reply = await pharos.ask(json.dumps(asked).encode(), path="/v1/completions")
        assert json.loads(engine.turns[0].body) == {**asked, "stream_options": {"include_usage": True}}
        assert reply.body == text + DONE
        done = await pharos.finished()
        assert ("usage", "pharos_asked") in done.stages
        assert done.usage is not None
        assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (7, 3)
        assert done.ttft_s is not None
