import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_ends import parse_usage_ends
from pharos.core.engine.usage_fields import Dialect, Usage

USAGE = b'"usage":{"prompt_tokens":7,"completion_tokens":9}'


def test_usage_behind_a_large_reply_is_found_in_its_tail() -> None:
    for end in (b"}", b" } \r\n\t", b',"timings":{"predicted_n":9},"id":"x"}'):
        assert parse_usage_ends(b'{"choices":["xxx', b'xxx"],' + USAGE + end) == Usage(7, None, 9)


def test_timings_ahead_of_usage_are_found_too() -> None:
    tail = b'x"],"timings":{"prompt_ms":2000.0},' + USAGE + b"}"
    assert parse_usage_ends(b"", tail) == Usage(7, None, 9, 2.0)


def test_usage_ahead_of_a_large_reply_is_found_in_its_head() -> None:
    assert parse_usage_ends(b' { "a" : 1 , ' + USAGE + b',"data":[0.1,0.2', b"0.3]}") == Usage(7, None, 9)


@pytest.mark.parametrize(
    "tail",
    [
        b'x", "inner": {' + USAGE + b"}}",
        b'x \\"usage\\":{\\"prompt_tokens\\":7}"}',
        b'{"a\\"usage":{"prompt_tokens":7}}',
        USAGE,
        USAGE + b"} trailing",
        b'"usage" 3}',
        b'"usage":{"prompt_tokens":7',
        b'"usage":' + b"[" * 60_000,
    ],
)
def test_usage_that_is_not_at_the_top_of_the_object_is_not_taken(tail: bytes) -> None:
    assert parse_usage_ends(b"", tail) is None


def test_the_same_name_in_a_nested_object_does_not_hide_the_real_one() -> None:
    tail = b'x",' + USAGE + b',"more":{"usage":{"prompt_tokens":1}}}'
    assert parse_usage_ends(b"", tail) == Usage(7, None, 9)


@given(st.binary(), st.binary())
def test_reading_two_ends_never_raises(head: bytes, tail: bytes) -> None:
    parse_usage_ends(head, tail)


@given(st.text('{}[]":, 1adenotuisge', max_size=200), st.text('{}[]":, 1adenotuisge', max_size=200))
def test_reading_what_looks_like_an_object_never_raises(head: str, tail: str) -> None:
    parse_usage_ends(('{"response":{' + head).encode(), (tail + '"usage":{}}}').encode())


OLLAMA = Dialect(is_ollama=True)
METRICS = b'"total_duration":9,"load_duration":2000000,"prompt_eval_count":33,"eval_count":8}'


def test_metrics_behind_a_large_text_or_context_are_found() -> None:
    head = b'{"model":"m","message":{"content":"xxx'
    for tail in (b'xxx"},"done":true,"context":[1,2],' + METRICS, b"1,2]," + METRICS):
        assert parse_usage_ends(head, tail, OLLAMA) == Usage(33, None, 8, None, 0.002)


def test_a_record_that_is_not_the_last_has_no_metrics_whatever_its_end_says() -> None:
    assert parse_usage_ends(b'{"done":false,"response":"xxx', b'x",' + METRICS, OLLAMA) is None


def test_metrics_behind_large_embeddings_are_found() -> None:
    tail = b'0.3]],"total_duration":9,"prompt_eval_count":12}'
    assert parse_usage_ends(b'{"model":"m","embeddings":[[0.1,0.2', tail, OLLAMA) == Usage(12, None, 0)


def test_a_count_that_lies_between_the_ends_is_not_left_out() -> None:
    tail = b'"total_duration":9,"prompt_eval_count":33}'
    assert parse_usage_ends(b'{"done":true,"message":"xxx', tail, OLLAMA, counts_cached=True) == Usage(33)


def test_a_number_at_the_end_of_the_first_bytes_may_go_on() -> None:
    assert parse_usage_ends(b'{"done":true,"eval_count":8,"prompt_eval_count":20', b"51,") == Usage(None, None, 8)


EVENT = b'{"type":"response.completed","response":{"id":"r","instructions":"xxx'
COUNTED = b'"usage":{"input_tokens":7,"output_tokens":9,"input_tokens_details":{"cached_tokens":4}}'


@pytest.mark.parametrize("end", [b"}}", b' } ,"sequence_number":3}\n', b',"user":null},"x":[{}]}'])
def test_usage_of_the_last_event_of_a_large_response_is_found(end: bytes) -> None:
    assert parse_usage_ends(EVENT, b'xxx"},' + COUNTED + end) == Usage(7, 4, 9)


def test_what_kind_of_event_it_is_may_stand_at_its_end() -> None:
    head, end = b'{"response":{"id":"r","output":[{"text":"xxx', b'},"type":"response.completed"}'
    assert parse_usage_ends(head, b'xxx"}],' + COUNTED + end) == Usage(7, 4, 9)
    assert parse_usage_ends(head, b'xxx"}],' + COUNTED + b'},"type":"response.created"}') is None
    assert parse_usage_ends(head, b'xxx"}],' + COUNTED + b"}}") is None


@pytest.mark.parametrize(
    "head",
    [
        b'{"type":"response.completed","other":{"id":"r","text":"xxx',
        b'{"type":"response.completed","response":"xxx',
        b'{"type":"response.completed","response":null,"other":{"text":"xxx',
        b'{"type":"response.completed","response":{"id":"r"},"other":{"text":"xxx',
        b"",
        b"[",
    ],
)
def test_usage_of_another_object_of_the_event_is_not_taken(head: bytes) -> None:
    assert parse_usage_ends(head, b'xxx",' + COUNTED + b"}}") is None


@pytest.mark.parametrize("end", [b"}]}", b"}},", b"}} x", b"},", b'},"x":', b'},"x":3', b"}", b'},"x" 3}'])
def test_an_end_that_is_not_the_end_of_the_event_proves_nothing(end: bytes) -> None:
    assert parse_usage_ends(EVENT, b'xxx"},' + COUNTED + end) is None
