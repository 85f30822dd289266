"""How single values are written: text, numbers, words, and the special forms (durations, sizes, addresses, names).

Forbidden here: fields and paths. Every reader raises `ValueError` with a sentence that says what to write; none
repeats a key.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import yaml
from msgspec import inspect

from pharos.config import tree, units
from pharos.config.meant import meant

KEY_PREFIX: Final = "phk-"
"""Marks a Pharos key, so that scanners for leaked keys can find one."""
_SHOWN = 40
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_LOGS: Final = ("docker", "file")
"""Where a log can be."""
_LONGEST_NAME = 128
_HEADER_PATTERN: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_LOG_PATTERN: Final = r"^(docker://[A-Za-z0-9][A-Za-z0-9_.-]*|file:///.+)$"


def short(text: str) -> str:
    """The beginning of a value, for a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def alone(text: str) -> str:
    """How a value is written as a list: in quotes where YAML would take it for something else, as it does `*`."""
    try:
        yaml.compose(f"[{short(text)}]", Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return f"[{json.dumps(short(text), ensure_ascii=False)}]"
    return f"[{short(text)}]"


def what(node: yaml.Node, *, secret: bool = False) -> str:
    """What a node is, for a message; `secret`: without any of it, as it may hold a key."""
    if secret and isinstance(node, yaml.ScalarNode) and not tree.is_null(node):
        return "a single value"
    if isinstance(node, yaml.ScalarNode):
        if tree.is_null(node):
            return "nothing"
        return repr(short(node.value)) if node.tag == tree.STR else short(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "named fields"


def plain(node: yaml.Node, kind: inspect.Type) -> str | int | float | bool:
    """The value of a node as text, number, true or false, or one of a few words."""
    if isinstance(node, yaml.ScalarNode):
        match kind:
            case inspect.LiteralType(values=values) if node.value in values:
                return str(node.value)
            case inspect.StrType() if node.tag in (tree.STR, tree.INT, tree.FLOAT):
                return str(node.value)
            case inspect.BoolType() if node.tag == tree.BOOL:
                return str(node.value).lower() == "true"
            case inspect.IntType() if node.tag == tree.INT:
                return int(node.value)
            case inspect.FloatType() if node.tag in (tree.INT, tree.FLOAT):
                return float(node.value)
    raise ValueError(f"expected {expected(kind)}, got {what(node)}{_hint(node, kind)}")


def expected(kind: inspect.Type) -> str:
    """What a type wants, for a message."""
    match kind:
        case inspect.LiteralType(values=values):
            return " or ".join(str(value) for value in values)
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number {bounds(kind)}".rstrip()
        case inspect.FloatType():
            return f"a number {bounds(kind)}".rstrip()
        case _:
            return "another value"


def expected_any(kinds: Sequence[inspect.Type]) -> str:
    """What a choice of types wants, for a message."""
    return " or ".join(expected(kind) for kind in kinds)


def bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    """The range of a number, for a message; empty when it has none."""
    if kind.ge is not None and kind.le is not None:
        return f"from {kind.ge:g} to {kind.le:g}"
    if kind.gt is not None:
        return f"above {kind.gt:g}"
    return f"of at least {kind.ge:g}" if kind.ge is not None else ""


def _hint(node: yaml.Node, kind: inspect.Type) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return ""
    if isinstance(kind, inspect.StrType):
        return f": put it into quotes ('{short(node.value)}')"
    if isinstance(kind, inspect.BoolType):
        said = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}.get(
            node.value.lower()
        )
        return f": write {said or 'it without quotes'}" if said or node.value.lower() in ("true", "false") else ""
    if (
        isinstance(kind, inspect.IntType | inspect.FloatType)
        and node.tag == tree.STR
        and re.fullmatch(r"[0-9.]+", node.value)
    ):
        return ": remove the quotes"
    return ""


def _sha256(text: str) -> str:
    if text.startswith(KEY_PREFIX):
        raise ValueError("this is a key itself, which never belongs here: write its SHA-256, or use `pharos keys new`")
    if not _SHA256.fullmatch(text):
        raise ValueError(
            f"must be 64 hexadecimal digits, got {len(text)} characters: `pharos keys new` prints what to paste"
        )
    return text.lower()


def key_name(text: str) -> str:
    """A key's name: it goes into metrics and pages."""
    _check_name(text)
    return text


def _backend_name(text: str) -> str:
    _check_name(text)
    if not text.isascii() or any(letter in text for letter in " \"'\\,;"):
        raise ValueError(f"{short(text)!r}: a backend's name goes into headers; use letters, digits and - . _ : / @")
    return text


def _check_name(text: str) -> None:
    if not 1 <= len(text) <= _LONGEST_NAME:
        raise ValueError(f"a name has 1 to {_LONGEST_NAME} characters, this one {len(text)}")
    if text.startswith(KEY_PREFIX):
        raise ValueError("this is a key itself: a name is shown in metrics and pages")
    if text != text.strip() or not text.isprintable():
        raise ValueError(f"{short(text)!r}: a name has no line breaks and no blanks at its ends")
    if text.startswith("_"):
        raise ValueError(f"{short(text)!r}: names that start with _ are Pharos's own (_other in metrics)")


def _header(text: str) -> str:
    if not re.fullmatch(_HEADER_PATTERN, text):
        raise ValueError("is no name of a header: use letters, digits and -, as in X-Api-Key")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(_VARIABLE_PATTERN, text):
        raise ValueError("is no name of a variable, as in GPU_KEY: the key itself never belongs here")
    if text.startswith("PHAROS_"):
        raise ValueError("variables that begin with PHAROS_ are settings: choose another name for this one")
    return text


def _log(text: str) -> str:
    scheme, found, rest = text.partition("://")
    if not text.isprintable() or "%00" in text:
        raise ValueError("has characters that no place of a log has")
    if not found or scheme not in _LOGS:
        if text.startswith("/"):
            raise ValueError(f"write file://{short(text)} for a file")
        close = meant(scheme.lower(), _LOGS) if found else None
        other = f"; did you mean {close}://?" if close is not None else ""
        raise ValueError(f"{short(text)!r} is no place of a log: write docker://NAME or file:///PATH{other}")
    if scheme == "file" and (not rest.startswith("/") or rest == "/"):
        raise ValueError("a file is named by its whole path, with three slashes: file:///var/log/engine.log")
    if not re.fullmatch(_LOG_PATTERN, text):
        raise ValueError(f"{short(rest)!r} is no name of a container: write docker://NAME, as `docker ps` shows it")
    return text


def _address(text: str) -> str:
    units.split_address(text)
    return text.strip()


class Form(msgspec.Struct, frozen=True):
    """One special way to write a value."""

    read: Callable[[str], str | float]
    expects: str
    """For messages."""
    pattern: str | None
    """For the published schema; `None`: any text."""
    example: str


FORMS: Final[dict[str, Form]] = {
    "duration": Form(units.seconds, "a duration like 5s or 10m", units.DURATION_PATTERN, "1h30m"),
    "size": Form(units.size_bytes, "a size like 32MiB", units.SIZE_PATTERN, "32MiB"),
    "address": Form(_address, "an address like :8090", units.ADDRESS_PATTERN, "127.0.0.1:8090"),
    "url": Form(
        units.base_url, "a URL like http://gpu-box:8000", r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$", "http://gpu-box:8000"
    ),
    "sha256": Form(
        _sha256,
        "64 hexadecimal digits",
        r"^[0-9a-fA-F]{64}$",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ),
    "name": Form(key_name, "a name", None, "alice"),
    "backend_name": Form(_backend_name, "a name", r"^[!-~]{1,128}$", "gpu-1"),
    "header": Form(_header, "the name of a header", _HEADER_PATTERN, "X-Api-Key"),
    "variable": Form(_variable, "the name of a variable", _VARIABLE_PATTERN, "GPU_KEY"),
    "origin": Form(
        units.origin, "an origin like https://chat.example.org", units.ORIGIN_PATTERN, "https://chat.example.org"
    ),
    "log": Form(_log, "docker://NAME or file:///PATH", _LOG_PATTERN, "docker://vllm"),
}
"""The forms that the schema's types name."""


def form_of(kind: inspect.Type) -> str | None:
    """The form in which a field's value is written, as in `duration`; `None` when it has none of its own."""
    if isinstance(kind, inspect.UnionType):
        return next((form for form in map(form_of, kind.types) if form is not None), None)
    return (kind.extra or {}).get("form") if isinstance(kind, inspect.Metadata) else None
