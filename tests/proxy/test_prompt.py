"""What of a request is prompt, and what of it makes no difference."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.prefix import Chain, Known
from pharos.proxy.parse import THREAD_BYTES
from pharos.proxy.prompt import prompt_of
from pharos.proxy.table import ALL, ROUTES

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
ANTHROPIC = "/v1/messages"
RESPONSES = "/v1/responses"
OLLAMA_CHAT = "/api/chat"
OLLAMA_GENERATE = "/api/generate"

RECORDED = sorted((Path(__file__).parents[2] / "testdata").glob("*/*/streams/*.request.json"))
PICTURE = "data:image/png;base64,"
LATELY = Known(100)
"""Shared by all generated bodies: what one leaves there must not change another."""
GOLDEN = Chain(
    (
        3017239566021731297,
        2158884788768222279,
        14384516572284903179,
        5730511501461905705,
        2620817273967834903,
    ),
    (88, 90, 167, 169, 174),
)


def made(body: object, path: str = CHAT, *, salt: bytes = b"", model: str = "m") -> Chain | None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return prompt_of(data, ROUTES[path], model, salt)[0]


def chain(body: object, path: str = CHAT, *, salt: bytes = b"", model: str = "m") -> Chain:
    found = made(body, path, salt=salt, model=model)
    assert found is not None
    return found


def talk(*messages: object, **more: object) -> Chain:
    return chain({"messages": list(messages), **more})


def user(content: object, **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


def said(content: object, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def shared(one: Chain, other: Chain) -> int:
    """Links that two chains have in common, from the start."""
    return next(
        (place for place, (a, b) in enumerate(zip(one.hashes, other.hashes, strict=False)) if a != b),
        min(len(one.hashes), len(other.hashes)),
    )


# --- conversations


def test_hashes_of_a_conversation_never_change() -> None:
    """Peers and state files hold them: new values here need a new seed in `core/prefix/chain.py`."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1'}}
    picture = {"type": "image_url", "image_url": {"url": PICTURE + "AAAA"}}
    found = talk(
        {"role": "system", "content": "Кратко"},
        user("hi"),
        said(None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        user([{"type": "text", "text": "what?"}, picture]),
        tools=[tool],
    )
    assert found == GOLDEN


def test_a_link_for_each_message_and_the_bytes_of_the_text_up_to_there() -> None:
    found = talk({"role": "system", "content": "be kind"}, user("привет"), said("hi"), user("bye"))
    assert found.ends == (7, 19, 21, 24)


def test_a_conversation_that_goes_on_begins_with_what_it_was() -> None:
    turns = [user("a"), said("b"), user([{"type": "text", "text": "c"}]), said("d", tool_calls=[]), user("e")]
    whole = talk(*turns)
    for count in range(1, 6):
        assert talk(*turns[:count]).hashes == whole.hashes[:count]
    assert shared(whole, talk(*turns[:2], user("x"), *turns[3:])) == 2


def test_roles_texts_models_and_salts_make_a_difference() -> None:
    hello = {"messages": [user("a")]}
    chains = [
        talk(user("a")),
        talk(said("a")),
        talk(user("b")),
        talk({"role": "odd", "content": "a"}),
        talk({"role": 5, "content": "a"}),
        talk({"role": "5", "content": "a"}),
        talk({"content": "a"}),
        talk(user(None)),
        talk(user("")),
        talk(user({"odd": 1})),
        talk(user("a", name="me")),
        talk("a"),
        talk(7),
        chain(hello, model="n"),
        chain(hello, salt=b"s"),
    ]
    assert len({found.hashes for found in chains if len(found.hashes) == 1}) == len(chains) - 1
    assert talk({"content": "a"}) == talk("a")


def test_later_messages_are_told_apart_by_the_same() -> None:
    chains = [
        talk(user("a"), later)
        for later in (
            user("b"),
            said("b"),
            {"role": "odd", "content": "b"},
            user("c"),
            user(None),
            user("b", name="n"),
            "b",
        )
    ]
    assert len({found.hashes[1] for found in chains}) == len(chains)
    assert talk(user("a"), user("b", refusal=None)) == chains[0]


def test_where_one_message_ends_and_the_next_begins_makes_a_difference() -> None:
    two = talk(user([{"type": "text", "text": "a"}]), "b")
    one = talk(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    assert two.hashes[-1] != one.hashes[-1]
    assert talk(user("ab")).hashes != one.hashes


@pytest.mark.parametrize("path", [CHAT, OLLAMA_CHAT, ANTHROPIC])
def test_escaped_and_plain_bodies_agree(path: str) -> None:
    body = {"messages": [user('Привет 😀 \u2028\n"\\/'), said("你好", tool_calls=[{"x": "é"}])], "tools": [{"n": "ü"}]}
    plain = json.dumps(body, ensure_ascii=False).encode()
    escaped = json.dumps(body).encode()
    assert chain(plain, path) == chain(escaped, path) == chain(escaped.replace(b"/", b"\\/"), path)
    assert chain(plain, path).ends[0] > len("Привет".encode())


def test_white_space_and_the_order_of_members_make_no_difference() -> None:
    assert talk(user("x", a="1", b="2")) == talk({"b": "2", "a": "1", **user("x")})
    body = {
        "tools": [{"a": 1, "b": {"c": 2, "d": 3}}],
        "messages": [user("x", name="n"), said(None, tool_calls=[{"i": 1, "f": 2}])],
    }
    turned = {
        "messages": [
            {"name": "n", "content": "x", "role": "user"},
            {"tool_calls": [{"f": 2, "i": 1}], "role": "assistant"},
        ],
        "tools": [{"b": {"d": 3, "c": 2}, "a": 1}],
    }
    assert chain(body) == chain(json.dumps(turned, indent=3).encode())


def test_members_that_say_nothing_make_no_difference() -> None:
    assert talk(user("x", refusal=None, annotations=[])) == talk(user("x"))
    assert talk(said(None, reasoning=None)) == talk({"role": "assistant"})
    assert talk(user("x"), tools=[]) == talk(user("x"), tools=None) == talk(user("x"))


def test_one_part_of_text_is_the_text() -> None:
    assert talk(user([{"type": "text", "text": "hi"}])) == talk(user("hi"))
    assert talk(user([])).hashes == talk(user(None)).hashes


def test_marks_of_what_a_cloud_shall_cache_move_and_make_no_difference() -> None:
    mark = {"type": "ephemeral"}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "4"}]}
    inner = {"type": "text", "text": "4", "cache_control": mark}
    plain = {"system": "s", "tools": [{"name": "f"}], "messages": [user("hi"), user([result])]}
    marked = {
        "system": [{"type": "text", "text": "s", "cache_control": mark}],
        "tools": [{"name": "f", "cache_control": mark}],
        "messages": [
            user([{"type": "text", "text": "hi", "cache_control": mark}]),
            user([{**result, "content": [inner], "cache_control": mark}], cache_control=mark),
        ],
    }
    assert chain(marked, ANTHROPIC) == chain(plain, ANTHROPIC)


