"""Large, deep, damaged and hostile prompts: bounded in links, memory and steps, one chain however they are read."""

import json
import tracemalloc

import pytest

from pharos.core.prefix import Chain
from pharos.core.prefix.chain import MOST_LINKS
from pharos.proxy.parse import THREAD_BYTES
from pharos.proxy.prompt import MOST_BRACES, is_slow, prompt_of
from pharos.proxy.prompt_loose import LARGEST_BYTES
from pharos.proxy.table import ROUTES

PATH = "/v1/chat/completions"


def made(body: bytes, path: str = PATH) -> Chain | None:
    return prompt_of(body, ROUTES[path], "m")[0]


def chain(body: bytes, path: str = PATH) -> Chain:
    found = made(body, path)
    assert found is not None
    return found


def chat(*messages: bytes) -> bytes:
    return b'{"messages":[' + b",".join(messages) + b"]}"


def user(content: bytes) -> bytes:
    return b'{"role":"user","content":%b}' % content


def test_a_conversation_that_outgrows_the_quick_reader_keeps_its_chain() -> None:
    turns = [user(b'"%d %b \\u00e9"' % (turn, b"words " * 500)) for turn in range(100)]
    small, large = chat(*turns[:80]), chat(*turns)
    assert len(small) < THREAD_BYTES < len(large)
    assert chain(large).hashes[:80] == chain(small).hashes
    assert chain(large).ends[:80] == chain(small).ends


def test_a_hundred_thousand_messages_have_a_bounded_chain() -> None:
    turns = [user(b'"%d"' % turn) for turn in range(100_000)]
    found = chain(chat(*turns))
    assert len(found.hashes) == MOST_LINKS
    assert found.hashes[:10] == chain(chat(*turns[:10])).hashes


def test_what_follows_thousands_of_system_messages_is_not_looked_at() -> None:
    system = b'{"role":"system","content":"s"}'
    assert len(chain(chat(*[system] * MOST_LINKS, user(b'"a"'))).hashes) == 1
    assert len(chain(chat(*[system] * (MOST_LINKS - 1), user(b'"a"'))).hashes) == 2


@pytest.mark.parametrize("spare", [0, 1, 2, 30, 64, 65])
@pytest.mark.parametrize("odd", [b'"b"', b'{"role":"user","content":"c"}'])
def test_a_system_prompt_counts_among_the_links(spare: int, odd: bytes) -> None:
    turns = [user(b'"a"')] * (MOST_LINKS - spare) + [odd] * (spare + 1)
    body = b'{"system":"s",' + chat(*turns)[1:]
    assert len(chain(body, "/v1/messages").hashes) == MOST_LINKS


def test_a_plain_prompt_has_a_bounded_chain() -> None:
    found = chain(b'{"prompt":"%b"}' % (b"a" * 3_000_000), "/v1/completions")
    assert (len(found.hashes), found.ends[-1]) == (MOST_LINKS, MOST_LINKS * 1024)


def test_a_message_of_thirty_megabytes_is_told_by_its_bytes() -> None:
    head, size = user(b'"a"'), 30_000_000
    large = chain(chat(head, user(b'"%b"' % (b"x" * size))))
    assert large.hashes[0] == chain(chat(head)).hashes[0]
    assert large.ends[1] == pytest.approx(size, abs=100)
    assert large == chain(chat(head, user(b'"%b"' % (b"x" * size))))
    assert large.hashes[1] != chain(chat(head, user(b'"%b"' % (b"x" * (size - 1) + b"y")))).hashes[1]


def test_a_large_message_is_decoded_as_long_as_that_is_one_short_step() -> None:
    text = "слово, " * 100_000
    plain, escaped = json.dumps(text, ensure_ascii=False).encode(), json.dumps(text).encode()
    assert THREAD_BYTES < len(plain) < len(escaped) < LARGEST_BYTES
    assert chain(chat(user(plain))) == chain(chat(user(escaped)))
    endless = b"\\u00e9" * 800_000
    assert len(endless) > LARGEST_BYTES
    assert chain(chat(user(b'"%b"' % endless))).ends[0] > len(endless)
    crowded = b"[%b0]" % (b"0," * 250_000)
    assert chain(chat(user(crowded))).hashes != chain(chat(user(b" " + crowded))).hashes


