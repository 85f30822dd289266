"""What the caches of engine doubles hold, and for whom."""

import pytest

from tests.fakes.caches import BlockCache, SlotCache, common

TALK = "you are a helper. " * 20
FIRST, SECOND = TALK + "hello" * 30, TALK + "hello" * 30 + "reply and more " * 10
OTHER = "quite another prompt " * 20


def served(cache: SlotCache | BlockCache, *prompts: str) -> list[int]:
    """Serve prompts one after the other: how many tokens of each were there."""
    found = []
    for prompt in prompts:
        found.append(cache.begin(prompt, len(prompt)))
        cache.end(prompt, is_whole=True)
    return found


@pytest.mark.parametrize(("one", "other", "length"), [("", "a", 0), ("abc", "abd", 2), ("ab", "abc", 2), ("x", "y", 0)])
def test_what_two_texts_begin_with_alike_is_counted(one: str, other: str, length: int) -> None:
    assert common(one, other) == common(other, one) == length


def test_a_conversation_that_goes_on_keeps_its_slot() -> None:
    cache = SlotCache(2)
    assert served(cache, OTHER, FIRST, SECOND) == [0, 0, len(FIRST)]
    assert served(cache, OTHER) == [len(OTHER) - 1]


def test_an_unlike_prompt_takes_an_empty_slot_before_the_oldest_one() -> None:
    cache = SlotCache(2)
    assert served(cache, FIRST, OTHER, FIRST) == [0, 0, len(FIRST) - 1]
    assert served(cache, "third " * 50) == [0]
    assert cache.prompts == [FIRST, "third " * 50]


def test_nobody_finds_a_prompt_in_a_slot_that_is_in_use() -> None:
    cache = SlotCache(2)
    served(cache, FIRST)
    assert cache.begin(FIRST, len(FIRST)) == len(FIRST) - 1
    assert cache.begin(FIRST, len(FIRST)) == 0
    cache.end(FIRST, is_whole=True)
    cache.end(FIRST, is_whole=False)
    assert cache.busy == 0
    assert cache.prompts == [FIRST]


def test_what_a_slot_gives_up_comes_back_from_the_hosts_memory() -> None:
    cache = SlotCache(1, host_bytes=10_000)
    assert served(cache, FIRST, OTHER, SECOND) == [0, 0, len(FIRST)]
    assert cache.host == [OTHER]
    small = SlotCache(1, host_bytes=len(OTHER))
    assert served(small, FIRST, OTHER, SECOND) == [0, 0, 0]
    assert small.host == [OTHER]


def test_a_prompt_of_which_most_stays_in_its_slot_is_not_saved() -> None:
    cache = SlotCache(1, host_bytes=10_000)
    served(cache, FIRST, SECOND)
    assert cache.host == []


def test_a_shared_cache_holds_blocks_of_what_came_to_its_end() -> None:
    cache = BlockCache(1000)
    assert cache.begin(FIRST, len(FIRST)) == 0
    cache.end(FIRST, is_whole=False)
    assert len(cache) == 0
    first, again = served(cache, FIRST, FIRST)
    assert first == 0
    assert again > 0
