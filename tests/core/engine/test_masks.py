import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.masks import MASK, masked
from tests.core.engine.pages import values
from tests.core.engine.replay.replaying import Answers, Row, detected, pages_of, resolved
from tests.core.engine.replay.worlds import all_states

SECRET = "sk-secret"


def mask(document: object) -> object:
    return json.loads(masked(json.dumps(document).encode()))


@pytest.mark.parametrize(
    "field",
    [
        *(
            "cmd",
            "args",
            "preset",
            "api_key",
            "apiKey",
            "API-KEY",
            "headers",
            "reqHeaders",
            "prompt",
            "system",
            "proxy",
        ),
        *("admin_api_key", "launch_command", "hf_token", "vllm_env", "env_vars", "ssl_keyfile_password"),
        *("cmdStop", "start_cmd", "launch", "extra_args", "system_env", "secrets", "tokens", "passwd", "api_keys"),
        *("bearer", "key", "auth", "messages", "template"),
    ],
)
def test_the_text_of_a_field_that_may_hold_a_secret_is_masked_wherever_it_is(field: str) -> None:
    assert mask({"a": [{"b": {field: SECRET}}]}) == {"a": [{"b": {field: MASK}}]}


def test_kinds_and_lengths_stay() -> None:
    told = {"args": ["--api-key", SECRET, 7, True, None, ""], "headers": {SECRET: {"x": SECRET}}, "prompt": 12}
    assert mask(told) == {
        "args": [MASK, MASK, 7, True, None, ""],
        "headers": {f"{MASK} 1": {f"{MASK} 1": MASK}},
        "prompt": 12,
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"total_slots" : 2, "n": 1.0, "prompt": 5, "x": [1,\n2]}',
        b"llamacpp:requests_processing 1\n",
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" * 1500 + b"]" * 1500,
    ],
)
def test_a_body_without_anything_to_hide_is_kept_byte_for_byte(body: bytes) -> None:
    assert masked(body) in (body, MASK.encode())


def test_a_document_too_deep_to_be_looked_through_is_masked_whole() -> None:
    deep = b'{"a":' * 900 + b'{"cmd":"' + SECRET.encode() + b'"}' + b"}" * 900
    assert SECRET.encode() not in masked(deep)


def test_a_lone_surrogate_beside_a_secret_does_no_harm() -> None:
    assert SECRET.encode() not in masked(b'{"a": "\\ud800", "cmd": "%s"}' % SECRET.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cmd", "env", "a"]), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(JSON)
def test_what_stands_under_a_secret_name_is_never_kept(document: object) -> None:
    kept = mask({"args": document})
    assert SECRET not in json.dumps(kept)


FILE = "sha256-" + "a" * 64


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            f"# made\n# FROM x\n\nFROM /root/.ollama/blobs/{FILE}\nTEMPLATE secret\nPARAMETER num_ctx 4096\n",
            f"\nFROM {FILE}\n{MASK}\nPARAMETER num_ctx 4096\n",
        ),
        (f"FROM secret\nFROM C:\\blobs\\{FILE}", f"{MASK}\nFROM {FILE}"),
        ("PARAMETER num_ctx secret\nPARAMETER stop secret", f"PARAMETER num_ctx {MASK}\n{MASK}"),
        ("", ""),
    ],
)
def test_of_a_model_file_the_name_of_its_file_and_its_context_are_kept(text: str, kept: str) -> None:
    assert mask({"modelfile": text}) == {"modelfile": kept}


def test_of_a_command_line_what_probes_read_is_kept() -> None:
    line = ["--api-key", "1234", "-np", "4", "--parallel", "x", "-c", "4096", "--embedding", "--ctx-size", "-1", SECRET]
    told = {"status": {"args": line}}
    kept = [MASK, MASK, "-np", "4", "--parallel", MASK, "-c", "4096", "--embedding", "--ctx-size", "-1", MASK]
    assert mask(told) == {"status": {"args": kept}}


def test_the_name_of_a_model_that_is_called_its_key_is_kept() -> None:
    entry = {"key": "example/tiny", "loaded_instances": []}
    assert mask({"models": [entry], "key": SECRET}) == {"models": [entry], "key": MASK}


def test_what_a_name_that_comes_twice_hides_is_not_kept() -> None:
    assert masked(b'{"a": "sk-secret", "a": 1}') == b'{"a": 1}'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"denied for Bearer {SECRET}, sorry", f"denied for Bearer {MASK}, sorry"),
        (f"see http://user:{SECRET}@host/ now", f"see http://{MASK}@host/ now"),
        (f"serve --api-key {SECRET} --port 1", f"serve --api-key {MASK} --port 1"),
        (f"serve --apikey='{SECRET}'", f"serve --apikey='{MASK}'"),
        ("--max-tokens 5, key = 12, a=b", "--max-tokens 5, key = 12, a=b"),
    ],
)
def test_what_looks_like_a_key_is_masked_in_any_text(text: str, kept: str) -> None:
    assert masked(text.encode()).decode() == kept
    assert mask({"note": [text]}) == {"note": [kept]}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f'build_info{{cmd="x {SECRET}",v="1"}} 1\n', f'build_info{{cmd="{MASK}",v="1"}} 1\n'),
        (f'{{"n":0,"api_key": "{SECRET}', f'{{"n":0,"api_key": "{MASK}'),
        (f'{{"args":["a","{SECRET}"', f'{{"args":{MASK}'),
        (f"<a href='/x?key={SECRET}&a=b'>", f"<a href='/x?key={MASK}&a=b'>"),
        (f"<p>password: {SECRET} and more</p>", f"<p>password: {MASK}</p>"),
        (f"x='{SECRET}' secret='{SECRET}'", f"x='{SECRET}' secret='{MASK}'"),
        (f'{{"log": "{{\\"token\\": \\"{SECRET}\\"}}', f'{{"log": "{{\\"token\\": \\"{MASK}\\"}}'),
        (f'cmd="a password={SECRET}" b', f'cmd="{MASK}" b'),
        ("key=", "key="),
    ],
)
def test_what_follows_the_name_of_such_a_field_is_masked_in_what_is_no_json(text: str, kept: str) -> None:
    assert masked(text.encode()).decode() == kept


def test_what_is_known_to_be_secret_is_masked_in_names_texts_and_numbers() -> None:
    def known(text: str) -> str:
        return text.replace("123456", MASK)

    body = b'{"a 123456": ["b 123456", 123456, 1.5]}'
    assert json.loads(masked(body, known)) == {f"a {MASK}": [f"b {MASK}", MASK, 1.5]}
    assert masked(b"\xff 123456", known) == b"\xff " + MASK.encode()


@pytest.mark.parametrize("row", all_states(), ids="/".join)
def test_what_was_ever_recorded_is_read_alike_when_it_is_masked(row: Row) -> None:
    there = pages_of(row)
    clean = Answers({ask: msgspec.structs.replace(page, body=masked(page.body)) for ask, page in there.items()})
    (found, pages), (again, clean_pages) = detected(there), detected(clean)
    assert found == again
    if found.kind is not None:
        _, before, _ = resolved(found.kind, there, pages)
        _, after, _ = resolved(found.kind, clean, clean_pages)
        assert values(before) == values(after)
