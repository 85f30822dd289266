"""YAML text to a tree of nodes that remember their lines. No objects are built.

Forbidden here: knowing any field. Plain words mean what YAML 1.2 says (`no`, `8:30` and `2026-01-01` are text),
because the older rules turn a listen address into a number. Repeated names are found by the reader, which knows the
paths.
"""

import re
from typing import Any

import yaml

from pharos.config.problems import ConfigError, Problem

MAX_BYTES = 4 * 1024 * 1024
"""Largest file that is read: far above any fleet, and small enough that a wrong file does no harm."""
DEEPEST = 40
"""Lists and groups in [ ] and { } within each other. The parser's work grows with the square of it: 4,000 of them, in
an annotation that anybody may write, held everything up for most of a second."""
NULL, BOOL, INT, FLOAT, STR, MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)
SEQUENCE, MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"
KNOWN_TAGS = frozenset({NULL, BOOL, INT, FLOAT, STR, MERGE, SEQUENCE, MAPPING})

_WORDS = (
    (NULL, r"^(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (BOOL, r"^(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    (INT, r"^[-+]?[0-9]{1,18}$", list("-+0123456789")),
    (FLOAT, r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$", list("-+.0123456789")),
    (MERGE, r"^<<$", ["<"]),
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the plain words of YAML 1.2. Only ever used to compose nodes."""

    def fetch_flow_collection_start(self, token: Any) -> None:  # noqa: ANN401 - a class of tokens
        if self.flow_level >= DEEPEST:
            raise RecursionError
        super().fetch_flow_collection_start(token)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _WORDS:
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)


def compose(text: str, source: str) -> yaml.Node | None:
    """The tree of one YAML document from `source`, `None` when it is empty. Raises `ConfigError`."""
    try:
        loader = _Loader(text)
        loader.name = source
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark is not None else None
        raise ConfigError([Problem("", _explain(fault), f"line {line}" if line is not None else "")], source) from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        raise ConfigError(
            [Problem("", f"character U+{fault.character:04X} is not allowed in YAML", f"line {line}")], source
        ) from None
    except RecursionError:
        raise ConfigError(
            [Problem("", "it is nested too deeply: a configuration needs a handful of levels")], source
        ) from None


def _explain(fault: yaml.MarkedYAMLError) -> str:
    """What the parser complains about, with the usual cause where there is one."""
    said = fault.problem or "it is not YAML"
    if "\\t" in said:
        return "YAML indents with spaces: replace the tab"
    if "another document" in said:
        return "it holds a second document: keep one, and remove the line ---"
    if "mapping values are not allowed" in said:
        return f"it is not YAML: {said}; is a line indented too far, or a value with ': ' in it not in quotes?"
    if "but found ':'" in said:
        return "it is not YAML: inside { } and [ ], text that begins with a colon needs quotes, as in {listen: ':8081'}"
    if "undefined alias" in said:
        return f"it is not YAML: {said}; an anchor (&name) must come before its use (*name)"
    if "<stream end>" in said:
        return f"it is not YAML: {said}; something opened with [, {{ or a quote is not closed"
    if "<block end>" in said:
        return f"it is not YAML: {said}; do all lines of one group begin in the same column?"
    return f"it is not YAML: {said}"


def place(node: yaml.Node) -> str:
    """Where a node was written: `line 4`, or the environment variable that it came from."""
    mark = node.start_mark
    if mark is None:
        return ""
    return mark.name if mark.name.startswith("PHAROS_") else f"line {mark.line + 1}"


def is_null(node: yaml.Node) -> bool:
    """Whether a node is nothing: an empty value or `null`."""
    return node.tag == NULL
