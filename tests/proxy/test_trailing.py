import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp.http_parser import HttpRequestParser

from pharos.proxy.trailing import Trailing

if TYPE_CHECKING:
    from aiohttp.base_protocol import BaseProtocol

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = [b"0\r\n\r\n", b"1\r\na\r\n0\r\n\r\n", b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", b"2;a=b\r\n\r\n\r\n0\r\n\r\n"]
WITH_TRAILERS = [
    b"0\r\nX: 1\r\n\r\n",
    b"1\r\na\r\n0\r\nX: 0\r\n\r\n",
    b"1\r\na\r\n0\r\nX:\r\nY: 0\r\n\r\n",
    b"0;a\r\nX: 1\r\n\r\n",
]


class Reading:
    """What a parser asks of its connection."""

    def pause_reading(self) -> None:
        raise NotImplementedError

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        del resume_parser


def followed(data: bytes, size: int) -> Trailing:
    parser = HttpRequestParser(cast("BaseProtocol", Reading()), asyncio.get_running_loop(), 2**16)
    trailing = Trailing()
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        trailing.take(piece, parser.feed_data(piece)[0])
    return trailing


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("body", PLAIN)
async def test_a_body_that_ends_plainly_is_told_however_it_is_cut(body: bytes, size: int) -> None:
    assert not followed(HEAD + body, size).is_doubtful


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("body", WITH_TRAILERS)
async def test_a_body_with_trailers_is_never_taken_for_a_plain_one(body: bytes, size: int) -> None:
    assert followed(HEAD + body, size).is_doubtful


async def test_where_a_body_ended_inside_a_read_is_not_known() -> None:
    assert followed(HEAD + b"0\r\n\r\n" + HEAD + b"0\r\n\r\n", 1000).is_doubtful


async def test_plain_bodies_one_after_another_stay_plain() -> None:
    assert not followed((HEAD + b"0\r\n\r\n") * 3, len(HEAD) + 5).is_doubtful
