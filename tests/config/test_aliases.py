"""Names that clients use for models: what they become, and what is refused."""

import pytest

from pharos.config.aliases import of_fleet
from pharos.config.load import backend_specs, parse
from pharos.config.problems import ConfigError
from pharos.core.fleet.names import Meant


def test_a_backend_s_aliases_are_part_of_what_it_is() -> None:
    (spec,) = backend_specs(parse("backends: [{url: http://a, aliases: {qwen:3b-q4: qwen:3b, b: c}}]", {}))
    assert spec.aliases == (("qwen:3b-q4", "qwen:3b"), ("b", "c"))


def test_an_alias_of_the_fleet_may_say_for_which_kind_of_engines_a_name_is() -> None:
    config = parse("aliases: {'fast:latest': ['ollama:llama3.1:8b', 'vllm:meta/Llama', 'qwen2.5:3b']}", {})
    assert of_fleet(config) == {
        "fast": (Meant("llama3.1:8b", "ollama"), Meant("meta/Llama", "vllm"), Meant("qwen2.5:3b"))
    }


def test_aliases_may_be_exchanged_on_a_backend_and_be_named_by_another_where_it_leads_on() -> None:
    parse("backends: [{url: http://a, aliases: {a: b, b: a}}]", {})
    parse("aliases: {qwen: [Qwen/Qwen2.5], fast: [qwen, Qwen/Qwen2.5]}", {})


CASES = [
    ("backends: [{url: http://a, aliases: {a: m, b: m}}]", "backends[0].aliases.b", "m stands for a already"),
    ("backends: [{url: http://a, aliases: {a: m, b: 'm:latest'}}]", "backends[0].aliases.b", "stands for a already"),
    ("backends: [{url: http://a, aliases: {a: m, 'a:latest': n}}]", "backends[0].aliases.a:latest", "are one model"),
    ("backends: [{url: http://a, aliases: {a: ' m'}}]", "backends[0].aliases.a", "no blanks at its ends"),
    ("backends: [{url: http://a, aliases: {'': m}}]", "backends[0].aliases.", "1 to 256 characters, this one 0"),
    (f"backends: [{{url: http://a, aliases: {{a: {'m' * 257}}}}}]", "backends[0].aliases.a", "this one 257"),
    ("backends: [{url: http://a, aliases: {a: ''}}]", "backends[0].aliases.a", "is empty"),
    ("backends: [{url: http://a, aliases: [a]}]", "backends[0].aliases", "expected names with values"),
    ("aliases: {a: []}", "aliases.a", "names no model"),
    ("aliases: {a: b}", "aliases.a", "write [b]"),
    ("aliases: {a: [b, 'c\\td']}", "aliases.a", "no line breaks"),
    ('aliases: {"a\\nb": [c]}', "aliases.a\nb", "no line breaks"),
    ("aliases: {a: ['ollama:']}", "aliases.a", "write ollama:NAME"),
    ("aliases: {a: [b], 'a:latest': [c]}", "aliases.a:latest", "are one name"),
    ("aliases: {a: ['ollama:a:latest']}", "aliases.a", "stands for itself"),
    ("aliases: {a: [b], b: [a]}", "aliases.b", "leads back"),
    ("aliases: {a: [b], b: [c, d], d: ['vllm:c', a]}", "aliases.d", "leads back"),
]


@pytest.mark.parametrize(("text", "path", "told"), CASES, ids=[text[-60:] for text, _, _ in CASES])
def test_an_alias_that_cannot_be_meant_is_told_at_its_place(text: str, path: str, told: str) -> None:
    text = text.replace("'c\\td'", '"c\\td"')
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    assert path in [problem.path for problem in caught.value.problems]
    assert told in str(caught.value)


def test_a_cycle_of_others_is_no_fault_of_an_alias_that_leads_into_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("aliases: {x: [a], a: [b], b: [a]}", {})
    assert [problem.path for problem in caught.value.problems] == ["aliases.a", "aliases.b"]