def test_a_large_picture_is_no_text() -> None:
    part = b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}]' % (b"A" * (LARGEST_BYTES + 1))
    assert chain(chat(user(part))).ends[0] < 200


def test_millions_of_small_values_do_not_fill_the_memory() -> None:
    body = chat(user(b"[%b0]" % (b"0," * 4_000_000)), user(b'"%b"' % (b'\\"' * 1_000_000)))
    tracemalloc.start()
    found = chain(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.hashes) == 2
    assert peak < 4 * len(body)


def test_a_body_of_nothing_but_objects_gets_no_chain() -> None:
    assert made(chat(user(b"[%b{}]" % (b"{}," * MOST_BRACES)))) is None


@pytest.mark.parametrize("content", [b"\x5b" * 100_000 + b"]" * 100_000, b'{"a":' * 9_000 + b"1" + b"}" * 9_000])
def test_what_is_nested_too_deep_is_told_by_its_bytes(content: bytes) -> None:
    found = chain(chat(user(b'"a"'), user(content), user(b'"b"')))
    assert len(found.hashes) == 3
    assert found.hashes[0] == chain(chat(user(b'"a"'))).hashes[0]


def test_what_is_nested_as_deep_as_can_just_be_read_harms_nothing() -> None:
    for depth in [*range(150, 260, 5), *range(800, 1010)]:
        found = made(chat(user(b"[" * depth + b"]" * depth)))
        assert found is None or len(found.hashes) == 1


def test_b14_half_a_surrogate_pair_changes_its_own_message_only() -> None:
    first = b'{"role":"user","content":"a","x":[1.50,"\\u00e9",1e22]}'
    whole = chain(chat(first, user(b'"b"'), user(b'"\\ud83d"')))
    assert whole.hashes[:2] == chain(chat(first, user(b'"b"'))).hashes
    assert whole.ends[2] - whole.ends[1] == 3
    assert whole.hashes[2] != chain(chat(first, user(b'"b"'), user(b'"\\ud83e"'))).hashes[2]
    assert chain(chat(user(b'"\xed\xa0\xbd"'))) == chain(chat(user(b'"\\ud83d"')))
    assert chain(chat(user(b'[{"x":"\\udc00"}]'))).hashes != chain(chat(user(b'[{"x":"\\udc01"}]'))).hashes


def test_bytes_that_are_no_text_are_told_by_themselves() -> None:
    broken = chain(chat(user(b'"a"'), user(b'"\xff\xfe"')))
    assert broken.hashes[0] == chain(chat(user(b'"a"'))).hashes[0]
    assert broken.hashes[1] != chain(chat(user(b'"a"'), user(b'"\xfe\xff"'))).hashes[1]
    prompt = chain(b'{"prompt":"\xff%b"}' % (b"a" * 2000), "/v1/completions")
    assert len(prompt.hashes) == 2
    assert len(chain(b'{"input":"\xff","tools":[1]}', "/v1/responses").hashes) == 1
    assert chain(b'{"tools":"\xff","messages":["a"]}') != chain(b'{"tools":"\xfe","messages":["a"]}')


@pytest.mark.parametrize("number", [b"1" * 30, b"9" * 5000, b"1e999", b"NaN", b"-0", b"0.1"])
def test_numbers_of_any_size_count(number: bytes) -> None:
    found = chain(chat(b'{"role":"user","content":"a","x":%b}' % number))
    assert found == chain(chat(b'{"role":"user","x":%b,"content":"a"}' % number) + b" ") or len(number) == 5000
    assert found.hashes != chain(chat(user(b'"a"'))).hashes


def test_a_body_of_thousands_of_members_or_parts_is_slow() -> None:
    assert not is_slow(chat(*[user(b'"a"')] * 1000))
    assert not is_slow(chat(user(b'"%b"' % (b"words " * 40_000))))
    assert is_slow(chat(user(b'"%b"' % (b"words " * 50_000))))
    assert is_slow(chat(user(b"[%b{}]" % (b"{}," * 20_000))))
    assert is_slow(b'{"model":"m","messages":[],"x":[%b[]]}' % (b"[]," * 20_000))
    assert is_slow(chat(b'{"a":1%b}' % b"".join(b',"%d":1' % member for member in range(20_000))))
