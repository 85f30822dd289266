import pytest

from pharos.core.fleet.lengths import OUTPUT_TOKENS, OutputLengths

CHAT = "/v1/chat/completions"


def test_nothing_like_it_was_seen_so_the_assumption_holds_up_to_the_limit() -> None:
    lengths = OutputLengths()
    assert lengths.expected("alice", "m", CHAT, None) == OUTPUT_TOKENS
    assert lengths.expected("alice", "m", CHAT, 4096) == OUTPUT_TOKENS
    assert lengths.expected("alice", "m", CHAT, 1) == 1.0
    assert lengths.expected("alice", "m", CHAT, -5) == 0.0


def test_replies_become_as_long_as_those_before_of_the_same_key_model_and_route() -> None:
    lengths = OutputLengths()
    lengths.add("alice", "m", CHAT, None, 100)
    assert lengths.expected("alice", "m", CHAT, None) == 100.0
    lengths.add("alice", "m", CHAT, None, 200)
    assert lengths.expected("alice", "m", CHAT, None) == pytest.approx(110.0)
    assert lengths.expected("alice", "m", "/v1/completions", None) == OUTPUT_TOKENS
    assert lengths.expected("alice", "other", CHAT, None) == OUTPUT_TOKENS


def test_a_key_that_was_not_seen_is_as_all_others_are() -> None:
    lengths = OutputLengths()
    lengths.add("alice", "m", CHAT, None, 100)
    assert lengths.expected("bob", "m", CHAT, None) == 100.0
    lengths.add("bob", "m", CHAT, None, 10)
    assert lengths.expected("bob", "m", CHAT, None) == 10.0
    assert lengths.expected("alice", "m", CHAT, None) == 100.0


def test_a_classifier_that_asks_for_one_token_teaches_nothing_about_chats() -> None:
    lengths = OutputLengths()
    lengths.add("alice", "m", CHAT, 1, 1)
    lengths.add("alice", "m", CHAT, 4096, 700)
    assert lengths.expected("alice", "m", CHAT, 1) == 1.0
    assert lengths.expected("alice", "m", CHAT, 5000) == 700.0, "limits within a factor of two are alike"
    assert lengths.expected("alice", "m", CHAT, None) == OUTPUT_TOKENS


def test_nobody_is_expected_to_get_more_than_the_limit() -> None:
    lengths = OutputLengths()
    lengths.add("alice", "m", CHAT, 1000, 900)
    assert lengths.expected("alice", "m", CHAT, 600) == 600.0


def test_memory_is_bounded_and_what_was_not_seen_for_longest_goes() -> None:
    lengths = OutputLengths(kept=4)
    for i in range(50):
        lengths.add(f"key-{i}", "m", CHAT, None, 10 + i)
    assert len(lengths) == 4
    assert lengths.expected("key-49", "m", CHAT, None) == 59.0
    assert lengths.expected("key-0", "m", CHAT, None) != 10.0
    assert repr(lengths) == "<OutputLengths 4 averages>"


def test_limits_beyond_all_replies_are_one_class() -> None:
    lengths = OutputLengths()
    lengths.add("alice", "m", CHAT, 1 << 62, 100)
    assert lengths.expected("alice", "m", CHAT, 1 << 40) == 100.0
