from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.prefix import Chain, Match, PendingOps, PrefixIndex, PrefixOp
from pharos.core.prefix.index import FRAME, MOST_NEW

A, B, C = 1, 2, 3


def chain(*hashes: int) -> Chain:
    return Chain(hashes, tuple(100 * place for place in range(1, len(hashes) + 1)))


def run(first: int, count: int) -> Chain:
    return chain(*range(first, first + count))


def always(generation: int) -> Callable[[int], int | None]:
    return lambda _target: generation


def matched(index: PrefixIndex, asked: Chain, generation: int = 1) -> dict[int, int]:
    return {target: match.text_bytes for target, match in index.lookup(asked, always(generation)).items()}


# --- looking up


def test_each_target_has_its_longest_match() -> None:
    index = PrefixIndex()
    index.record(chain(1, 2, 3), A, 1, 10.0)
    index.record(chain(1, 2), B, 1, 11.0)
    index.record(chain(1, 9, 30), C, 1, 12.0)
    assert index.lookup(chain(1, 2, 3, 4), always(1)) == {
        A: Match(300, "local"),
        B: Match(200, "local"),
        C: Match(100, "local"),
    }
    assert matched(index, chain(8, 7)) == {}
    assert len(index) == 5


def test_a_prompt_that_parts_in_the_middle_matches_up_to_there_only() -> None:
    index = PrefixIndex()
    index.record(chain(1, 2, 3, 4), A, 1, 10.0)
    assert matched(index, chain(1, 2, 30, 40)) == {A: 200}


def test_what_was_cached_before_a_reload_does_not_count() -> None:
    index = PrefixIndex()
    index.record(chain(1, 2), A, 1, 10.0)
    assert matched(index, chain(1, 2), generation=2) == {}
    index.record(chain(1), A, 2, 11.0)
    assert matched(index, chain(1, 2), generation=2) == {A: 100}


def test_a_target_that_is_gone_does_not_count() -> None:
    index = PrefixIndex()
    index.record(chain(1), A, 1, 10.0)
    index.record(chain(1), B, 1, 10.0)
    assert index.lookup(chain(1), lambda target: None if target == A else 1) == {B: Match(100, "local")}


def test_four_targets_of_one_beginning_are_known_the_last_that_used_it() -> None:
    index = PrefixIndex()
    for target in range(1, 6):
        index.record(chain(1), target, 1, float(target))
    assert set(matched(index, chain(1))) == {2, 3, 4, 5}


# --- correcting


def test_a_correction_takes_the_target_out_beyond_what_it_kept() -> None:
    index = PrefixIndex()
    index.record(chain(1, 2, 3), A, 1, 10.0)
    index.record(chain(1, 2, 3), B, 1, 10.0)
    index.correct(chain(1, 2, 3, 4), A, kept_bytes=100)
    assert matched(index, chain(1, 2, 3)) == {A: 100, B: 300}
    index.correct(chain(1, 2, 3), A)
    assert matched(index, chain(1, 2, 3)) == {B: 300}
    index.correct(chain(1, 2, 3), B)
    assert len(index) == 0


def test_a_number_that_names_another_target_has_none_of_the_old_matches() -> None:
    index = PrefixIndex()
    index.record(chain(1, 2), A, 0, 10.0)
    index.forget_target(A)
    assert matched(index, chain(1, 2), generation=0) == {}
    index.record(chain(1), A, 0, 5.0)
    assert matched(index, chain(1, 2), generation=0) == {A: 100}
    assert [op.hashes for op in index.export(20.0)] == [(1,)]


# --- bounds


def test_b56_prompts_without_end_leave_as_many_entries_as_there_is_room_for() -> None:
    index = PrefixIndex(capacity=500)
    for prompt in range(5_000):
        index.record(run(10 * prompt, 10 if prompt % 100 else 2_000), A, 1, float(prompt))
        assert len(index) <= 500
    assert matched(index, run(49_990, 10)) == {A: 1000}
    assert matched(index, run(0, 10)) == {}


@pytest.mark.parametrize("capacity", [0, 1, 2, 3, 7])
def test_no_room_is_too_small(capacity: int) -> None:
    index = PrefixIndex(capacity)
    for turn in range(9):
        index.record(run(turn, 3), turn % 3, 1, float(turn))
        index.take(PrefixOp(5, (turn, 70 + turn), float(turn)), 5, 1, 50.0, "restored")
        assert len(index) <= capacity


def test_a_flood_of_prompts_that_nobody_sends_again_takes_nobody_s_conversation() -> None:
    index = PrefixIndex(capacity=1000)
    for turn in (1, 2):
        index.record(run(1_000_000, 20), A, 1, float(turn))
    for prompt in range(2_000):
        index.record(run(100 * prompt, 100), B, 1, 10.0 + prompt)
    assert matched(index, run(1_000_000, 20)) == {A: 2000}
    assert repr(index).endswith("20 used again>")


