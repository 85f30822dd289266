import gzip
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.sim.trace import TraceError, read, turns

EXCERPTS = Path(__file__).parent.parent.parent / "testdata" / "traces"
MOONCAKE = json.dumps({"timestamp": 1500, "input_length": 1000, "output_length": 20, "hash_ids": [7, 8]})
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109"
)
DECISION = {
    "request_id": "r1", "at": 100.5, "path": "/v1/chat/completions", "policy": "cost", "key": "team", "model": "m",
    "request": {"prompt_tokens": 50, "seed": 1, "expected_tokens": 30.0, "max_tokens": 64},
    "usage": {"prompt_tokens": 60, "cached_tokens": 0, "completion_tokens": 12},
    "prefix": {"hashes": ["00ff", "0102"], "ends": [100, 240]},
}  # fmt: skip


def written(folder: Path, text: str, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_excerpt_of_mooncake_is_read_whole() -> None:
    trace = read(EXCERPTS / "mooncake_conversation.jsonl")
    assert (trace.form, len(trace.rows), trace.skipped) == ("mooncake", 380, 0)
    first, asked = trace.rows[0], next(turns(trace, ("m",)))
    assert (first.at_s, first.prompt_tokens, first.output_tokens, len(first.hashes)) == (0.0, 6758, 500, 14)
    assert (asked.ask.prompt_tokens, asked.ask.prompt_bytes, asked.ask.model) == (6758, 6758 * 4, "m")


def test_the_excerpt_of_azure_is_read_whole() -> None:
    trace = read(EXCERPTS / "azure_llm_2023_conv.csv")
    assert (trace.form, len(trace.rows), trace.rows[0].at_s) == ("azure", 399, 0.0)
    assert trace.rows[1].at_s == pytest.approx(4.314579)
    assert (trace.rows[1].prompt_tokens, trace.rows[1].output_tokens) == (396, 109)


def test_blocks_that_two_requests_share_are_a_shared_beginning_and_the_rest_is_their_own(tmp_path: Path) -> None:
    trace = read(written(tmp_path, f"{MOONCAKE}\n{MOONCAKE}"))
    first, second = (turn.ask.chain.hashes for turn in turns(trace, ("m",)))
    assert first[:2] == second[:2]
    longer = MOONCAKE.replace("1000", "1030")
    first, second = (turn.ask.chain.hashes for turn in turns(read(written(tmp_path, f"{longer}\n{longer}")), ("m",)))
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(MOONCAKE.encode()))
    assert len(read(path).rows) == 1


def test_a_decision_log_is_a_trace_with_its_keys_models_and_what_came(tmp_path: Path) -> None:
    head = json.dumps({"pharos_decisions": 1, "version": "0", "at": 1.0})
    refused = json.dumps(DECISION | {"request": None})
    (row,) = read(written(tmp_path, f"{head}\n{json.dumps(DECISION)}\n{refused}\n")).rows
    assert (row.key, row.model, row.prompt_tokens, row.output_tokens, row.max_tokens) == ("team", "m", 60, 12, 64)
    assert (row.hashes, row.ends) == ((0xFF, 0x0102), (100, 240))


def test_a_reply_of_unknown_length_is_as_long_as_was_expected(tmp_path: Path) -> None:
    (row,) = read(written(tmp_path, json.dumps(DECISION | {"usage": None, "prefix": None}))).rows
    assert (row.prompt_tokens, row.output_tokens) == (50, 30)


def test_requests_come_in_the_order_of_their_times_from_0(tmp_path: Path) -> None:
    late, early = MOONCAKE.replace("1500", "9000"), MOONCAKE
    assert [row.at_s for row in read(written(tmp_path, f"{late}\n{early}")).rows] == [0.0, 7.5]


