"""Each section's merge: whatever comes late, twice or in another order leaves the same, and garbage leaves nothing."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Fleet
from pharos.core.fleet.inherit import Inheritance
from pharos.core.prefix import Chain, ChainBuilder, PendingOps, PrefixIndex, PrefixOp
from pharos.core.sched import Elsewhere
from pharos.core.usage import Day, UsageBook
from pharos.peer import sections, wire
from pharos.peer.section import FRAME, Section, Sections
from pharos.proxy.responses import Responses
from tests.core.fleet.given import OPENAI, fleet_of, publish, spec

NOW = 1_800_000_000.0
DAY = 20_833


def fleet() -> Fleet:
    of = fleet_of(spec("e0"), spec("e1"))
    for name in ("e0", "e1"):
        publish(of, name, 0.0, models=("m", "n"), plan=OPENAI)
    return of


def chain(text: str) -> Chain:
    builder = ChainBuilder("m")
    for part in text.split():
        builder.add_link(part.encode(), len(part))
    made = builder.chain()
    assert made is not None
    return made


class Prefixed:
    """An index with peers, and its section."""

    def __init__(self) -> None:
        self.fleet = fleet()
        self.index = PrefixIndex(pending=PendingOps())
        self.section = sections.Prefixes(self.fleet, self.index, lambda: NOW)

    def record(self, text: str, backend: str, at: float) -> None:
        target = self.fleet.backends[backend].targets["m"]
        self.index.record(chain(text), target.id, target.generation, at)

    def held(self, text: str) -> dict[str, int]:
        """Bytes of a prompt by backend."""
        found = self.index.lookup(chain(text), self.fleet.generation_of)
        return {
            backend.name: found[target.id].text_bytes
            for backend in self.fleet.backends.values()
            for target in backend.targets.values()
            if target.id in found
        }


def test_what_one_recorded_or_corrected_another_knows_by_the_names_of_targets() -> None:
    a, b = Prefixed(), Prefixed()
    publish(b.fleet, "e0", 1.0, models=("z", "m", "n"), plan=OPENAI)  # other numbers of targets
    a.record("one two three", "e1", NOW)
    b.section.take("a", wired(a.section.changes(0.0)), 0.0, is_restored=False)
    assert b.held("one two other") == {"e1": 6}
    assert b.index.lookup(chain("one two"), b.fleet.generation_of).popitem()[1].source == "peer"
    a.index.correct(chain("one two three"), a.fleet.backends["e1"].targets["m"].id)
    b.section.take("a", wired(a.section.changes(0.0)), 0.0, is_restored=False)
    assert b.held("one two three") == {}
    assert b.section.changes(0.0) == [], "what was told is not told on"


def test_a_flood_of_prompts_is_told_a_part_at_each_tick() -> None:
    a, b = Prefixed(), Prefixed()
    for number in range(60):
        links = tuple(range(number * 1000, number * 1000 + 1000))
        target = a.fleet.backends["e0"].targets["m"]
        assert a.index.pending is not None
        a.index.pending.add(PrefixOp(target.id, links, NOW))
    sizes = []
    while entries := wired(a.section.changes(0.0)):
        sizes.append(sum(len(packed) // 8 for entry in entries for _, packed in entry[3]))
        b.section.take("a", entries, 0.0, is_restored=False)
    assert sum(sizes) == 60_000
    assert max(sizes) <= 10_000
    assert len(b.index) == 60_000


def test_a_snapshot_comes_in_frames_and_is_marked_as_restored() -> None:
    a, b = Prefixed(), Prefixed()
    for number in range(FRAME):
        a.record(f"{number} x y", "e0", NOW - number)
    frames = [wired(frame) for frame in a.section.full(0.0)]
    assert len(frames) >= 3
    for frame in frames:
        assert sum(len(packed) // 8 for entry in frame for _, packed in entry[3]) <= FRAME
        b.section.take("a", frame, 0.0, is_restored=True)
    assert len(b.index) == len(a.index) == 3 * FRAME
    assert b.index.lookup(chain("7 x y"), b.fleet.generation_of).popitem()[1].source == "restored"


def test_what_is_about_a_target_that_is_not_known_yet_waits_for_it_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Prefixed(), Prefixed()
    a.record("one two", "e0", NOW)
    a.record("one other", "e1", NOW)
    [first, second] = wired(a.section.changes(0.0))
    late = [[first[0], "e0", "late", *first[3:]], [second[0], "e1", "never", *second[3:]]]
    b.section.take("a", late, 0.0, is_restored=True)
    assert len(b.index) == 0
    b.section.again(100.0)
    publish(b.fleet, "e0", 1.0, models=("m", "n", "late"), plan=OPENAI)
    b.section.again(200.0)
    target = b.fleet.backends["e0"].targets["late"]
    assert b.index.lookup(chain("one two"), b.fleet.generation_of).keys() == {target.id}
    b.section.again(601.0)
    assert (b.section._waiting, b.section._hashes) == ({}, 0)
    monkeypatch.setattr("pharos.peer.sections.prefixes.MOST_WAITING", 4)
    b.section.take("a", [late[1]] * 9, 700.0, is_restored=True)
    assert b.section._hashes == 3


def test_hashes_of_another_seed_and_unknown_targets_are_left_out() -> None:
    a, b = Prefixed(), Prefixed()
    a.record("one two", "e0", NOW)
    [entry] = wired(a.section.changes(0.0))
    b.section.take("a", [["pharos prefix 0", *entry[1:]], [entry[0], "elsewhere", *entry[2:]]], 0.0, is_restored=False)
    b.section.take("a", [[entry[0], "e0", "unknown", *entry[3:]], [*entry, "more"]], 0.0, is_restored=False)
    assert b.held("one two") == {"e0": 6}


OPS = st.lists(
    st.tuples(st.sampled_from(["a b c", "a b", "a x", "y"]), st.sampled_from(["e0", "e1"]), st.integers(0, 50)),
    max_size=8,
)


@given(ops=OPS, data=st.data())
def test_prefixes_end_the_same_in_whatever_order_and_however_often_they_come(
    ops: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    entries = []
    for text, backend, ago in ops:
        teller = Prefixed()
        teller.record(text, backend, NOW - ago)
        entries += wired(teller.section.changes(0.0))
    one, two = Prefixed(), Prefixed()
    one.section.take("a", entries, 0.0, is_restored=False)
    again = data.draw(st.lists(st.sampled_from(entries))) if entries else []
    two.section.take("a", [*data.draw(st.permutations(entries)), *again], 0.0, is_restored=False)
    for text in ("a b c d", "a x", "y"):
        assert one.held(text) == two.held(text)


# --- gauges


def test_requests_in_hand_reach_the_others_ledger_and_go_when_they_end_or_their_instance_does() -> None:
    one, two, kicks = fleet(), fleet(), []
    waiting = {"m": 3}
    teller = sections.Gauges(Elsewhere(one), lambda: waiting, lambda: None)
    heard = Elsewhere(two)
    taker = sections.Gauges(heard, dict, lambda: kicks.append(1))
    assert wired(teller.changes(0.0)) == [["m", 3]]
    one.dispatched(one.backends["e0"].targets["m"], 0.0)
    entries = wired(teller.changes(0.2))
    assert entries == [["e0", "m", 1], ["m", 3]]
    taker.take("a", entries, 0.2, is_restored=False)
    target = two.backends["e0"].targets["m"]
    assert (target.peers, heard.waiting, len(kicks)) == (1, {"m": 3}, 1)
    taker.take("a", entries, 0.3, is_restored=False)
    assert len(kicks) == 1, "the same again is no news"
    assert teller.changes(0.4) == []
    assert teller.changes(1.0) == teller.again(1.0) == entries, "told anew before it is too old"
    one.ended(one.backends["e0"].targets["m"], one.backends["e0"].targets["m"].slots, 1.1)
    waiting.clear()
    taker.take("a", wired(teller.changes(1.2)), 1.2, is_restored=False)
    assert (target.peers, heard.waiting, len(kicks)) == (0, {}, 2)
    taker.take("b", [["e0", "m", 2]], 1.3, is_restored=False)
    assert target.peers == 2
    taker.forget("b", 1.4)
    taker.forget("nobody", 1.4)
    assert (target.peers, len(kicks)) == (0, 4)


def test_a_snapshot_says_nothing_of_the_moment() -> None:
    of = fleet()
    section = sections.Gauges(Elsewhere(of), dict, lambda: None)
    section.take("a", [["e0", "m", 2]], 0.0, is_restored=True)
    assert of.backends["e0"].targets["m"].peers == 0
    assert [*section.full(0.0)] == []


# --- usage


def book(origin: str) -> UsageBook:
    def day_of(now: float) -> Day:
        number = math.floor(now // 86_400)
        return Day(number, number * 86_400.0, (number + 1) * 86_400.0)

    return UsageBook(origin, day_of, retention_days=400, now=NOW)


def test_usage_of_one_is_known_to_the_other_through_deltas_repetitions_and_snapshots() -> None:
    a, b, c, settled = book("a"), book("b"), book("c"), []
    of = {one: sections.Cells(one, lambda: NOW, lambda: settled.append(1)) for one in (a, b, c)}
    a.count("k", "m", NOW, prompt_tokens=10, completion_tokens=5)
    b.count("k", "m", NOW, prompt_tokens=1)
    of[b].take("x", wired(of[a].changes(0.0)), 0.0, is_restored=False)
    assert settled
    assert of[a].changes(0.0) == []
    of[b].take("x", wired(of[a].again(0.0)), 0.0, is_restored=False)
    assert b.today(NOW)["k"].tokens == 16
    assert [entry[0] for entry in wired(of[b].again(0.0))] == ["b"], "each repeats its own only"
    for frame in of[b].full(0.0):
        of[c].take("x", wired(frame), 0.0, is_restored=True)
    assert c.today(NOW) == b.today(NOW)


def test_the_last_minute_is_shared_and_is_in_no_snapshot() -> None:
    a, b = book("a"), book("b")
    one, two = sections.Minutes(a, lambda: NOW), sections.Minutes(b, lambda: NOW)
    a.minutes.add("k", NOW)
    two.take("x", wired(one.changes(0.0)), 0.0, is_restored=False)
    two.take("x", wired(one.again(0.0)), 0.0, is_restored=False)
    assert b.minutes.count("k", NOW) == 1
    assert one.changes(0.0) == [*one.full(0.0)] == []


# --- responses, and what was learned


def test_ids_of_responses_are_told_once_and_exported_the_latest_first() -> None:
    of = fleet()
    ids, others = Responses(), Responses(most=3)
    ids.note("resp_0", of.backends["e0"].targets["m"], "k")
    ids.share()
    ids.note("resp_1", of.backends["e1"].targets["m"], "k")
    one, two = sections.Responses(ids), sections.Responses(others)
    assert wired(one.changes(0.0)) == [["resp_1", "e1", "m", "k"]]
    assert one.changes(0.0) == []
    [frame] = one.full(0.0)
    assert [entry[0] for entry in frame] == ["resp_1", "resp_0"]
    two.take("x", wired(frame), 0.0, is_restored=True)
    assert others.origin("resp_0", "k", of).backend == "e0"
    assert others.origin("resp_1", "k", of).backend == "e1"
    two.take("x", [["../../etc", "e0", "m", "k"], ["resp_" + "x" * 300, "e0", "m", "k"]], 0.0, is_restored=False)
    two.take(
        "x",
        [["resp_0", "e1", "m", "zz"], ["resp_2", "e0", "m", "k"], ["resp_3", "e0", "m", "k"]],
        0.0,
        is_restored=False,
    )
    assert len(others) == 3


def test_what_was_noted_here_is_not_changed_by_what_others_say() -> None:
    of, ids = fleet(), Responses()
    ids.note("resp_0", of.backends["e0"].targets["m"], "mine")
    sections.Responses(ids).take("x", [["resp_0", "e1", "m", "a"]], 0.0, is_restored=False)
    assert ids.origin("resp_0", "mine", of).backend == "e0"


NOTES = st.lists(
    st.tuples(
        st.sampled_from(["resp_1", "resp_2"]), st.sampled_from(["e0", "e1"]), st.just("m"), st.sampled_from("kj")
    ),
    max_size=6,
)


@given(notes=NOTES, data=st.data())
def test_ids_end_the_same_in_whatever_order_and_however_often_they_come(
    notes: list[tuple[str, str, str, str]], data: st.DataObject
) -> None:
    one, two = Responses(), Responses()
    for told in notes:
        one.take(told)
    for told in [*data.draw(st.permutations(notes)), *notes]:
        two.take(told)
    assert sorted(one.export()) == sorted(two.export())


def test_what_was_learned_is_in_snapshots_only() -> None:
    a, b = fleet(), fleet()
    a.tokens.add("m", 1000, 4000)
    one = sections.Learned(Inheritance(a), lambda: NOW)
    two = sections.Learned(Inheritance(b), lambda: NOW)
    assert one.changes(0.0) == one.again(0.0) == []
    for frame in one.full(0.0):
        two.take("x", wired(frame), 0.0, is_restored=True)
    assert b.tokens_per_byte("m") == 0.25


# --- all of them


def wired(entries: list[Any]) -> list[Any]:
    """What comes out at the other end."""
    return wire.decode_entries(wire.encode_entries(entries))


def everything() -> list[Section]:
    of = fleet()
    return [
        sections.Gauges(Elsewhere(of), dict, lambda: None),
        sections.Cells(book("a"), lambda: NOW),
        sections.Minutes(book("a"), lambda: NOW),
        sections.Responses(Responses()),
        sections.Learned(Inheritance(of), lambda: NOW),
        sections.Prefixes(of, PrefixIndex(), lambda: NOW),
    ]


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=9) | st.sampled_from(["e0", "m", "speed", "pharos prefix 2"]),
    lambda some: st.lists(some, max_size=6),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("number", range(6))
@given(entries=st.lists(JUNK, max_size=6))
def test_no_entries_at_all_break_a_section(number: int, entries: list[Any]) -> None:
    everything()[number].take("x", entries, 0.0, is_restored=False)


def test_a_section_that_fails_harms_no_other_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(sections.Responses):
        name = "broken"

        def take(self, *_: object, **__: object) -> None:
            raise ZeroDivisionError

    all_of = Sections([Broken(Responses()), *everything()])
    assert all_of.take("x", "broken", wire.encode_entries(["secret entry"]), 0.0) == 0
    assert all_of.take("x", "cells", msgspec.Raw(b"\xc1"), 0.0) == 0
    assert all_of.take("x", "of a later release", wire.encode_entries([1]), 0.0) == 0
    assert all_of.take("x", "minutes", wire.encode_entries([["b", "k", int(NOW), 1]]), 0.0) == 1
    assert all_of.faults == 2
    assert "secret entry" not in caplog.text
    assert (all_of.is_latest("gauges"), all_of.is_latest("cells"), all_of.is_latest("unknown")) == (True, False, False)


def test_news_are_cut_into_frames_but_what_is_of_one_moment_stays_whole() -> None:
    class Much(sections.Responses):
        name = "much"

        def changes(self, now: float) -> list[Any]:
            del now
            return [*range(2 * FRAME + 1)]

    class Whole(Much):
        name = "whole"
        is_latest = True

    pieces = Sections([Much(Responses()), Whole(Responses())]).changes(0.0)
    assert [(piece.name, piece.entries) for piece in pieces] == [
        ("much", FRAME), ("much", FRAME), ("much", 1), ("whole", 2 * FRAME + 1),
    ]  # fmt: skip
