"""What the status page says of many things in a few numbers. Forbidden here: markup."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from pharos.obs.drawing import slots, total_s

CHIPS: Final = 4
"""Models that a backend's row names."""
_FIRST: Final = {"loaded": 0, "loading": 1, "cold": 2}

Described = Mapping[str, Any]


def glance(status: Described, rows: Sequence[Described]) -> dict[str, Any]:
    """The whole fleet in a dozen numbers. Slots of which nobody knows are not in them. `rows`: of all its backends."""
    alive = [one["up"] for one in status["backends"]]
    capacity = sum(row["capacity"] for row in rows if row["capacity"] is not None)
    ours = sum(row["ours"] for row in rows)
    used = sum(max(_known(row["running"]), row["ours"] + row["peers"]) for row in rows)
    resident = sorted({model for row in rows for model in row["loaded"]})
    queue = sorted(status["waiting"].items(), key=lambda row: -row[1])
    return {
        "backends": len(rows),
        "up": sum(map(bool, alive)),
        "states": [one["state"] if one["drained_by"] is None else "drained" for one in status["backends"]],
        "capacity": capacity,
        "ours": ours,
        "used": used,
        "slots": slots({"capacity": capacity, "running": used, "queue_inflight": ours, "queue_peers": 0}),
        "waiting": sum(count for _, count in queue),
        "queue": queue[:CHIPS],
        "models": len(status["models"]),
        "loaded": len(resident),
        "resident": resident[:CHIPS],
    }


def summary(backend: Described) -> dict[str, Any]:
    """One backend: its queues added up (names that share one count once), the busiest models first."""
    targets = sorted(backend["targets"], key=_importance)
    queues = list({target["queue"]: target for target in reversed(targets)}.values())
    capacity, running = _sum(queues, "capacity"), _sum(queues, "running")
    ours, peers = (sum(target[field] for target in queues) for field in ("queue_inflight", "queue_peers"))
    return {
        "targets": targets,
        "models": targets[:CHIPS],
        "loaded": [target["model"] for target in targets if target["residency"] == "loaded"],
        "more": max(len(targets) - CHIPS, 0),
        "capacity": capacity,
        "running": running,
        "waiting": _sum(queues, "waiting"),
        "ours": ours,
        "peers": peers,
        "slots": slots({"capacity": capacity, "running": running, "queue_inflight": ours, "queue_peers": peers}),
        "ttft_s": median(backend["ttft_s"]) if backend["ttft_s"] else None,
        "fixable": sum(not one["expected"] for one in backend["unknown"]),
    }


def by_cost(candidates: Iterable[Described], target: str | None) -> list[Described]:
    """The candidates, the chosen one first, then the cheapest; those that cannot take it last."""
    chosen = (target or "").rpartition("@")[2]
    return sorted(candidates, key=lambda one: (one["target"] != chosen, not one["feasible"], total_s(one)))


def _importance(target: Described) -> tuple[int, int, str]:
    return -target["inflight"], _FIRST.get(target["residency"], len(_FIRST)), target["model"]


def _known(count: int | None) -> int:
    """A count, as far as it is known: at least none."""
    return count if count is not None else 0


def _sum(queues: Sequence[Described], field: str) -> int | None:
    known = [queue[field] for queue in queues if queue[field] is not None]
    return sum(known) if known else None
