import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from pharos.core.prefix import Chain, ChainBuilder, Known
from pharos.core.prefix.chain import MOST_LINKS

GOLDEN_ONE = 8563432991917351974
GOLDEN_TWO = 14985686326428286268
GOLDEN_SALTED = (16680104435525547475, 7671179581182000940)


def chain(*links: bytes, model: str = "m", salt: bytes = b"") -> Chain:
    builder = ChainBuilder(model, salt)
    for link in links:
        builder.add_link(link, len(link))
    made = builder.chain()
    assert made is not None
    return made


def test_hashes_never_change() -> None:
    """Peers and state files hold them: a new value here needs a new seed."""
    assert chain(b"one", b"two") == Chain((GOLDEN_ONE, GOLDEN_TWO), (3, 6))
    assert chain(b"one", b"two", salt=b"group").hashes == GOLDEN_SALTED


def test_two_processes_with_other_hash_seeds_make_the_same_chain() -> None:
    program = (
        "from pharos.core.prefix import ChainBuilder\n"
        "c = ChainBuilder('m'); c.add_link(b'one', 3); c.add_link(b'two', 3); print(*c.chain().hashes)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{GOLDEN_ONE} {GOLDEN_TWO}\n"}


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=6), st.lists(st.binary(max_size=9), max_size=6))
def test_a_longer_prompt_begins_with_the_links_of_the_shorter(shorter: list[bytes], more: list[bytes]) -> None:
    longer = chain(*shorter, *more)
    assert longer.hashes[: len(shorter)] == chain(*shorter).hashes
    assert longer.ends[-1] == sum(map(len, shorter)) + sum(map(len, more))


def test_a_link_stands_for_all_before_it() -> None:
    assert chain(b"a", b"c").hashes[1] != chain(b"b", b"c").hashes[1]


def test_model_and_salt_part_what_is_the_same_otherwise() -> None:
    same = [
        chain(b"x", model=model, salt=salt).hashes
        for model, salt in (("m", b""), ("n", b""), ("m", b"s"), ("", b"m"), ("m", b"t"), ("sm", b""), ("\ud800", b""))
    ]
    assert len(set(same)) == len(same)


def test_parts_of_a_link_are_added_one_by_one() -> None:
    builder = ChainBuilder("m")
    builder.add(b"o", 1)
    builder.add(b"ne", 0)
    assert repr(builder) == "<ChainBuilder 0 links, 1 bytes>"
    assert builder.chain() is None
    assert builder.link()
    made = builder.chain()
    assert made is not None
    assert (made.hashes, made.ends) == (chain(b"one").hashes, (1,))


def test_a_chain_says_when_it_is_full() -> None:
    builder = ChainBuilder("m")
    assert [builder.link() for _ in range(MOST_LINKS)] == [True] * (MOST_LINKS - 1) + [False]


def test_many_links_at_once_are_the_same_as_one_by_one_and_no_more_than_there_is_room_for() -> None:
    builder = ChainBuilder("m")
    assert builder.add_links([(b"o", "ne"), (b"tw", b"o")])
    made = builder.chain()
    assert made == Chain((GOLDEN_ONE, GOLDEN_TWO), (2, 3))
    assert not builder.add_links([(b"m", b"x")] * MOST_LINKS)
    full = builder.chain()
    assert full is not None
    assert (len(full.hashes), full.ends[-1]) == (MOST_LINKS, MOST_LINKS + 1)


# --- links that were made before

Link = list[str | bytes]
pieces = st.one_of(st.binary(max_size=5), st.text(st.characters(max_codepoint=127), max_size=5))


def built(links: list[Link], known: Known | None, model: str = "m") -> Chain | None:
    builder = ChainBuilder(model, b"", known)
    for link in links:
        for piece in link:
            builder.add(piece, len(piece))
        builder.link()
    return builder.chain()


@given(st.lists(st.lists(st.lists(pieces, min_size=1, max_size=3), max_size=6), max_size=8), st.integers(1, 5))
def test_what_is_remembered_of_other_prompts_changes_no_hash(prompts: list[list[Link]], kept: int) -> None:
    known = Known(kept)
    for links in prompts * 2:
        assert built(links, known) == built(links, None)


def test_a_link_is_the_same_from_a_text_and_from_its_bytes_in_however_many_pieces() -> None:
    known = Known()
    ways: list[Link] = [["abc"], [b"abc"], ["a", b"bc"], [b"", "abc", ""]]
    chains = [built([way, ["next"]], memory) for way in ways for memory in (known, None)]
    assert chains.count(chains[0]) == len(chains)


def test_a_text_in_wide_characters_is_not_taken_for_another_with_the_same_memory() -> None:
    """Python's hash of a text is that of its characters in memory, where these two are alike."""
    known = Known()
    wide, narrow = "\u4241\u4443", "ABCD"
    assert hash(wide) == hash(narrow)
    one, other = (built([[text if text.isascii() else text.encode()]], known) for text in (wide, narrow))
    assert one is not None
    assert other is not None
    assert one.hashes != other.hashes


def test_links_are_remembered_of_one_model_each() -> None:
    known = Known()
    assert built([["a"]], known, "m") != built([["a"]], known, "n")


def test_what_is_remembered_is_bounded_and_what_is_used_stays() -> None:
    known = Known(4)
    for number in range(100):
        built([["often"]], known)
        built([[str(number)]], known)
        assert len(known.young) < 4
    assert repr(known) == "<Known 2 young, 4 old>"


def test_what_is_asked_for_among_the_old_is_young_again() -> None:
    known = Known(2)
    built([["a"], ["b"]], known)
    assert (len(known.young), len(known.old)) == (0, 2)
    built([["a"]], known)
    [(key, link)] = known.young.items()
    assert known.old[key] == link