def test_b13_twins_that_differ_in_the_calls_of_tools_only_differ() -> None:
    def twin(arguments: str) -> Chain:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return talk(user("a"), said(None, tool_calls=[call]), user("b"))

    broken = twin('{"a":1}{"b":2}')
    assert shared(broken, twin('{"a":1}')) == 1
    assert shared(twin('{"a":1}'), twin('{"a": 1}')) == 1
    assert broken == twin('{"a":1}{"b":2}')


def test_reasoning_and_whatever_else_a_message_holds_counts() -> None:
    chains = [
        talk(said("a")),
        talk(said("a", reasoning="r")),
        talk(said("a", reasoning_content="r")),
        talk(said("a", made_up={"x": [1.5, None, True]})),
        talk(said([{"type": "thinking", "thinking": "r", "signature": "s"}, {"type": "text", "text": "a"}])),
    ]
    assert len({found.hashes for found in chains}) == len(chains)
    assert [found.ends[0] for found in chains[:3]] == [1, 2, 2]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (CHAT, lambda data: user([{"type": "image_url", "image_url": {"url": PICTURE + data}}])),
        (ANTHROPIC, lambda data: user([{"type": "image", "source": {"type": "base64", "data": data}}])),
        (OLLAMA_CHAT, lambda data: user("", images=[data])),
    ],
)
def test_a_picture_counts_by_its_bytes_and_is_no_text(path: str, message: Any) -> None:
    one, same, other = (chain({"messages": [message(data)]}, path) for data in ("A" * 5000, "A" * 5000, "B" * 5000))
    assert one == same
    assert one.hashes != other.hashes
    assert one.ends == (0,)