def test_what_was_used_again_long_ago_gives_way_to_what_is_used_now() -> None:
    index = PrefixIndex(capacity=100)
    index.record(run(1_000_000, 20), A, 1, 1.0)
    index.record(run(1_000_000, 20), A, 1, 2.0)
    for prompt in range(30):
        for turn in (0, 1):
            index.record(run(10 * prompt, 10), B, 1, 10.0 + prompt + turn / 2)
    assert matched(index, run(1_000_000, 20)) == {}
    assert matched(index, run(290, 10)) == {B: 1000}


def test_one_new_prompt_of_thousands_of_messages_takes_little_room() -> None:
    index = PrefixIndex()
    long = run(0, 2_000)
    index.record(long, A, 1, 1.0)
    assert len(index) <= MOST_NEW
    assert matched(index, long) == {A: 200_000}
    near = chain(*range(1_000), *range(500_000, 501_000))
    assert 95_000 <= matched(index, near)[A] <= 100_000
    index.record(long, A, 1, 2.0)
    assert len(index) <= MOST_NEW + MOST_NEW


def test_a_known_conversation_is_recorded_whole_however_long_it_grew() -> None:
    index = PrefixIndex()
    for count in range(1, 301, 2):
        index.record(run(0, count), A, 1, float(count))
    assert len(index) == 299
    assert {end for end in range(100, 30_000, 100) if matched(index, run(0, end // 100)) != {A: end}} == set()


def test_the_longest_links_of_a_prompt_go_before_the_shortest() -> None:
    index = PrefixIndex(capacity=10)
    index.record(run(0, 10), A, 1, 1.0)
    index.record(chain(100, 101), B, 1, 2.0)
    assert matched(index, run(0, 10)) == {A: 700}


# --- between instances


def test_an_index_is_carried_over_in_operations() -> None:
    index, other = PrefixIndex(), PrefixIndex()
    index.record(chain(1, 2, 3), A, 7, 10.0)
    index.record(chain(1, 2), B, 7, 11.5)
    index.record(chain(8), A, 7, 12.0)
    for op in index.export(20.0):
        other.take(op, op.target_id + 10, 4, 30.0, "restored")
    assert other.lookup(chain(1, 2, 3), always(4)) == {A + 10: Match(300, "restored"), B + 10: Match(200, "restored")}
    assert sorted((op.target_id, *sorted(op.hashes), op.used_at) for op in other.export(20.0)) == [
        (11, 1, 2, 10.0),
        (11, 3, 10.0),
        (11, 8, 12.0),
        (12, 1, 2, 11.5),
    ]


def test_what_was_used_again_is_exported_first_and_each_part_from_the_newest_on() -> None:
    index = PrefixIndex()
    for link, now in ((1, 1.0), (2, 2.0), (3, 3.0), (1, 4.0), (2, 5.0), (4, 6.0)):
        index.record(chain(link), A, 1, now)
    assert [(op.hashes, op.used_at) for op in index.export(9.0)] == [((2,), 5.0), ((1,), 4.0), ((4,), 6.0), ((3,), 3.0)]


def test_the_index_may_change_while_it_is_exported() -> None:
    index = PrefixIndex()
    for link in range(5):
        index.record(chain(link), A, 1, float(link))
    ops = index.export(9.0)
    assert next(ops).hashes == (4,)
    index.correct(chain(2), A)
    index.record(chain(77), A, 1, 8.0)
    assert [op.hashes for op in ops] == [(3,), (1,), (0,)]


def test_operations_are_short_frames() -> None:
    index = PrefixIndex()
    for first in range(0, 3 * FRAME, 100):
        index.record(run(first, 100), A, 1, 5.0)
    assert [len(op.hashes) for op in index.export(9.0)] == [FRAME, FRAME, FRAME]


def test_what_is_void_or_of_the_future_is_not_exported() -> None:
    index = PrefixIndex()
    index.record(chain(1), A, 1, 5.0)
    index.record(chain(2), A, 2, 5.0)
    index.record(chain(3), A, 2, 50.0)
    assert [op.hashes for op in index.export(9.0, always(2))] == [(2,)]
    assert [op.hashes for op in index.export(9.0)] == [(2,), (1,)]
    assert list(index.export(9.0, lambda _target: None)) == []


def test_taken_slots_have_the_receiver_s_generation_and_the_way_they_came() -> None:
    index = PrefixIndex()
    index.take(PrefixOp(9, (1, 2), 5.0), A, 6, 10.0, "peer")
    assert index.lookup(chain(1, 2), always(6)) == {A: Match(200, "peer")}
    index.record(chain(1, 2), A, 6, 5.0)
    assert index.lookup(chain(1), always(6)) == {A: Match(100, "peer")}
    index.record(chain(1, 2), A, 6, 5.01)
    assert index.lookup(chain(1), always(6)) == {A: Match(100, "local")}


def test_a_peer_s_clock_that_is_ahead_gives_its_records_no_longer_life() -> None:
    index = PrefixIndex()
    index.take(PrefixOp(9, (1,), 9e9), A, 1, 10.0, "peer")
    assert [op.used_at for op in index.export(10.0)] == [10.0]


def test_a_removal_leaves_what_was_recorded_later() -> None:
    index = PrefixIndex()
    index.record(chain(1), A, 1, 5.0)
    index.record(chain(2), A, 1, 7.0)
    index.take(PrefixOp(9, (1, 2, 3), 6.0, remove=True), A, 1, 10.0, "peer")
    assert matched(index, chain(1)) == {}
    assert matched(index, chain(2)) == {A: 100}


def test_a_snapshot_adds_to_what_is_known_and_loses_its_oldest_first() -> None:
    index = PrefixIndex(capacity=100)
    index.record(chain(0), A, 1, 100.0)
    for link in range(200):
        index.take(PrefixOp(9, (link,), 90.0 - link / 10), B, 1, 100.0, "restored")
    assert matched(index, chain(0)) == {A: 100, B: 100}
    assert matched(index, chain(1)) == {B: 100}
    assert matched(index, chain(199)) == {}
    assert len(index) <= 100
    for prompt in range(50):
        index.record(run(1000 + 10 * prompt, 10), C, 1, 200.0)
    assert matched(index, chain(1)) == {B: 100}
    index.record(chain(1), C, 1, 300.0)
    assert matched(index, chain(1)) == {B: 100, C: 100}


def test_peers_are_told_of_own_records_and_corrections_only() -> None:
    index = PrefixIndex(pending=PendingOps())
    assert index.pending is not None
    index.record(chain(1, 2), A, 1, 5.25)
    index.record(chain(1, 2), B, 1, 6.0, "peer")
    index.take(PrefixOp(9, (7,), 6.0), C, 1, 10.0, "peer")
    index.correct(chain(1, 2, 3), A, kept_bytes=100)
    index.correct(chain(1, 2, 3), C)
    assert index.pending.take_all() == [
        PrefixOp(A, (1, 2), 5.25),
        PrefixOp(A, (2,), 5.25, remove=True),
    ]


def test_a_peer_that_does_all_that_it_is_told_knows_the_same() -> None:
    index, other = PrefixIndex(pending=PendingOps()), PrefixIndex()
    assert index.pending is not None
    index.record(chain(1, 2, 3), A, 1, 5.0)
    index.record(chain(1, 2), B, 1, 6.0)
    index.correct(chain(1, 2, 3), A, kept_bytes=100)
    for op in index.pending.take_all():
        other.take(op, op.target_id, 1, 10.0, "peer")
    assert matched(other, chain(1, 2, 3)) == matched(index, chain(1, 2, 3)) == {A: 100, B: 200}


records = st.builds(
    PrefixOp,
    st.integers(1, 6),
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(0, 9).map(float),
)


@given(st.lists(records, max_size=12), st.randoms(use_true_random=False), st.sampled_from(["peer", "restored"]))
def test_records_may_come_in_any_order_and_more_than_once(ops: list[PrefixOp], random: object, source: str) -> None:
    def after(order: list[PrefixOp]) -> set[tuple[int, int, float]]:
        index = PrefixIndex()
        for op in order:
            index.take(op, op.target_id, 1, 100.0, source)  # type: ignore[arg-type]
        return {(op.target_id, link, op.used_at) for op in index.export(100.0) for link in op.hashes}

    shuffled = ops + ops
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert after(shuffled) == after(ops)


class Naive:
    """The same, without bounds: a dictionary of dictionaries."""

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, int]] = {}

    def record(self, asked: Chain, target: int, generation: int) -> None:
        for link in asked.hashes:
            self.entries.setdefault(link, {})[target] = generation

    def correct(self, asked: Chain, target: int, kept_bytes: int) -> None:
        for link, end in zip(asked.hashes, asked.ends, strict=True):
            if end > kept_bytes:
                self.entries.get(link, {}).pop(target, None)

    def lookup(self, asked: Chain, generation: int) -> dict[int, int]:
        return {
            target: end
            for link, end in zip(asked.hashes, asked.ends, strict=True)
            for target, made in self.entries.get(link, {}).items()
            if made == generation
        }


def said(messages: list[int]) -> Chain:
    """A chain as it is made: a link stands for all messages up to it, so that it never stands behind other ones."""
    links, link = [], 0
    for message in messages:
        link = link * 4 + message
        links.append(link)
    return chain(*links)


chains = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(said)


@given(
    st.lists(
        st.tuples(st.sampled_from(["record", "correct"]), chains, st.integers(1, 4), st.integers(0, 2)), max_size=25
    ),
    chains,
)
def test_it_knows_what_a_simple_one_knows(steps: list[tuple[str, Chain, int, int]], asked: Chain) -> None:
    index, naive = PrefixIndex(), Naive()
    for now, (what, one, target, number) in enumerate(steps):
        if what == "record":
            index.record(one, target, number, float(now))
            naive.record(one, target, number)
        else:
            index.correct(one, target, 100 * number)
            naive.correct(one, target, 100 * number)
    for generation in range(3):
        assert matched(index, asked, generation) == naive.lookup(asked, generation)
