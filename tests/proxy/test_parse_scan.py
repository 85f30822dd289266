import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy.parse_scan import MOST_STEPS, Scan, ScanError, TooMuchError, scan_object

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
bodies = st.dictionaries(st.text(max_size=20), values, max_size=5)


@given(bodies, st.sampled_from([None, 2]))
def test_the_tolerant_scanner_finds_the_same_members_as_a_strict_reader(
    body: dict[str, object], indent: int | None
) -> None:
    raw = json.dumps(body, indent=indent).encode()
    found = {member.name: json.loads(raw[member.start : member.end]) for member in scan_object(raw)}
    assert found == json.loads(raw)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b"{1:2}", b'{"a"}', b'{"a":}', b'{"a":1 2}', b'{"a":[}', b'{"a":[1', b'{"a":"x', b'{"a":1,}'],
)
def test_the_tolerant_scanner_refuses_what_is_no_object(raw: bytes) -> None:
    with pytest.raises(ScanError):
        scan_object(raw)


@given(bodies, st.integers(min_value=8, max_value=64))
def test_where_a_window_ends_changes_nothing(body: dict[str, object], window: int) -> None:
    raw = json.dumps(body, allow_nan=True).encode()
    longest = max((len(repr(value)) for value in _numbers(body)), default=0)
    if longest < window - 1:
        assert Scan(raw, window).members(0, 500) == Scan(raw).members(0, 500)


def _numbers(value: object) -> list[object]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in _numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in _numbers(inner)]
    return [value] if isinstance(value, int | float) else []


pieces = st.sampled_from(
    [*'{}[],:" \\', "1", "-1.5e3", "01", "true", "nul", "NaN", '"a"', '"a":', "\\n", "\\u00e9", "\n", "\x01"]
)


@given(bodies, st.lists(st.tuples(st.integers(0, 10_000), pieces, st.booleans()), max_size=3), st.lists(pieces))
def test_the_scanner_takes_what_json_takes(
    body: dict[str, object], changes: list[tuple[int, str, bool]], other: list[str]
) -> None:
    text = json.dumps(body)
    for at, piece, replaces in changes:
        cut = at % len(text)
        text = text[:cut] + piece + text[cut + replaces :]
    for one in (text, "".join(other), '{"a":[' + "".join(other) + "]}"):
        raw = one.encode("latin-1")
        try:
            loaded = json.loads(one)
        except json.JSONDecodeError:
            with pytest.raises(ScanError):
                Scan(raw).document(500)
        else:
            members = Scan(raw).document(500)
            assert (members is not None) == isinstance(loaded, dict)
            if members is not None:
                assert {m.name for m in members} == set(loaded)


def test_a_name_of_no_protocol_is_not_decoded() -> None:
    names = [member.name for member in scan_object(b'{"' + b"n" * 1022 + b'":1,"' + b"n" * 1023 + b'":2}')]
    assert names == ["n" * 1022, ""]


def test_brackets_too_deep_to_be_walked_are_given_up() -> None:
    deep = b'{"a":' + b"[" * (MOST_STEPS + 2)
    with pytest.raises(TooMuchError) as caught:
        scan_object(deep)
    assert caught.value.what == "nesting"


@pytest.mark.parametrize("unit", [b"[],", b'"\\n",', b"1,", b'{"a":[{"b":"c"}]},', b"[[[[[1]]]]],"])
def test_a_scan_in_a_thread_lets_others_run(unit: bytes) -> None:
    body = b'{"a":[' + unit * max(1, 4 * 2**20 // len(unit)) + b"1]}"

    def scan() -> None:
        try:
            scan_object(body)
        except TooMuchError:
            return

    thread = threading.Thread(target=scan)
    thread.start()
    turns = 0
    while thread.is_alive():
        thread.join(0.001)
        turns += 1
    assert turns > 5, "one step in C over such a body would have kept the interpreter to itself"
