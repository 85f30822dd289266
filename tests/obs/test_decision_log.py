"""The log of decisions: what a line holds, when a new file begins, and that a full disk hurts nobody."""

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pharos.core.policy import Candidate, Decision
from pharos.core.prefix import Chain
from pharos.obs import decision_log
from pharos.obs.decision_log import DecisionLog
from pharos.obs.decision_record import DecisionRow, decode
from pharos.proxy.done import Done
from tests.core.policy.given import candidate, pick

Finished = Callable[..., Done]
CHAIN = Chain((1, 2**64 - 1), (100, 240))


def decided() -> Decision:
    return pick(candidate(0), candidate(1, warm=False), matched={0: 400})


class Stand:
    """A log in a folder, and the events it told of."""

    def __init__(self, folder: Path, max_size: int = 10**6, keep: int = 2) -> None:
        self.path = folder / "decisions.jsonl"
        self.events: list[Any] = []
        self.salts = 0
        self.log = DecisionLog(
            str(self.path), max_size, keep, version="0.1", wall=lambda: 5.0, on_event=self.events.append, salt=self.salt
        )

    def salt(self, size: int) -> bytes:
        self.salts += 1
        return bytes([self.salts]) * size

    def lines(self, name: str = "decisions.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path.parent / name).read_text().splitlines()]

    def sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.path.parent.iterdir()}

    def rows(self, name: str = "decisions.jsonl") -> list[DecisionRow]:
        found = [decode(line) for line in (self.path.parent / name).read_bytes().splitlines()]
        return [row for row in found if row is not None]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def test_a_line_holds_the_request_every_candidate_what_was_foreseen_and_what_came(
    stand: Stand, finished: Finished
) -> None:
    stand.log.add(finished(choice=decided()), "cost")
    await stand.log.close()
    head, line = stand.lines()
    assert head == {"pharos_decisions": 1, "version": "0.1", "at": 5.0}
    assert {"request_id": "r1", "key": "alice", "model": "tiny", "target": "tiny@gpu-1", "policy": "cost"}.items() <= (
        line.items()
    )
    assert (line["predicted"], line["actual"], line["status"]) == (0.4, 0.3, 200)
    assert line["usage"] == {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 7}
    assert (line["request"]["prompt_tokens"], line["request"]["matched"], line["chosen"]) == (1000, [[0, 400]], 0)
    first, second = line["candidates"]
    assert (first["target"], first["feasible"], first["why_not"], first["wait_s"]) == ("gpu-0", True, None, 0.0)
    assert first["prefill_s"] == pytest.approx(0.6)
    assert (second["load_s"], second["state"]["warm"]) == (8.0, False)


async def test_what_was_written_is_read_back_as_it_was(stand: Stand, finished: Finished) -> None:
    decision = decided()
    stand.log.add(finished(choice=decision), "cost")
    await stand.log.close()
    (row,) = stand.rows()
    assert row.request == decision.req
    assert [one.state for one in row.candidates] == list(decision.candidates)


async def test_a_request_that_was_refused_has_no_choice(stand: Stand, finished: Finished) -> None:
    stand.log.add(finished(choice=None, status=429, usage=None), "cost")
    await stand.log.close()
    (row,) = stand.rows()
    assert (row.request, row.chosen, row.candidates, row.usage) == (None, None, (), None)


async def test_an_engines_odd_name_does_not_break_the_log(stand: Stand, finished: Finished) -> None:
    stand.log.add(finished(choice=decided(), model="half \ud800 a pair"), "cost")
    await stand.log.close()
    (row,) = stand.rows()
    assert row.model == "half ? a pair"


async def test_beginnings_of_prompts_compare_inside_a_file_and_tell_nothing_else(
    tmp_path: Path, finished: Finished
) -> None:
    stand = Stand(tmp_path, max_size=4000)
    for _ in range(3):
        stand.log.add(finished(choice=decided(), chain=CHAIN), "cost")
    await stand.log.close()
    old, new = stand.rows("decisions.jsonl.1"), stand.rows()
    assert old[0].prefix is not None
    assert old[0].prefix == old[1].prefix
    assert old[0].prefix.ends == (100, 240)
    assert new[0].prefix is not None
    assert not set(new[0].prefix.hashes) & set(old[0].prefix.hashes)
    assert stand.salts == 2


async def test_a_full_file_moves_on_and_the_oldest_goes(tmp_path: Path, finished: Finished) -> None:
    stand = Stand(tmp_path, max_size=1000, keep=2)
    for number in range(5):
        stand.log.add(finished(request_id=str(number), choice=None), "cost")
        stand.log.add(finished(request_id=f"{number}b", choice=None), "cost")
    await stand.log.close()
    full = ("decisions.jsonl.2", "decisions.jsonl.1", "decisions.jsonl")
    sizes = stand.sizes()
    assert set(sizes) == set(full)
    assert max(sizes.values()) <= 1000
    kept = [row.request_id for name in full for row in stand.rows(name)]
    assert kept[-1] == "4b"
    assert kept == sorted(kept)


