"""The shared secret: two are valid while it is exchanged, and nothing of it is ever said."""

from pathlib import Path

import pytest

from pharos.core.fleet import Event
from pharos.peer.secret import PREVIOUS_S, Secret

FIRST, SECOND, THIRD = ("first" * 4, "second" * 4, "third" * 4)


class Kept:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.events = list[Event]()
        self.secret = Secret(str(path), clock=lambda: self.now, on_event=self.events.append)

    def write(self, text: str) -> None:
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)
        self.now += 2

    def takes(self, *secrets: str) -> list[bool]:
        return [self.secret.is_valid(f"Bearer {secret}") for secret in secrets]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    it = Kept(tmp_path / "secret")
    it.write(f"{FIRST}\n")
    return it


def test_the_secret_is_taken_and_nothing_else(kept: Kept) -> None:
    assert kept.takes(FIRST, SECOND, FIRST + "x", FIRST[:-1], "", "\udcff") == [True, *[False] * 5]
    assert not kept.secret.is_valid(None)
    assert not kept.secret.is_valid(FIRST)
    assert not kept.secret.is_valid(f"Basic {FIRST}")


def test_the_one_of_before_is_taken_for_a_while(kept: Kept) -> None:
    assert kept.secret.valid() == (FIRST,)
    kept.write(SECOND)
    assert kept.secret.valid() == (SECOND, FIRST)
    assert kept.takes(FIRST, SECOND) == [True, True]
    kept.now += PREVIOUS_S
    assert kept.takes(FIRST, SECOND) == [False, True]


def test_a_second_line_is_taken_as_long_as_it_is_there(kept: Kept) -> None:
    kept.write(f"{SECOND}\n{FIRST}\n")
    kept.now += 2 * PREVIOUS_S
    assert kept.secret.valid() == (SECOND, FIRST)
    kept.write(f"{SECOND}\n{THIRD}")
    assert kept.secret.valid() == (SECOND, THIRD), "never more than two"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"), ("short", "less than 16"), ("a\nb\nc", "more than two"), ("é" * 20, "no header"),
        ("x" * 5000, "too long"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named_and_the_last_good_secret_used_on(kept: Kept, text: str, why: str) -> None:
    assert kept.takes(FIRST) == [True]
    kept.write(text)
    assert kept.takes(FIRST) == [True]
    assert why in kept.events[-1].text
    assert why in str(kept.secret.trouble())
    assert FIRST not in kept.events[-1].text


def test_without_a_good_secret_nobody_is_let_in(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing")
    assert kept.secret.valid() == ()
    assert kept.takes("", FIRST) == [False, False]
    assert "nothing is shared with peers" in kept.events[-1].text
    kept.path.write_bytes(b"\xff\xfe\xff")
    kept.now += 2
    assert kept.secret.valid() == ()
    assert "no text" in kept.events[-1].text
