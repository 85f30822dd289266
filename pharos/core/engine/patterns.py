"""How much work a regular expression can be made to do by the worst of lines, judged before it is ever used.

A search cannot be interrupted, so a pattern that is slow on some line stops everything. Forbidden here: running a
pattern to find out, and trust in what lines look like. What cannot be shown to be fast is refused.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

_parser: Any = importlib.import_module("re._parser")  # the only way to the tree that the standard library itself uses

MOST_STEPS: Final = 1 << 22
"""Ways to try on one line, at most: some hundredths of a second."""
MOST_CHARACTERS: Final = 1000
"""Length of a pattern."""
MOST_REPEATS: Final = 1000
"""Times that a repeat with a bound may ask for, repeats inside of it included."""

_OTHER: Final = 128
"""Stands for all characters beyond ASCII."""
_ALL: Final = frozenset(range(_OTHER + 1))
_CLASSES: Final = {"DIGIT": re.compile(r"\d"), "SPACE": re.compile(r"\s"), "WORD": re.compile(r"\w")}
_BEGIN: Final = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING"})
_END: Final = frozenset({"AT_END", "AT_END_STRING"})

_Items = Sequence[tuple[Any, Any]]
_Set = frozenset[int]


class TooMuchError(ValueError):
    """A pattern may take too long; in words."""


def check(pattern: str, line: int) -> None:
    """Raise `TooMuchError` unless a search in any line of so many characters is over soon.

    Raises `re.error` for what is no regular expression.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise TooMuchError(f"has more than {MOST_CHARACTERS} characters")
    try:
        tree = _parser.parse(pattern)
        steps, _, _ = _Judge(line).sequence(list(tree), frozenset(), 1)
    except (RecursionError, OverflowError):
        raise TooMuchError("is nested too deeply, or repeats too often") from None
    if not _is_anchored(tree):
        steps *= line
    if steps > MOST_STEPS:
        raise TooMuchError("can match one line in too many ways: begin it with ^, and use fewer parts like .*")


def _is_anchored(tree: Any) -> bool:  # noqa: ANN401 - the standard library's own tree
    if tree.state.flags & re.MULTILINE or not len(tree):
        return False
    name, what = tree[0]
    return str(name) == "AT" and str(what) in _BEGIN


class _Judge:
    """Goes through the tree from the end: of each part the steps from there on, how it begins, whether it is empty."""

    def __init__(self, line: int) -> None:
        self._line = line

    def sequence(self, items: _Items, rest: _Set, times: int) -> tuple[int, _Set, bool]:
        """Return steps, first characters (the rest's too, when it may be empty) and whether it may be empty.

        `times`: how often the repeats around it may ask for it.
        """
        steps, first, is_empty = 1, rest, True
        for name, what in reversed(items):
            ways, begins, may_be_empty, is_final = self._item(str(name), what, first, times)
            steps = steps + ways if is_final else steps * ways
            first = begins | first if may_be_empty else begins
            is_empty = is_empty and may_be_empty
        return steps, first, is_empty

    def _item(self, name: str, what: Any, rest: _Set, times: int) -> tuple[int, _Set, bool, bool]:  # noqa: ANN401
        """Judge one item; the last: once it matched, no other way through it is tried."""
        match name:
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return 1, _characters(name, what), False, False
            case "AT":
                # Nothing but the end follows where the end must be.
                return (1, frozenset(), False, False) if str(what) in _END else (1, frozenset(), True, False)
            case "SUBPATTERN":
                return *self.sequence(what[3], rest, times), False
            case "ATOMIC_GROUP":
                return *self.sequence(what, rest, times), True
            case "ASSERT" | "ASSERT_NOT":
                steps, _, _ = self.sequence(what[1], frozenset(), times)
                return steps, frozenset(), True, True
            case "BRANCH":
                return *self._branch(what[1], rest, times), False
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeat(name, what, rest, times)
            case _:
                raise TooMuchError("refers to what another part of it matched")

    def _branch(self, branches: Sequence[_Items], rest: _Set, times: int) -> tuple[int, _Set, bool]:
        if times > 1:
            raise TooMuchError("repeats a choice (|): write a set like [ab], or make the repeat possessive, as in *+")
        judged = [self.sequence(branch, rest, times) for branch in branches]
        first = frozenset[int]().union(*(begins for _, begins, _ in judged))
        is_empty = any(may_be_empty for _, _, may_be_empty in judged)
        one_fits = not is_empty and len(first) == sum(len(begins) for _, begins, _ in judged)
        return (max if one_fits else sum)(steps for steps, _, _ in judged), first, is_empty

    def _repeat(self, name: str, what: Any, rest: _Set, times: int) -> tuple[int, _Set, bool, bool]:  # noqa: ANN401
        least, most, body = int(what[0]), what[1], what[2]
        is_bounded, most = most is not _parser.MAXREPEAT, int(most)
        if is_bounded and most * times > MOST_REPEATS:
            raise TooMuchError(f"asks for more than {MOST_REPEATS} repeats")
        is_possessive = name == "POSSESSIVE_REPEAT"
        if times > 1 and least != most and not is_possessive:
            raise TooMuchError("has a repeat inside a repeat: make the inner one possessive, as in ++")
        inner = 1 if is_possessive else times * (min(most, MOST_REPEATS) if most > 0 else 1)
        steps, begins, is_empty = self.sequence(body, frozenset(), inner)
        if is_empty and most > 1:
            raise TooMuchError("repeats what may be empty")
        is_open_ended = begins & rest and not is_possessive
        ways = min(most - least + 1, self._line) if is_open_ended else self._line if is_possessive and steps > 1 else 1
        return steps * ways, begins, least == 0 or is_empty, is_possessive


def _characters(name: str, what: Any) -> _Set:  # noqa: ANN401
    """What one character may be, upper and lower case alike."""
    if name == "ANY":
        return _ALL
    if name == "LITERAL":
        return _both_cases({what})
    if name == "NOT_LITERAL":
        return _ALL - {what}
    members = {point for kind, value in what if str(kind) != "NEGATE" for point in _members(str(kind), value)}
    return (_ALL - (members - {_OTHER})) if str(what[0][0]) == "NEGATE" else _both_cases(members)


def _members(kind: str, value: Any) -> Iterator[int]:  # noqa: ANN401
    if kind == "LITERAL":
        yield value
    elif kind == "RANGE":
        yield from range(value[0], min(value[1], _OTHER) + 1)
        yield value[1]
    else:
        word = str(value).removeprefix("CATEGORY_")
        matches = _CLASSES[word.removeprefix("NOT_")].match
        yield from (point for point in range(_OTHER) if (matches(chr(point)) is None) == word.startswith("NOT_"))
        yield _OTHER


def _both_cases(points: set[int]) -> _Set:
    """Patterns may leave case aside, and some characters beyond ASCII are then equal to letters."""
    known = {min(point, _OTHER) for point in points}
    letters = {ord(other) for point in known if point < _OTHER for other in (chr(point).lower(), chr(point).upper())}
    return frozenset(known | letters)
