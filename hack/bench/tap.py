"""Prints what the tap costs per streamed event: in every protocol, by how events arrive, with stripping on and off."""

import time

from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import make_tap

EVENT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Je"}}],"created":1796029532,'
    b'"id":"chatcmpl-zjMdBgHpkG1etvYtVXLYWkJZA2Na4Bmr","model":"smollm2","system_fingerprint":"b0"}\n\n'
)
NULLS = EVENT.replace(b'"model"', b'"usage":null,"model"')
CRLF = EVENT.replace(b"\n", b"\r\n")
OTHERS: dict[Protocol, bytes] = {
    "openai_responses": (
        b'event: response.output_text.delta\ndata: {"content_index":0,"delta":" had","item_id":"msg_523525",'
        b'"logprobs":[],"output_index":0,"sequence_number":7,"type":"response.output_text.delta"}\n\n'
    ),
    "anthropic": (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":" it"}}\n\n'
    ),
    "ollama_chat": (
        b'{"model":"tiny","created_at":"2026-11-30T09:34:41.511457979Z",'
        b'"message":{"role":"assistant","content":"?"},"done":false}\n'
    ),
}
EVENTS = 64
ROUNDS = 300
REPEATS = 7


def cost_us(
    reads: list[bytes], *, strip: bool = False, protocol: Protocol = "openai_chat", token: bytes = EVENT
) -> float:
    """Best time of one event in microseconds, over a stream whose first token is past."""
    best = float("inf")
    for _ in range(REPEATS):
        kind = "application/x-ndjson" if protocol == "ollama_chat" else "text/event-stream"
        tap = make_tap(protocol, streamed=True, content_type=kind, strip_usage=strip)
        tap.feed(token)
        feed = tap.feed
        began = time.perf_counter()
        for _ in range(ROUNDS):
            for data in reads:
                feed(data)
        best = min(best, time.perf_counter() - began)
    return best / (ROUNDS * EVENTS) * 1e6


def main() -> None:
    """Print one row per way of arriving."""
    stream = EVENT * EVENTS
    cases = {
        "64 events in one read": [stream],
        "one event per read": [EVENT] * EVENTS,
        "1460-byte reads": [stream[at : at + 1460] for at in range(0, len(stream), 1460)],
        "two reads per event": [EVENT[:100], EVENT[100:]] * EVENTS,
        "one read, usage:null": [NULLS * EVENTS],
        "one per read, CRLF": [CRLF] * EVENTS,
    }
    print(f"{len(EVENT)} bytes per event        strip off   strip on   (us per event)")
    for name, reads in cases.items():
        print(f"{name:28}{cost_us(reads, strip=False):10.3f} {cost_us(reads, strip=True):10.3f}")
    print(f"\n{'':28}{'one read':>10} {'1 per read':>10} {'torn':>10}")
    for protocol, token in OTHERS.items():
        cases = {"one": [token * EVENTS], "each": [token] * EVENTS, "torn": [token[:60], token[60:]] * EVENTS}
        costs = [cost_us(reads, protocol=protocol, token=token) for reads in cases.values()]
        print(f"{protocol:28}{costs[0]:10.3f} {costs[1]:10.3f} {costs[2]:10.3f}")


if __name__ == "__main__":
    main()
