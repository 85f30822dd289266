"""No limit that nobody set cuts a slow reply, and each that is set does so on time and is counted. Time is virtual."""

import asyncio
from typing import Any

import pytest

from pharos.app import settings
from pharos.config import load
from pharos.proxy import body as bodies
from pharos.proxy import feedback
from pharos.proxy.answer import Answer
from pharos.proxy.chunks import framed
from pharos.proxy.deadlines import Watch
from pharos.proxy.errors import ClientFault
from pharos.proxy.relay import End, Relay
from pharos.proxy.steady import HEARD_EVERY_S
from pharos.proxy.tap import make_tap
from pharos.proxy.upstream import Connection
from tests.proxy.harness import DONE, event
from tests.proxy.test_steady import Peer, Wire, body_of

pytestmark = pytest.mark.looptime

MINUTES = 320.0
"""More than the five minutes at which libraries give up when nobody told them anything."""
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
OFF = (None, None)


class Stand:
    """One attempt between two transports that only keep what they get."""

    def __init__(self, first_byte_s: float | None, idle_s: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun = self.loop.time()
        self.wire, peer = Wire(), Peer()
        answer = Answer(self.wire, peer, http11=True, keep_alive=True, is_head=False, request_id="x")  # type: ignore[arg-type]

        def heard(now: float) -> None:
            if self.relay.watch is not None:
                self.relay.watch.heard(now)

        self.relay = Relay(
            peer,
            answer,
            make_tap=lambda s, k: make_tap("openai_chat", streamed=s, content_type=k, strip_usage=True),
            may_hold=lambda _: False,
            heard=heard,
            clock=self.loop.time,
        )
        self.engine = Wire()
        up = self.engine.protocol = Connection("u", lambda _: None, 0.0)
        up.connection_made(self.engine)  # type: ignore[arg-type]
        up.begin(self.relay, b"", b"")
        self.relay.attach(up, lambda: None, self.begun)
        self.relay.watch = Watch(self.relay, peer, first_byte_s, idle_s, self.loop.time)
        self.ended_at: float | None = None
        self.relay.ended.call(self._note)

    def _note(self) -> None:
        self.ended_at = self.loop.time() - self.begun

    def read(self, data: bytes) -> None:
        """The engine sent this."""
        if self.relay.end is End.OPEN:
            self.engine.protocol.data_received(data)

    async def until(self, seconds: float) -> None:
        """Until so many seconds after the request."""
        await asyncio.sleep(self.begun + seconds - self.loop.time())

    @property
    def outcome(self) -> str:
        return feedback.outcome(self.relay)


@pytest.mark.parametrize("limits", [OFF, (15.0, 30.0), (None, 12.0)])
async def test_b26_a_stream_of_a_token_each_ten_seconds_is_whole_after_more_than_five_minutes(limits: Any) -> None:
    stand = Stand(*limits)
    await stand.until(10)
    stand.read(STREAM + framed(event("0")))
    tokens = [event("0")]
    for at in range(20, int(MINUTES) + 1, 10):
        await stand.until(at)
        tokens.append(event(str(at)))
        stand.read(framed(tokens[-1]))
    stand.read(framed(DONE) + b"0\r\n\r\n")
    assert stand.relay.end is End.WHOLE
    assert stand.outcome == "ok"
    assert body_of(stand.wire.sent) == b"".join(tokens) + DONE
    assert stand.loop.time() - stand.begun >= MINUTES


@pytest.mark.parametrize("limits", [OFF, (310.5, 5.0)])
async def test_b26_a_reply_in_one_piece_whose_head_takes_more_than_five_minutes_is_whole(limits: Any) -> None:
    stand = Stand(*limits)
    await stand.until(310)
    stand.read(PIECE + b"{}")
    assert stand.relay.end is End.WHOLE
    assert stand.outcome == "ok"
    assert stand.wire.sent.endswith(b"{}")


async def test_b26_a_long_upload_is_not_cut_as_long_as_bytes_come() -> None:
    class Upload:
        """A body of one byte each ten seconds."""

        left = 32

        def at_eof(self) -> bool:
            return self.left == 0

        is_eof = at_eof

        async def readany(self) -> bytes:
            self.left -= 1
            await asyncio.sleep(10.0)
            return b"x"

    reservation = bodies.Reservation(bodies.Buffers(1000))
    assert await bodies.read(Upload(), None, 1000, reservation, bodies.Uploads()) == b"x" * 32  # type: ignore[arg-type]
    with pytest.raises(ClientFault) as fault:
        await bodies.read(Upload(), None, 1000, reservation, bodies.Uploads(), 9.0)  # type: ignore[arg-type]
    assert fault.value.status == 408
    drip = Upload()
    drip.left = 1000
    with pytest.raises(ClientFault, match="too slowly") as fault:
        await bodies.read(drip, None, 1000, reservation, bodies.Uploads())  # type: ignore[arg-type]
    assert fault.value.status == 408
    assert 1000 - drip.left == bodies.SLOW_FACTOR * bodies.IDLE_S // 10 + 1


@pytest.mark.parametrize(
    ("limits", "reads", "ended", "outcome"),
    [
        ((50.0, None), [], 50.0, "first_byte_late"),
        ((50.0, 20.0), [], 50.0, "first_byte_late"),
        ((50.0, 20.0), [(40.0, PIECE)], 60.0 + HEARD_EVERY_S, "stalled"),
        ((50.0, 20.0), [(40.0, STREAM), (59.0, framed(event("a")))], 79.0 + HEARD_EVERY_S, "stalled"),
        ((None, 20.0), [(310.0, STREAM + framed(event("a")))], 330.0 + HEARD_EVERY_S, "stalled"),
        ((50.0, None), [(49.9, STREAM + framed(event("a")))], None, ""),
        (OFF, [(1.0, STREAM + framed(event("a")))], None, ""),
        (OFF, [], None, ""),
    ],
)
async def test_a_limit_that_is_set_ends_a_reply_on_time_and_one_that_is_off_never(
    limits: Any, reads: list[tuple[float, bytes]], ended: float | None, outcome: str
) -> None:
    stand = Stand(*limits)
    for at, data in reads:
        await stand.until(at)
        stand.read(data)
    await stand.until(4000.0)
    assert stand.ended_at == (None if ended is None else pytest.approx(ended, abs=0.1))
    if ended is None:
        assert stand.relay.end is End.OPEN
        stand.relay.client_left()
    else:
        assert stand.outcome == outcome
        assert (b"engine_stalled" in stand.wire.sent) == (outcome == "stalled" and STREAM in reads[0][1])


@pytest.mark.parametrize(
    ("name", "field"),
    [("first_byte_warm", "first_byte_warm_s"), ("first_byte_cold", "first_byte_cold_s"), ("idle", "reply_idle_s")],
)
def test_each_limit_can_be_set_alone_and_is_off_by_0_and_by_default(name: str, field: str) -> None:
    fields = ("first_byte_warm_s", "first_byte_cold_s", "reply_idle_s")
    for text, wanted in ((f"{name}: 7s", 7.0), (f"{name}: 0", None), ("connect: 9s", None)):
        made = settings(load.parse(f"deadlines: {{{text}}}", {}))
        assert [getattr(made, other) for other in fields] == [wanted if other == field else None for other in fields]


def test_the_limit_for_connecting_is_off_by_0() -> None:
    day = 3600.0
    assert settings(load.parse("deadlines: {connect: 0}", {})).connect_s >= day, "the system gives up far sooner"
