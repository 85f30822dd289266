"""Every recorded reply, replayed through `usage_of` and `merge`, and mutated: right numbers or none."""

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.engine.recipes import RECIPES, by_kind
from pharos.core.engine.usage_ends import parse_usage_ends
from pharos.core.engine.usage_fields import Dialect, Usage, Zero, usage_of
from tests.core.engine.usage_table import USAGE, key_of, row_of
from tests.fakes import captures, records

KINDS = {"mlx-lm": "openai"}
"""Folder of captures -> kind, where they differ."""
FIELDS = Usage.__struct_fields__

REPLIES = [
    (path.parts[-4], path.parts[-3], path.stem)
    for path in sorted(captures.TESTDATA.glob("*/*/streams/*.response"))
    if "synthetic" not in path.parts
]
VERSIONS = sorted({(engine, version) for engine, version, _ in REPLIES})
TELLING = [reply for reply in REPLIES if USAGE.get(key_of(*reply)) is not None]


def body_of(engine: str, version: str, name: str) -> bytes:
    return (captures.TESTDATA / engine / version / "streams" / f"{name}.response").read_bytes()


def content_type_of(engine: str, version: str, name: str) -> str:
    if not (captures.TESTDATA / engine / version / "streams" / f"{name}.headers").exists():
        return "text/event-stream"  # an open stream of events, recorded without its head
    headers = captures.exchange(engine, version, name).headers
    return next((value for key, value in headers.items() if key.lower() == "content-type"), "")


def dialect_of(engine: str, version: str) -> Dialect:
    return by_kind(KINDS.get(engine, engine)).dialect(version)


@functools.cache
def counts_cached(engine: str, version: str) -> bool:
    """Whether some reply of that server states cached tokens."""
    dialect = dialect_of(engine, version)
    found = [
        records.usage_in(body_of(*reply), content_type_of(*reply), dialect)
        for reply in REPLIES
        if reply[:2] == (engine, version)
    ]
    return any(usage is not None and usage.cached_tokens is not None for usage in found)


def read(reply: tuple[str, str, str], body: bytes | None = None) -> Usage | None:
    return records.usage_in(
        body_of(*reply) if body is None else body,
        content_type_of(*reply),
        dialect_of(*reply[:2]),
        counts_cached=counts_cached(*reply[:2]),
    )


def is_right_or_unknown(found: Usage | None, true: Usage | None) -> bool:
    return found is None or all(getattr(found, field) in (None, getattr(true, field)) for field in FIELDS)


@pytest.mark.parametrize("reply", REPLIES, ids="/".join)
def test_a_recorded_reply_states_exactly_this(reply: tuple[str, str, str]) -> None:
    assert key_of(*reply) in USAGE, "a recorded reply has no row"
    assert row_of(read(reply)) == USAGE[key_of(*reply)]


def test_every_row_is_of_a_recorded_reply() -> None:
    assert set(USAGE) <= {f"{engine}/{name}" for engine, _, name in REPLIES} | set(map("/".join, REPLIES))
    assert {key_of(*reply) for reply in REPLIES} == set(USAGE)


def test_a_recorded_refusal_states_nothing() -> None:
    for reply in REPLIES:
        if (captures.TESTDATA / reply[0] / reply[1] / "streams" / f"{reply[2]}.headers").exists():
            status = captures.exchange(*reply).status
            assert status == 200 or USAGE[key_of(*reply)] is None, reply


EXACT = {
    ("ollama", "0.33.0-rc2", "api_chat_full"): Usage(33, None, 8, 0.00026, 0.0006018, 0.001288),
    ("ollama", "0.33.0-rc2", "api_chat_other_ctx"): Usage(33, None, 4, 0.00225, 3.275544941, 0.001737),
    ("ollama", "0.33.0-rc2", "api_generate_stream"): Usage(33, None, 8, 0.000302, 0.000555476, 0.001943),
    ("ollama", "0.33.0-rc2", "api_embed"): Usage(12, None, 0, None, 0.000848968),
    ("ollama", "0.17.4", "api_chat_too_long"): Usage(4096, None, 8, 5.71760148, 0.001925148, 0.015180482),
    ("llamacpp", "b11434", "responses_stream"): Usage(31, 30, 8, 0.010553, None, 0.074973),
    ("llama-swap", "v250-5-g0bdb37", "llama_completion"): Usage(2, 1, 4, 0.000216, None, 0.000182),
    ("llamacpp", "b11549-sleep", "chat_wakes"): Usage(91, 0, 12, 0.002147, None, 0.007293),
}


