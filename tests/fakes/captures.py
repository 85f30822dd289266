"""Reads recorded engine replies from `testdata/`. Bodies are given byte for byte."""

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pharos.core.engine.probe import Page

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"


class Recorded(msgspec.Struct, frozen=True):
    """One recorded reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@functools.cache
def state(engine: str, version: str, name: str) -> Mapping[str, Recorded]:
    """Path to reply for one state of one engine, such as `("llamacpp", "b11434", "idle")`."""
    folder = TESTDATA / engine / version / name
    replies = {}
    for line in (folder / "paths.tsv").read_text(encoding="utf-8").splitlines():
        path, status, content_type, file, *rest = line.split("\t")
        if status.isdecimal():
            headers = {"Content-Type": content_type}
            if len(rest) > 1:
                headers = {"Server": rest[1], **headers}
            replies[path] = Recorded(int(status), headers, _body(folder, file))
    return replies


def _body(folder: Path, file: str) -> bytes:
    path = folder / file
    return path.read_bytes() if path.exists() else b""


@functools.cache
def exchange(engine: str, version: str, name: str) -> Recorded:
    """The reply of one recorded POST, such as `("llamacpp", "b11434", "chat_full")`."""
    folder = TESTDATA / engine / version / "streams"
    first, *lines = (folder / f"{name}.headers").read_text(encoding="utf-8").splitlines()
    headers = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    framing = ("connection", "content-length", "transfer-encoding")  # of that connection, not of the reply
    headers = {key: value for key, value in headers.items() if key.lower() not in framing}
    return Recorded(int(first.partition(":")[2]), headers, (folder / f"{name}.response").read_bytes())


def pages(engine: str, version: str, name: str, *, sent_at: float = 0.0) -> dict[str, Page]:
    """One state as the pages that a fetcher would bring."""
    return {
        path: Page(
            reply.status, reply.body, {key.lower(): value for key, value in reply.headers.items()}, sent_at=sent_at
        )
        for path, reply in state(engine, version, name).items()
    }


def states(engine: str) -> list[tuple[str, str]]:
    """Every recorded (version, state) of an engine."""
    return sorted(
        (listing.parent.parent.name, listing.parent.name) for listing in (TESTDATA / engine).glob("*/*/paths.tsv")
    )


def streams(engine: str, version: str) -> dict[str, Recorded]:
    """Name to reply of every recorded POST of one version; a stream of events has no headers, and is none."""
    folder = TESTDATA / engine / version / "streams"
    names = [path.stem for path in sorted(folder.glob("*.response")) if path.with_suffix(".headers").exists()]
    return {name: exchange(engine, version, name) for name in names}


def request(engine: str, version: str, name: str) -> bytes:
    """The body of one recorded POST, as it was sent."""
    return (TESTDATA / engine / version / "streams" / f"{name}.request.json").read_bytes()