def test_a_picture_inside_the_result_of_a_tool_is_no_text_either() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "A" * 5000}}
    result = {"type": "tool_result", "content": [{"type": "text", "text": "see"}, picture]}
    assert 3 < chain({"messages": [user([result])]}, ANTHROPIC).ends[0] < 100
    deep: object = [{"type": "text", "text": "x"}]
    for _ in range(20):
        deep = [{"type": "tool_result", "content": deep}]
    assert len(talk(user(deep)).hashes) == 1


# --- tools and the system


def test_tools_and_system_messages_are_one_link() -> None:
    system, note = {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}
    tools = [{"name": "f"}]
    found = talk(system, note, user("a"), tools=tools)
    assert len(found.hashes) == 2
    assert shared(found, talk(system, note, user("b"), tools=tools)) == 1
    for other in (
        talk(system, user("a"), tools=tools),
        talk(system, note, user("a")),
        talk(note, system, user("a"), tools=tools),
    ):
        assert shared(found, other) == 0
    assert len(talk(user("a"), system, user("b")).hashes) == 3
    assert len(talk(system).hashes) == 1


def test_without_a_system_message_tools_are_one_with_the_first_message() -> None:
    found = talk(user("a"), said("b"), tools=[{"name": "f"}])
    assert len(found.hashes) == 2
    assert shared(found, talk(user("x"), said("b"), tools=[{"name": "f"}])) == 0
    assert found.ends[0] > 1


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "low"},
        {"documents": [{"t": 1}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"think": True},
    ],
)
def test_what_changes_an_engine_s_template_makes_another_chain(more: dict[str, object]) -> None:
    assert talk(user("a"), **more).hashes != talk(user("a")).hashes
    assert talk(user("a"), temperature=1, seed=3, stream=True, max_tokens=5) == talk(user("a"))


def test_a_system_prompt_beside_the_messages_is_the_same_as_one_among_them() -> None:
    among = talk({"role": "system", "content": "s"}, user("a"))
    assert chain({"system": "s", "messages": [user("a")]}, ANTHROPIC) == among
    assert chain({"system": [{"type": "text", "text": "s"}], "messages": [user("a")]}, ANTHROPIC) == among
    assert chain({"instructions": "s", "input": "a"}, RESPONSES) == among
    assert chain({"messages": [{"role": "system", "content": "s"}, user("a")]}, OLLAMA_CHAT) == among
    assert chain({"system": "", "messages": [user("a")]}, ANTHROPIC) == talk(user("a"))


# --- other shapes


def test_items_of_a_response_are_links() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "4"}
    text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
    found = chain({"input": [text, call, result]}, RESPONSES)
    assert len(found.hashes) == 3
    assert (
        chain({"input": "a"}, RESPONSES).hashes == found.hashes[:1] == chain({"input": [user("a")]}, RESPONSES).hashes
    )
    assert shared(found, chain({"input": [text, {**call, "arguments": "{ }"}, result]}, RESPONSES)) == 1


@pytest.mark.parametrize("more", [{"previous_response_id": "r"}, {"conversation": "c"}])
def test_a_response_that_goes_on_from_one_that_an_engine_keeps_has_no_chain(more: dict[str, object]) -> None:
    assert made({"input": "a", **more}, RESPONSES) is None


def test_a_plain_prompt_has_a_link_for_each_kib_and_one_for_the_rest() -> None:
    found = chain({"prompt": "ж" * 1200}, COMPLETION)
    assert found.ends == (1024, 2048, 2400)
    longer = chain({"prompt": "ж" * 1200 + "and on" * 300}, COMPLETION)
    assert shared(found, longer) == 2
    assert chain({"prompt": ["ж" * 1200]}, COMPLETION) == found
    assert chain({"prompt": "ж" * 1200, "suffix": "end"}, COMPLETION).hashes[0] != found.hashes[0]


def test_tokens_are_a_prompt_and_several_prompts_are_none() -> None:
    tokens = list(range(1000))
    assert shared(chain({"prompt": tokens}, COMPLETION), chain({"prompt": [*tokens, 5]}, COMPLETION)) > 2
    assert chain({"prompt": [tokens]}, COMPLETION) == chain({"prompt": tokens}, COMPLETION)
    assert chain({"prompt": "[1,2]"}, COMPLETION).hashes != chain({"prompt": [1, 2]}, COMPLETION).hashes
    nothing: tuple[object, ...] = (["a", "b"], "", [], None, {"a": 1}, 5, [[], []])
    for prompt in nothing:
        assert made({"prompt": prompt}, COMPLETION) is None


