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
