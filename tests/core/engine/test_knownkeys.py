import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.knownkeys import KnownKeys
from pharos.core.engine.masks import MASK

KEY = 'sk-"very"/secret+&1'
KNOWN = KnownKeys((f"Bearer {KEY}", "short"))


@pytest.mark.parametrize(
    "shown",
    [KEY, quote(KEY), quote(KEY, safe=""), quote(KEY, safe="").lower(), json.dumps(KEY)[1:-1]],
)
def test_a_key_is_masked_in_every_form(shown: str) -> None:
    assert KNOWN.text(f"you sent {shown}.") == f"you sent {MASK}."


@given(st.text(max_size=9), st.text(max_size=9))
def test_a_key_is_masked_within_base64(before: str, after: str) -> None:
    told = base64.b64encode((before + KEY + after).encode()).decode()
    assert MASK in KNOWN.text(told)


@given(st.text(min_size=6))
def test_any_value_can_be_known(value: str) -> None:
    known = KnownKeys((value,))
    assert MASK in known.text(value) or not value.split()


def test_what_is_short_stands_in_texts_by_chance_and_is_left() -> None:
    assert KNOWN.text("a short Bearer") == "a short Bearer"
    assert KnownKeys().text("anything") == "anything"


def test_bodies_lines_and_headers_are_masked_by_looks_as_well() -> None:
    assert KNOWN.body(json.dumps({"a": KEY, "cmd": "x"}).encode()) == json.dumps({"a": MASK, "cmd": MASK}).encode()
    assert KNOWN.body(b"\xff" + KEY.encode()) == b"\xff" + MASK.encode()
    assert KNOWN.line(f"cmd=x --api-key abc {KEY}") == f"cmd=x --api-key {MASK} {MASK}"
    assert KNOWN.plain("nginx key=abc") == f"nginx key={MASK}"


def test_every_text_within_a_value_is_masked_but_for_fields_that_are_kept() -> None:
    row = {"a": [KEY, 1], "name": KEY, "b": {"c": (KEY,)}}
    assert KNOWN.deep(row, frozenset({"name"})) == {"a": [MASK, 1], "name": KEY, "b": {"c": [MASK]}}
    assert KEY not in repr(KNOWN)