def test_time_can_be_pressed_and_lengths_scaled(tmp_path: Path) -> None:
    late = MOONCAKE.replace("1500", "9500")
    _, turn = turns(read(written(tmp_path, f"{MOONCAKE}\n{late}")), ("m",), faster=4.0, scale=0.1)
    assert (turn.pause_s, turn.ask.prompt_tokens, turn.ask.output_tokens) == (2.0, 100, 2)
    assert turn.ask.prompt_bytes == 400


def test_models_that_the_fleet_lacks_take_its_models_places(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(DECISION | {"model": name}) for name in ("x", "y", "x", "b"))
    assert [turn.ask.model for turn in turns(read(written(tmp_path, lines)), ("a", "b"))] == ["a", "b", "a", "b"]


BROKEN = [
    ("{", "line 2: "),
    ('{"timestamp": 1}', "line 2: hash_ids is missing"),
    (MOONCAKE.replace("1000", "-1"), "line 2: input_length is -1, no count"),
    (MOONCAKE.replace("1000", "1.5"), "line 2: input_length is 1.5, no count"),
    (MOONCAKE.replace("1000", "true"), "line 2: input_length is True, no count"),
    (MOONCAKE.replace("1500", '"x"'), "line 2: the time is 'x', no number"),
    (MOONCAKE.replace("1500", "NaN"), "line 2: the time is nan, no number"),
    (MOONCAKE.replace("[7, 8]", "7"), "line 2: "),
    ("[]", "line 2: "),
    ("\x00\ufffd", "line 2: "),
    ("[" * 100_000, "line 2: "),
]


@pytest.mark.parametrize(("line", "said"), BROKEN)
def test_a_broken_line_is_named_by_its_number_and_the_file_refused(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, f"{MOONCAKE}\n{line}\n{MOONCAKE}\n")
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "--skip-bad" in str(caught.value)


@pytest.mark.parametrize(("line", "said"), BROKEN)
def test_broken_lines_are_left_out_and_counted_when_they_may_be(tmp_path: Path, line: str, said: str) -> None:
    del said
    trace = read(written(tmp_path, f"{MOONCAKE}\n{line}\n\n{MOONCAKE}\n"), skip_bad=True)
    assert (len(trace.rows), trace.skipped) == (2, 1)


def test_of_many_broken_lines_five_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 6: .*; and 2 more"):
        read(written(tmp_path, "\n".join([MOONCAKE, *["{"] * 7])))


@pytest.mark.parametrize(
    "line", ["2023-11-16 18:15:46.68,374", "yesterday,374,44", "2023-11-16 18:15:46.68,many,44", "2023-11-16,1,1,1"]
)
def test_a_broken_line_of_azures_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(TraceError, match="line 4: "):
        read(written(tmp_path, f"{AZURE}\n{line}\n"))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello", "[" * 100_000, "{}", "[1]", "TIMESTAMP,ContextTokens,GeneratedTokens\n"]
)
def test_a_file_of_no_known_form_or_without_requests_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError):
        read(written(tmp_path, text), skip_bad=True)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "t.jsonl.gz"
    broken.write_bytes(gzip.compress(MOONCAKE.encode() * 99)[:-20])
    for path in (tmp_path / "none", tmp_path, broken, written(tmp_path, MOONCAKE, "plain.gz")):
        with pytest.raises(TraceError, match="cannot be read"):
            read(path)


def test_the_first_requests_suffice_when_only_they_are_wanted(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, f"{MOONCAKE}\n{MOONCAKE}\n{{"), limit=2).rows) == 2


@given(st.binary(max_size=200), st.sampled_from([MOONCAKE, json.dumps(DECISION)]), st.integers(0, 300))
def test_whatever_a_line_holds_it_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, line: str, at: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    data = line.encode()
    path.write_bytes(data + b"\n" + data[:at] + junk + data[at:])
    trace = read(path, skip_bad=True)
    assert len(trace.rows) + trace.skipped >= 1
    for turn in turns(trace, ("m",)):
        assert turn.ask.prompt_tokens >= 1
        assert list(turn.ask.chain.ends) == sorted(turn.ask.chain.ends)
        msgspec.json.encode(turn)
