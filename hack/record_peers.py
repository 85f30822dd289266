"""Records what two instances say to each other, into testdata/peer/proto-N: once for each version of the protocol.

Samples are never made anew for a protocol that has some: they stand for releases that are out there.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pharos.peer import wire
from tests.app.test_peering import Ports, instance, keys, until
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

FOLDER = Path(__file__).resolve().parent.parent / "testdata" / "peer"
WANTED = {"cells", "minutes", "gauges", "prefix", "responses"}


def shown(value: object) -> object:
    """Entries as JSON has them; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return [shown(one) for one in value] if isinstance(value, list) else value


async def record() -> tuple[bytes, bytes, bytes]:
    """A delta with all sections that deltas have, its answer, and a snapshot."""
    found: list[tuple[bytes, bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        ports = Ports(Path(folder), 2)
        shared: dict[str, Any] = {"keys": keys(rpm=100)}
        async with (
            FakeLlamaCpp() as e0,
            FakeLlamaCpp() as e1,
            instance(e0, e1, peers=ports.of(0), **shared) as a,
            instance(e0, e1, peers=ports.of(1), **shared) as b,
        ):
            node = b.app.peering.node
            assert node is not None
            receive = node.receive

            async def listen(body: bytes) -> bytes:
                answer = await receive(body)
                found.append((body, answer))
                return answer

            node.receive = listen  # type: ignore[method-assign]  # to see what comes

            def has_all() -> bool:
                a.app.reporting.count()
                return any({name for name, _ in wire.parts_of(wire.decode_delta(body))} >= WANTED for body, _ in found)

            number = 0
            while not has_all():
                number += 1
                backend = a.app.fleet.backends["e0"]
                a.app.proxy.responses.note(f"resp_{number}", backend.targets[RECORDED_MODEL], "k")
                await a.chat(f"{number} " + "word " * 300, Authorization="Bearer pk-test")
            await until(lambda: b.requests >= 1)
            teller = a.app.peering.node
            assert teller is not None
            blocks = [block async for block in teller.frames()]
    [(body, answer), *_] = [
        one for one in found if {name for name, _ in wire.parts_of(wire.decode_delta(one[0]))} >= WANTED
    ]
    return body, answer, b"".join(blocks)


def main() -> int:
    """Record, and write down what was understood."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder = FOLDER / f"proto-{wire.PROTO}"
    if folder.exists():
        print(f"{folder} is there already: samples of a protocol are made once")
        return 1
    body, answer, snapshot = asyncio.run(record())
    folder.mkdir(parents=True)
    (folder / "delta.bin").write_bytes(body)
    (folder / "answer.bin").write_bytes(answer)
    (folder / "snapshot.bin").write_bytes(snapshot)
    delta, blocks = wire.decode_delta(body), wire.Blocks()
    frames = [*blocks.feed(snapshot)]
    assert blocks.head is not None
    told = wire.decode_answer(answer)
    says = {
        "delta": [delta.origin, delta.seq, delta.leaving, delta.fingerprint],
        "sections": {name: shown(wire.decode_entries(raw)) for name, raw in wire.parts_of(delta)},
        "answer": [told.origin, told.fingerprint],
        "head": [blocks.head.origin, blocks.head.at],
        "frames": {frame.section: shown(wire.decode_entries(frame.entries)) for frame in frames},
    }
    (folder / "says.json").write_text(json.dumps(says, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {folder}: {len(body)} bytes of delta, {len(snapshot)} of snapshot")
    return 0


if __name__ == "__main__":
    sys.exit(main())