async def test_without_full_files_to_keep_the_one_begins_anew(tmp_path: Path, finished: Finished) -> None:
    stand = Stand(tmp_path, max_size=600, keep=0)
    for number in range(3):
        stand.log.add(finished(request_id=str(number), choice=None), "cost")
    await stand.log.close()
    assert set(stand.sizes()) == {"decisions.jsonl"}
    assert [row.request_id for row in stand.rows()] == ["2"]


async def test_a_line_longer_than_a_file_may_be_is_written_all_the_same(tmp_path: Path, finished: Finished) -> None:
    stand = Stand(tmp_path, max_size=10)
    stand.log.add(finished(choice=decided()), "cost")
    stand.log.add(finished(choice=decided()), "cost")
    await stand.log.close()
    assert len(stand.rows()) == len(stand.rows("decisions.jsonl.1")) == 1


async def test_a_restart_goes_on_with_the_file_below_a_line_of_its_own(tmp_path: Path, finished: Finished) -> None:
    for _ in range(2):
        stand = Stand(tmp_path)
        stand.log.add(finished(choice=None), "cost")
        await stand.log.close()
    assert ["pharos_decisions" in line for line in stand.lines()] == [True, False, True, False]


async def test_the_file_is_nobody_elses_to_read(stand: Stand, finished: Finished) -> None:
    stand.log.add(finished(choice=None), "cost")
    await stand.log.close()
    assert stat.S_IMODE(stand.path.stat().st_mode) == 0o600


async def test_a_folder_that_is_not_there_is_told_once_and_each_request_counted(
    tmp_path: Path, finished: Finished
) -> None:
    stand = Stand(tmp_path / "not" / "yet")
    for _ in range(2):
        stand.log.add(finished(choice=None), "cost")
        stand.log.add(finished(choice=None), "cost")
        await stand.log.flush()
    assert stand.log.dropped == 4
    assert [event.outcome for event in stand.events] == ["", *["dropped"] * 4]
    assert [bool(event.text) for event in stand.events] == [True, *[False] * 4]
    assert "No such file or directory" in stand.events[0].text
    stand.path.parent.mkdir(parents=True)
    stand.log.add(finished(choice=None), "cost")
    await stand.log.close()
    assert "written again" in stand.events[-1].text
    assert len(stand.rows()) == 1


async def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_no_torn_line(
    stand: Stand, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.log.add(finished(request_id="before", choice=None), "cost")
    await stand.log.flush()
    put = decision_log._put

    def half(file: Any, line: bytes) -> None:
        os.write(file.fileno(), line[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(decision_log, "_put", half)
    stand.log.add(finished(choice=None), "cost")
    stand.log.add(finished(choice=None), "cost")
    await stand.log.flush()
    assert stand.log.dropped == 2
    assert "No space left" in stand.events[0].text
    monkeypatch.setattr(decision_log, "_put", put)
    stand.log.add(finished(request_id="after", choice=None), "cost")
    await stand.log.close()
    assert [row.request_id for row in stand.rows()] == ["before", "after"]


async def test_more_than_can_wait_is_dropped_and_counted(
    stand: Stand, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "MOST", 2)
    for _ in range(5):
        stand.log.add(finished(choice=None), "cost")
    await stand.log.close()
    assert stand.log.dropped == [event.outcome for event in stand.events].count("dropped") == 3
    assert len(stand.rows()) == 2


async def test_an_endless_disk_holds_up_no_request(
    stand: Stand, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing happens beside the loop: while the disk hangs, requests are taken in and the loop runs."""
    loop = asyncio.get_running_loop()
    is_writing, may_end = asyncio.Event(), asyncio.Event()
    put = decision_log._put

    def hang(file: Any, line: bytes) -> None:
        loop.call_soon_threadsafe(is_writing.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
        put(file, line)

    monkeypatch.setattr(decision_log, "_put", hang)
    stand.log.add(finished(choice=None), "cost")
    flushing = asyncio.create_task(stand.log.flush())
    await is_writing.wait()
    stand.log.add(finished(choice=None), "cost")
    may_end.set()
    await flushing
    await stand.log.close()
    assert len(stand.rows()) == 2


def test_a_candidate_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    import msgspec

    line = {
        "request_id": "r", "at": 1.0, "path": "/", "policy": "cost", "news": 1,
        "candidates": [{"target": "a", "wait_s": 0, "load_s": 0, "prefill_s": 0, "kv_s": 0, "feasible": True,
                        "why_not": None, "state": msgspec.to_builtins(candidate(0)) | {"news": 2}}],
    }  # fmt: skip
    row = decode(json.dumps(line))
    assert row is not None
    assert isinstance(row.candidates[0].state, Candidate)


async def test_a_file_that_cannot_be_had_is_told_of_before_the_first_request(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "nowhere")
    told = asyncio.Event()
    stand.log._on_event = lambda event: (stand.events.append(event), told.set())
    task = asyncio.create_task(stand.log.run())
    await told.wait()
    task.cancel()
    assert "cannot be written" in stand.events[0].text
    assert stand.log.dropped == 0