@pytest.mark.parametrize("reply", EXACT, ids="/".join)
def test_durations_are_seconds(reply: tuple[str, str, str]) -> None:
    found, true = read(reply), EXACT[reply]
    for field in FIELDS:
        value = getattr(true, field)
        assert getattr(found, field) == (value if value is None else pytest.approx(value, rel=1e-12))


def test_the_same_zero_is_a_count_only_from_an_engine_that_counts() -> None:
    for name in ("responses_full", "responses_stream"):
        reply = ("vllm", "0.32.0", name)
        for proved, cached in ((True, 0), (False, None)):
            found = records.usage_in(
                body_of(*reply), content_type_of(*reply), dialect_of("vllm", "0.32.0"), counts_cached=proved
            )
            assert found == Usage(26, cached, 8)


KNOWN = {
    "llamacpp": Dialect(responses_zero=Zero.COUNT, says_done=True),
    "llamacpp-router": Dialect(responses_zero=Zero.COUNT, says_done=True),
    "lmdeploy": Dialect(whole_input=True),
    "ollama": Dialect(whole_input=True, estimates_start=True, is_ollama=True, says_done=True),
    "sglang": Dialect(whole_input=True, says_done=True),
    "vllm": Dialect(responses_zero=Zero.COUNT_ONCE_SEEN, whole_input=True, says_done=True),
}


def test_of_an_engine_whose_replies_were_never_read_nothing_is_taken_for_granted() -> None:
    for kind, recipe in RECIPES.items():
        for version in (None, "1.2.3"):
            assert recipe.dialect(version) == KNOWN.get(kind, Dialect()), kind


@pytest.mark.parametrize("version", ["0.30.0", "0.30.0-rc1", "v0.30.0"])
def test_the_one_ollama_that_left_cached_tokens_out_states_no_prompt(version: str) -> None:
    dialect = dialect_of("ollama", version)
    for name, completion in (("api_chat_full", 8), ("chat_full", 12), ("messages_full", 8), ("responses_full", 8)):
        reply = ("ollama", "0.33.0-rc2", name)
        found = records.usage_in(body_of(*reply), content_type_of(*reply), dialect)
        assert found is not None
        assert (found.prompt_tokens, found.completion_tokens) == (None, completion)


@pytest.mark.parametrize("version", [None, "0.17.4", "0.29.9", "0.30.1", "0.30.00", "0.130.0", "0.33.0-rc2"])
def test_any_other_ollama_counts_the_whole_prompt(version: str | None) -> None:
    assert by_kind("ollama").dialect(version) == KNOWN["ollama"]


WRONG: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.integers(max_value=-1),
    st.integers(min_value=10**15, max_value=10**40),
    st.floats(max_value=-0.5, allow_nan=False),
    st.floats(min_value=1e15, allow_nan=False),
    st.just(float("nan")),
    st.text(max_size=5),
    st.sampled_from(["12", "0", "true", [], {}, [7], True, False]),
)
GONE = object()


