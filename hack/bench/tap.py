"""Prints what the tap costs per streamed event: 64 events in one read and one event per read, stripping on and off."""

import time

from pharos.proxy.tap import make_tap

EVENT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Je"}}],"created":1796029532,'
    b'"id":"chatcmpl-zjMdBgHpkG1etvYtVXLYWkJZA2Na4Bmr","model":"smollm2","system_fingerprint":"b0"}\n\n'
)
NULLS = EVENT.replace(b'"model"', b'"usage":null,"model"')
CRLF = EVENT.replace(b"\n", b"\r\n")
EVENTS = 64
ROUNDS = 300
REPEATS = 7


def cost_us(reads: list[bytes], *, strip: bool) -> float:
    """Best time of one event in microseconds, over a stream whose first token is past."""
    best = float("inf")
    for _ in range(REPEATS):
        tap = make_tap("openai_chat", streamed=True, content_type="text/event-stream", strip_usage=strip)
        tap.feed(EVENT)
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


if __name__ == "__main__":
    main()
