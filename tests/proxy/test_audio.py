"""Recordings to be transcribed: a form with a file, forwarded byte for byte."""

import json

import pytest

from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Turn
from tests.proxy.harness import front

PATH = "/v1/audio/transcriptions"
TYPE = 'Content-Type: multipart/form-data; boundary="----a b:c"\r\n'


def form(size: int, model: str | None = "m", **fields: str) -> bytes:
    """The file first, then the model: as some clients write it."""
    parts = [
        b'Content-Disposition: form-data; name="file"; filename="speech.wav"\r\nContent-Type: audio/wav\r\n\r\n'
        + bytes(range(256)) * (size // 256)
    ]
    named = fields if model is None else {"model": model, **fields}
    parts += [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in named.items()]
    return b"".join(b"------a b:c\r\n" + part + b"\r\n" for part in parts) + b"------a b:c--\r\n"


async def heard(turn: Turn) -> None:
    await turn.reply(200, b'{"text":"hello","usage":{"type":"duration","seconds":1}}')


@pytest.mark.parametrize("size", [256, 3 * 2**20])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_recording_is_routed_by_the_model_behind_it(size: int, *, chunked: bool) -> None:
    async with front(heard, heard) as (pharos, a, b):
        pharos.bring_up("a", ("other",))
        body = form(size)
        client = await pharos.client()
        if chunked:
            client.send(f"POST {PATH} HTTP/1.1\r\nHost: p\r\n{TYPE}Transfer-Encoding: chunked\r\n\r\n".encode())
            for at in range(0, len(body), 100_000):
                piece = body[at : at + 100_000]
                client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            client.send(b"0\r\n\r\n")
        else:
            client.post(body, TYPE, PATH)
        reply = await client.reply()
        assert (reply.status, reply.json()["text"]) == (200, "hello")
        assert a.turns == []
        assert b.turns[0].body == body
        assert b.turns[0].header("content-type") == ['multipart/form-data; boundary="----a b:c"']
        assert b.turns[0].header("content-length") == [str(len(body))]
        assert pharos.proxy.routes.buffers.used == 0


async def test_a_transcription_may_come_as_a_stream() -> None:
    events = [{"type": "transcript.text.delta", "delta": "hel"}, {"type": "transcript.text.done", "text": "hello"}]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(stream)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, _):
        reply = await pharos.ask(form(512, stream="true"), TYPE, path=PATH)
        assert reply.is_whole
        assert reply.body == stream
        assert (await pharos.finished()).streamed


@pytest.mark.parametrize("status", [200, 400])
async def test_a_reply_in_plain_text_goes_through(status: int) -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(status, b"hello\n", kind=b"text/plain; charset=utf-8")

    async with front(play) as (pharos, _):
        reply = await pharos.ask(form(512, response_format="text"), TYPE, path=PATH)
        assert (reply.status, reply.body) == (status, b"hello\n")


async def test_a_form_without_a_model_or_over_the_limit_is_refused_at_once() -> None:
    async with front(heard, settings=ProxySettings(body_bytes=10_000)) as (pharos, engine):
        missing = await pharos.ask(form(512, model=None), TYPE, path=PATH)
        assert (missing.status, missing.json()["error"]["param"]) == (400, "model")
        large = await pharos.ask(form(100_000), TYPE, path=PATH)
        assert large.status == 413
        other = await pharos.ask(b'{"model":"m"}', "Content-Type: application/json\r\n", path=PATH)
        assert other.status == 415
        assert engine.turns == []