def test_an_ollama_prompt_begins_with_its_system_template_and_images() -> None:
    plain = chain({"prompt": "a" * 2000}, OLLAMA_GENERATE)
    assert len(plain.hashes) == 2
    assert plain == chain({"prompt": "a" * 2000, "system": "", "context": []}, OLLAMA_GENERATE)
    with_system = chain({"prompt": "a" * 2000, "system": "s"}, OLLAMA_GENERATE)
    assert len(with_system.hashes) == 3
    assert shared(with_system, chain({"prompt": "b", "system": "s"}, OLLAMA_GENERATE)) == 1
    for more in ({"template": "t"}, {"images": ["AAAA"]}, {"suffix": "x"}, {"think": True}):
        assert chain({"prompt": "a" * 2000, **more}, OLLAMA_GENERATE).hashes[0] != plain.hashes[0]


@pytest.mark.parametrize(
    "body", [{"prompt": "a", "context": [1, 2]}, {"prompt": ""}, {}, {"system": "s"}, {"prompt": 5}]
)
def test_an_ollama_prompt_that_goes_on_from_tokens_or_is_none_has_no_chain(body: dict[str, object]) -> None:
    assert made(body, OLLAMA_GENERATE) is None


def test_routes_whose_prompts_no_engine_caches_have_no_chain() -> None:
    body = json.dumps({"input": "a", "messages": [user("a")], "prompt": "a", "query": "q", "documents": ["d"]}).encode()
    with_chain = {route.path for route in ALL if prompt_of(body, route, "m")[0] is not None and route.body == "json"}
    assert with_chain == {CHAT, COMPLETION, ANTHROPIC, RESPONSES, OLLAMA_CHAT, OLLAMA_GENERATE}


@pytest.mark.parametrize("path", [CHAT, COMPLETION, ANTHROPIC, RESPONSES, OLLAMA_CHAT, OLLAMA_GENERATE])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b'"x"',
        b'{"messages":5,"input":5}',
        b'{"messages":"x"}',
        b"\xff",
        b'{"messages":{"a":1}}',
    ],
)
def test_a_body_without_a_prompt_has_no_chain(body: bytes, path: str) -> None:
    assert made(body, path) is None


def recorded(path: Path) -> tuple[str, bytes] | None:
    request = json.loads(path.read_bytes())
    if not isinstance(request, dict) or request.get("path") not in ROUTES or not isinstance(request.get("body"), dict):
        return None
    return request["path"], json.dumps(request["body"]).encode()


def test_recorded_requests_have_the_same_chain_however_they_are_read() -> None:
    with_chain = 0
    for path in RECORDED:
        request = recorded(path)
        if request is not None:
            found = made(request[1], request[0])
            assert found == made(request[1] + b" " * THREAD_BYTES, request[0]), path
            with_chain += found is not None
    assert with_chain > 50


# --- damage and size


texts = st.text(st.characters(exclude_categories=()), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "x"])}, optional={"text": texts, "content": values}
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "tool"]) | values,
        "content": texts | st.lists(parts, max_size=3) | values,
    },
    optional={"tool_calls": values, "cache_control": values},
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(messages | values, max_size=4) | values,
        "input": st.lists(messages | values, max_size=4) | values,
        "prompt": values,
        "system": values,
        "tools": values,
        "images": values,
    },
)


@given(bodies, st.sampled_from([CHAT, COMPLETION, ANTHROPIC, RESPONSES, OLLAMA_CHAT, OLLAMA_GENERATE]))
def test_any_body_has_one_chain_however_it_is_written_and_read(body: dict[str, object], path: str) -> None:
    found = made(json.dumps(body).encode(), path)
    plain = json.dumps(body, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    assert made(plain, path) == found
    assert made(plain + b" " * THREAD_BYTES, path) == found
    assert [prompt_of(one, ROUTES[path], "m", b"", LATELY)[0] for one in (plain, plain)] == [found, found]
    if found is not None:
        assert list(found.ends) == sorted(found.ends)
        assert len(set(found.hashes)) == len(found.hashes)
