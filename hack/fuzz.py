"""Sends generated requests through a whole proxy: `make fuzz` (SEED=1 REQUESTS=10000).

Prints how far it is, then what was run and seen; fails at the first stream that hangs, leaks or reaches an engine
changed, naming it so that it can be run alone.
"""

import logging
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.proxy.malformed import fuzzing  # noqa: E402 - the path must be known before
from tests.proxy.malformed.case import MARK  # noqa: E402

SEED = int(os.environ.get("SEED") or 1)
REQUESTS = int(os.environ.get("REQUESTS") or 10_000)
STEP = 1000


def main() -> int:
    """Run it."""
    shown = 0

    def progress(tally: fuzzing.Tally) -> None:
        nonlocal shown
        if tally.requests // STEP > shown:
            shown = tally.requests // STEP
            print(f"  {tally.requests:>7} of {REQUESTS} requests", flush=True)

    log = fuzzing.Log()
    logging.basicConfig(level=logging.DEBUG, handlers=[log])
    began = time.perf_counter()
    try:
        tally = fuzzing.run(SEED, REQUESTS, progress)
    except AssertionError as error:
        print(f"FAIL  {error}")
        return 1
    said = [line for line in log.lines if MARK.decode() in line or "fault of Pharos" in line]
    seconds = time.perf_counter() - began
    answers = ", ".join(f"{status}: {count}" for status, count in sorted(tally.statuses.items()))
    ends = ", ".join(f"{count} {end}" for end, count in sorted(tally.ends.items()))
    print(f"{tally.requests} requests in {tally.streams} connections, seed {SEED}, {seconds:.1f} s")
    print(f"connections by what they held: {ends}")
    print(f"answers: {answers}; {tally.reached} requests reached an engine, each as it was sent")
    if said:
        print(f"FAIL  {len(said)} lines of the log tell a fault or a key")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
