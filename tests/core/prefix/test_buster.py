"""Prompts that no cache ever holds, because something early in them changes all the time."""

from pharos.core.prefix.buster import (
    ALIKE,
    EVERY,
    KEPT,
    LARGEST,
    LEAST,
    SELDOM,
    SMALLEST,
    Busted,
    Busters,
    changing,
    sketch,
)

TEXT = "All that glitters is not gold. " * 400
ENOUGH = EVERY * (LEAST + 1)


def body(when: str, text: str = TEXT) -> bytes:
    return f'{{"model":"m","messages":[{{"role":"system","content":"It is {when}."}},{{"content":"{text}"}}]}}'.encode()


def times(count: int) -> list[bytes]:
    return [body(f"{n:08} o'clock") for n in range(count)]


def test_a_time_of_day_in_front_of_a_long_prompt_is_found_by_place_and_size() -> None:
    busters = Busters()
    for one in times(ENOUGH):
        busters.note("alice", "m", 0.0, one)
    [found] = busters.found()
    at = times(1)[0].index(b"00000000")
    assert (found.key, found.model, found.seen) == ("alice", "m", LEAST)
    assert found.position <= at < found.position + found.size
    assert found.size <= 512
    assert repr(busters) == "<Busters 1 pairs, 1 found>"
    assert "glitters" not in repr(vars(busters))


def test_one_prompt_that_matches_ends_it() -> None:
    busters = Busters()
    for one in times(ENOUGH):
        busters.note("alice", "m", 0.1, one)
    busters.note("alice", "m", 0.5, times(1)[0])
    assert busters.found() == []
    busters.note("alice", "m", 0.9, times(1)[0])
    assert busters.found() == []


def test_a_match_before_anything_was_looked_at_ends_it_too() -> None:
    busters = Busters()
    busters.note("alice", "m", 0.0, times(1)[0])
    busters.note("alice", "m", 1.0, times(1)[0])
    assert busters.found() == []


def test_different_prompts_and_equal_ones_are_no_such_thing() -> None:
    busters = Busters()
    for n in range(ENOUGH):
        busters.note("alice", "m", 0.0, body("noon", f"{n} is another story. " * 300))
        busters.note("bob", "m", 0.0, body("noon"))
        busters.note("carol", "m", 0.0, body("noon" * (n + 1), "short")[: SMALLEST - 1])
    assert busters.found() == []


def test_two_conversations_in_turns_are_told_apart() -> None:
    busters = Busters()
    for n in range(2 * ENOUGH):
        busters.note("alice", "m", 0.0, body(f"{n:08}", TEXT if n // EVERY % 2 else TEXT[::-1]))
    assert [one.key for one in busters.found()] == ["alice"]


def test_whoever_is_told_of_is_looked_at_seldom_and_until_it_ends() -> None:
    busters = Busters()
    for one in times(ENOUGH + SELDOM - 1):
        busters.note("alice", "m", 0.0, one)
    assert [one.seen for one in busters.found()] == [LEAST]
    busters.note("alice", "m", 0.0, body("another"))
    assert [one.seen for one in busters.found()] == [LEAST + 1]
    for n in range(SELDOM):
        busters.note("alice", "m", 0.0, body("noon", f"{n} is another story. " * 300))
    assert busters.found() == []


def test_who_asks_something_else_each_time_is_looked_at_seldom_and_found_once_that_changes() -> None:
    busters = Busters()
    for n in range(20 * SELDOM):
        busters.note("alice", "m", 0.0, body("noon", f"{n} is another story. " * 300))
    assert busters._pairs["alice", "m"].every == SELDOM
    for one in times(2 * SELDOM + ENOUGH):
        busters.note("alice", "m", 0.0, one)
    assert [one.key for one in busters.found()] == ["alice"]


def test_a_body_that_takes_long_to_look_at_is_not() -> None:
    busters = Busters()
    for n in range(ENOUGH):
        busters.note("alice", "m", 0.0, b"%09d" % n + b"x" * LARGEST)
    assert busters.found() == []
    assert not busters._pairs


def test_what_grows_at_its_end_is_no_such_thing() -> None:
    busters = Busters()
    for n in range(ENOUGH):
        busters.note("alice", "m", 0.0, body("noon", TEXT[: 4000 + 900 * n]))
    assert busters.found() == []


def test_so_many_clients_are_remembered_and_no_more() -> None:
    busters = Busters()
    for n in range(KEPT + 1):
        for one in times(EVERY):
            busters.note(f"key-{n}", "m", 0.0, one)
    assert repr(busters) == f"<Busters {KEPT} pairs, 0 found>"
    assert len(busters._sketches) == KEPT
    for one in times(ENOUGH):
        busters.note("key-0", "m", 0.0, one)
    assert len(busters._sketches) == KEPT
    assert [one.key for one in busters.found()] == ["key-0"]


def test_bodies_of_other_sizes_are_not_compared() -> None:
    one, other = sketch(b"x" * 5000), sketch(b"x" * 50_000)
    assert changing(one, other) is None
    assert changing(one, one) is None
    near = sketch(b"y" * 64 + b"x" * 4936)
    assert near.block == one.block
    span = changing(one, near)
    assert span is not None
    assert span[0] == 0
    assert span[1] <= near.size * (1 - ALIKE)


def test_large_bodies_take_as_little_room_as_small_ones() -> None:
    assert len(sketch(b"x" * 30_000_000).heads) <= 64
    assert isinstance(Busted("a", "m", 1, 2, 3), Busted)
