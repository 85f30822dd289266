import pytest

from pharos.core.engine import plan
from pharos.core.engine.probe import DropReason, FeedKind, Page
from pharos.core.signals import Residency, Signal
from tests.core.engine.pages import NOW, reasons, values
from tests.core.engine.replay.replaying import Answers, Row, detected, expected, pages_of, resolved, rows, unused
from tests.core.engine.replay.streams import follow, lines
from tests.fakes import captures

KIND = "ollama"
TINY, EMBED = "tiny:latest", "tiny-embed:latest"
TINY_FILE = "sha256-56a875637a3906df66280828be8c08d0da155f70a9472abaf63fafd199a9705e"
EMBED_FILE = "sha256-e67df13b64e9f8c6e585d86dc20c63a0601748bba0b733156e46a326a128f48d"
SHOWN = {f"POST /api/show {TINY}": "api_show", f"POST /api/show {EMBED}": "api_show_embed"}


def loaded(model: str, context: int) -> dict[tuple[str, str], object]:
    return {
        ("residency", model): Residency.LOADED,
        ("vram_bytes", model): 0,
        ("context_length", model): context,
    }


RECORDED = {
    ("models", ""): (TINY, EMBED),
    ("residency", ""): Residency.COLD,
    ("context_length", TINY): 4096,  # as its own options say
    ("capabilities", TINY): ("completion",),
    ("capabilities", EMBED): ("embedding",),
    ("physical_group", TINY): TINY_FILE,
    ("physical_group", EMBED): EMBED_FILE,
    ("capacity", EMBED): 1,
}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "ollama/0.17.4": {
        ("version", ""): "0.17.4",
        ("size_bytes", TINY): 263522,
        ("size_bytes", EMBED): 263169,
        **RECORDED,
    },
    "ollama/0.17.4/two_models": {("models", ""): (EMBED, TINY), **loaded(TINY, 4096), **loaded(EMBED, 4096)},
    "ollama/0.33.0-rc2": {
        ("version", ""): "0.33.0-rc2",
        ("size_bytes", TINY): 263245,
        ("size_bytes", EMBED): 262964,
        **RECORDED,
    },
    "ollama/0.33.0-rc2/two_models": {**loaded(TINY, 4096), **loaded(EMBED, 4096)},
    "ollama/0.33.0-rc2-queue2": {
        ("version", ""): "0.33.0-rc2",
        ("size_bytes", TINY): 263245,
        ("size_bytes", EMBED): 262964,
        ("size_bytes", "smol:latest"): 98362745,
        **RECORDED,
        ("models", ""): ("smol:latest", TINY, EMBED),
    },
    "ollama/0.33.0-rc2-queue2/saturated_loaded": loaded(TINY, 4096),
    "ollama/0.33.0-rc2-queue2/after": loaded(TINY, 4096),
    "ollama/synthetic-mixed": {
        ("version", ""): "0.32.15",
        ("models", ""): ("chat:latest", "big:cloud", "tensors:latest"),
        ("residency", ""): Residency.COLD,
        ("residency", "chat:latest"): Residency.LOADED,
        ("residency", "big:cloud"): Residency.LOADED,
        ("residency", "tensors:latest"): Residency.LOADED,
        ("size_bytes", "chat:latest"): 2000000000,
        ("size_bytes", "tensors:latest"): 4900000000,
        ("vram_bytes", "chat:latest"): 3000000000,
        ("vram_bytes", "tensors:latest"): 5000000000,
        ("context_length", "chat:latest"): 8192,
    },
}
for version in ("0.17.4", "0.33.0-rc2"):
    for state in ("idle", "busy", "saturated", "after"):
        VALUES[f"ollama/{version}/{state}"] = loaded(TINY, 4096)
    VALUES[f"ollama/{version}/reloaded_other_ctx"] = {**loaded(TINY, 2048), **loaded(EMBED, 4096)}
    for state in ("unloading", "unloaded"):
        VALUES[f"ollama/{version}/{state}"] = loaded(EMBED, 4096)

DROPPED = {
    "ollama-list": "REDUNDANT",
    "ollama-log-slots": "NO_LOG_FEED",
    "ollama-log-single": "NO_LOG_FEED",
    "ollama-log-parallel": "NO_LOG_FEED",
}
NOT_SHOWN = dict.fromkeys(("ollama-context-bound", "ollama-abilities", "ollama-file", "ollama-one-slot"), "NOT_FOUND")


def world(row: Row) -> Answers:
    """A recorded state, with what that version said of its models."""
    there = pages_of(row)
    if not row[1].startswith("synthetic"):
        for ask, name in SHOWN.items():
            reply = captures.exchange(KIND, row[1].removesuffix("-queue2"), name)
            there[ask] = Page(reply.status, reply.body, sent_at=NOW - 0.5)
    return there


@pytest.mark.parametrize("row", rows(KIND), ids="/".join)
def test_a_recorded_state_is_read_exactly(row: Row) -> None:
    there = world(row)
    found, seen = detected(there)
    assert (found.kind, found.evidence) == (KIND, "/api/status has cloud")
    made, first, _ = resolved(KIND, there, seen)
    assert values(first) == expected(VALUES, row)
    assert reasons(made) == {**DROPPED, **(NOT_SHOWN if row[1].startswith("synthetic") else {})}


def test_every_row_is_of_a_recorded_state() -> None:
    assert unused(VALUES, KIND) == set()


@pytest.mark.parametrize("version", ["0.17.4", "0.33.0-rc2", "0.33.0-rc2-queue2"])
def test_the_recorded_log_tells_the_slots(version: str) -> None:
    made, _, _ = resolved(KIND, world((KIND, version, "cold")), logs=True)
    log = follow(made, FeedKind.LOG)
    told: dict[str, list[object]] = {}
    for line in lines(KIND, version, "logs/serve.log"):
        seen = log.line(line, NOW)
        assert seen.failed == ()
        for (signal, model), reading in seen.readings.items():
            assert signal.value == "capacity"
            told.setdefault(f"{reading.probe} {model}".strip(), []).append(reading.value)
    assert (
        told
        == {
            "0.17.4": {"ollama-log-parallel": [2]},
            # Loaded at the start, and twice more for another context length and back.
            "0.33.0-rc2": {
                "ollama-log-parallel": [2],
                f"ollama-log-slots {TINY_FILE}": [2, 2, 2],
                f"ollama-log-slots {EMBED_FILE}": [1],
            },
            "0.33.0-rc2-queue2": {"ollama-log-single": [1], f"ollama-log-slots {TINY_FILE}": [1]},
        }[version]
    )


def test_without_a_log_it_is_said_that_the_slots_need_one() -> None:
    made, _, _ = resolved(KIND, world((KIND, "0.33.0-rc2", "idle")))
    why = plan.why_unknown(made, Signal.CAPACITY, asleep=True)
    assert why is not None
    assert why.reason is DropReason.NO_LOG_FEED


def test_every_recorded_version_says_how_it_was_made() -> None:
    for version in {row[1] for row in rows(KIND)}:
        meta = (captures.TESTDATA / KIND / version / "meta.yaml").read_text(encoding="utf-8")
        assert "\nversion: " in meta
        assert "\nsynthetic: true" in meta if version.startswith("synthetic") else "\nrecorded: " in meta
