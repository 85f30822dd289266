import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.logline import MAX_LINE, MAX_OWN_LINE
from pharos.core.engine.patterns import MOST_CHARACTERS, TooMuchError, check

OLD_STARTS = r'^time=\S+ cmd="[^"]*? --model [^"]*?(?P<model>sha256-[0-9a-f]{64}) [^"]*?-np (?P<value>[0-9]{1,9})[ "]'


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        r"running (?P<value>\d+) now",
        r"model=(?P<model>\S+) .*slots=(?P<value>\d+)",
        r"^.*model=(?P<model>\S+) .*slots=(?P<value>\d+)",
        r"slots(?: (?P<value>\d+))?",
        r"(?:a|bc)d .*\bx$",
        r"(\w|\d)*!",
        r"(?:[^\"]++|\\.)*+x",
        r"(?:a++b)*c",
        r"(?:a{2}){3}",
        r"^(?>a*?b)(?>a*?c)(?>a*?d)",
        r"^(?=.*a)(?!.*b).*c",
        r"[0-9]+[^0-9]+[^0-9]",
        r"é+a",
        r"[a-é]{0}b",
    ],
)
def test_what_is_over_soon_on_every_line_is_allowed(pattern: str) -> None:
    check(pattern, MAX_OWN_LINE)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"run (a+)+$ (?P<value>\d+)", "repeat inside a repeat"),
        (r"(x+x+)+y", "repeat inside a repeat"),
        (r"(a?){50}a{50}", "repeat inside a repeat"),
        (r"(?>(a+)+b)", "repeat inside a repeat"),
        (r"(a*+)*b", "may be empty"),
        (r"(a|ab|b)*!", r"repeats a choice"),
        (r"(?:a{1000}){1000}", "more than 1000 repeats"),
        (r"(a)\1*b", "refers"),
        (r"(a)?(?(1)b|c)", "refers"),
        (r".*a.*b.*c", "too many ways"),
        (r"(?m)^.*a.*b", "too many ways"),
        (r"a?" * 30 + "a" * 30, "too many ways"),
        (r"^(?:.*a|.*b).*(?:.*c)d", "too many ways"),
        (r"(?i)^A*a*[^b]*é*.*x", "too many ways"),
        (r"(?:(?:[^a]*b[^a]*c)d)*+e.*f", "too many ways"),
        ("(" * 490 + ")" * 490, "nested too deeply"),
        ("a" * (MOST_CHARACTERS + 1), "characters"),
    ],
)
def test_what_a_line_could_make_slow_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(TooMuchError, match=why):
        check(pattern, MAX_OWN_LINE)


def test_three_searches_one_inside_the_other_are_too_much_for_a_long_line() -> None:
    with pytest.raises(TooMuchError):
        check(OLD_STARTS, MAX_LINE)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(st.text(r"ab()|*+?{}[]^\d1,<>:=!$.", max_size=20))
def test_any_text_is_judged_or_is_no_regular_expression(pattern: str) -> None:
    try:
        check(pattern, MAX_OWN_LINE)
    except (TooMuchError, re.error):
        return
    re.compile(pattern)


@given(st.text("ab()|*+?.", max_size=10), st.text("ab", max_size=14))
def test_what_is_allowed_can_be_run(pattern: str, line: str) -> None:
    try:
        check(pattern, MAX_OWN_LINE)
    except (TooMuchError, re.error):
        return
    re.search(pattern, line)