def paths_in(value: object, here: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return []
    return [path for key, inner in value.items() for path in ((*here, key), *paths_in(inner, (*here, key)))]


def mutated(value: Any, path: tuple[str, ...], wrong: object) -> Any:
    name, rest = path[0], path[1:]
    changed = {**value, name: mutated(value[name], rest, wrong) if rest else wrong}
    if not rest and wrong is GONE:
        del changed[name]
    return changed


def written(reply: tuple[str, str, str], content: list[Any]) -> bytes:
    kind = content_type_of(*reply).partition(";")[0]
    lines = [one if one == records.DONE else json.dumps(one) for one in content]
    if kind == "text/event-stream":
        return "".join(f"data: {line}\n\n" for line in lines).encode()
    return "\n".join(lines).encode()


@functools.cache
def content_of(reply: tuple[str, str, str]) -> tuple[list[Any], list[int]]:
    """The records of a reply, and which of them state usage or end it."""
    content = list(records.split(body_of(*reply), content_type_of(*reply)).records)
    dialect = dialect_of(*reply[:2])
    return content, [index for index, one in enumerate(content) if usage_of(one, dialect) is not None]


@settings(max_examples=400)
@given(data=st.data(), reply=st.sampled_from(TELLING), wrong=st.one_of(st.just(GONE), WRONG))
def test_a_member_that_is_missing_or_wrong_gives_no_other_number(
    data: st.DataObject, reply: tuple[str, str, str], wrong: object
) -> None:
    content, telling = content_of(reply)
    true = read(reply)
    index = data.draw(st.sampled_from(telling))
    path = data.draw(st.sampled_from(paths_in(content[index])))
    changed = [mutated(one, path, wrong) if at == index else one for at, one in enumerate(content)]
    assert is_right_or_unknown(read(reply, written(reply, changed)), true), path


@pytest.mark.parametrize("reply", TELLING, ids="/".join)
def test_no_member_whose_value_is_gone_gives_another_number(reply: tuple[str, str, str]) -> None:
    content, telling = content_of(reply)
    true = read(reply)
    for index in telling:
        for path in paths_in(content[index]):
            for wrong in (GONE, None, -1, 10**15, float("nan"), "12"):
                changed = [mutated(one, path, wrong) if at == index else one for at, one in enumerate(content)]
                assert is_right_or_unknown(read(reply, written(reply, changed)), true), (path, wrong)


@given(data=st.data(), reply=st.sampled_from(TELLING))
def test_an_event_that_comes_twice_counts_once(data: st.DataObject, reply: tuple[str, str, str]) -> None:
    content, _ = content_of(reply)
    twice = data.draw(st.integers(0, len(content) - 1))
    where = data.draw(st.integers(0, len(content)))
    changed = [*content[:where], content[twice], *content[where:]]
    assert is_right_or_unknown(read(reply, written(reply, changed)), read(reply))


@given(data=st.data(), reply=st.sampled_from(TELLING))
def test_a_member_that_comes_twice_is_the_same_member(data: st.DataObject, reply: tuple[str, str, str]) -> None:
    content, telling = content_of(reply)
    record = content[data.draw(st.sampled_from(telling))]
    name = data.draw(st.sampled_from(sorted(record)))
    text = json.dumps(record)
    body = written(reply, content).replace(
        text.encode(), f"{text[:-1]}, {json.dumps(name)}: {json.dumps(record[name])}}}".encode()
    )
    assert read(reply, body) == read(reply)


@given(data=st.data(), reply=st.sampled_from(TELLING))
def test_a_reply_that_is_cut_at_any_byte_states_the_same_or_nothing(
    data: st.DataObject, reply: tuple[str, str, str]
) -> None:
    body = body_of(*reply)
    end = data.draw(st.integers(0, len(body)) | st.integers(max(0, len(body) - 200), len(body)))
    assert read(reply, body[:end]) in (None, read(reply))


@pytest.mark.parametrize("reply", [reply for reply in TELLING if "json" in content_type_of(*reply)], ids="/".join)
def test_both_ends_of_a_reply_state_what_the_whole_does(reply: tuple[str, str, str]) -> None:
    body, true = body_of(*reply), read(reply)
    given_by = {"dialect": dialect_of(*reply[:2]), "counts_cached": counts_cached(*reply[:2])}
    step = max(1, len(body) // 40)
    for end in (len(body), len(body) - 1, len(body) // 2):
        for kept in (*range(1, len(body), step), len(body) - 1):
            found = parse_usage_ends(body[:kept], body[:end][-kept:], **given_by)
            assert is_right_or_unknown(found, true), (end, kept)
    assert parse_usage_ends(body, body, **given_by) == true


@pytest.mark.parametrize("reply", [reply for reply in TELLING if reply[2] == "responses_stream"], ids="/".join)
def test_both_ends_of_the_last_event_of_a_response_state_its_usage(reply: tuple[str, str, str]) -> None:
    (line,) = [line for line in body_of(*reply).split(b"\n") if b'"response.completed"' in line and b"data:" in line]
    line = line[len(b"data: ") :].strip()
    given_by = {"dialect": dialect_of(*reply[:2]), "counts_cached": counts_cached(*reply[:2])}
    true = read(reply)
    found = [parse_usage_ends(line[:kept], line[-kept:], **given_by) for kept in range(1, len(line), 3)]
    assert all(is_right_or_unknown(one, true) for one in found)
    assert true in found[: len(line) // 6]
