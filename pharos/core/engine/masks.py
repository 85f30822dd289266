"""Takes out of an engine's reply what must not be kept: command lines, keys, prompts. The shape stays.

It goes by the names of fields and by the looks of text; keys that are known by value are `knownkeys`' business.

Forbidden here: changing a body in which there is nothing to hide; it is kept byte for byte.
"""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any, Final

MASK: Final = "(masked)"

SECRET: Final = frozenset(
    {
        *("apikeys", "args", "argv", "auth", "bearer", "cmd", "cmdstop", "env", "extraargs", "generated"),
        *("generatedtext", "key", "launch", "messages", "modelfile", "preset", "prompt", "proxy", "remoteaddr"),
        *("secrets", "serverargs", "system", "systemenv", "template", "tokens"),
    }
)
"""Names of fields, in small letters and without separators, whose text may be a secret or somebody's words: llama.cpp's
router and llama-swap show command lines of children, debug forms show prompts, Ollama's model files hold system
prompts."""

SECRET_ENDS: Final = (
    *("accesskey", "apikey", "authorization", "cmd", "command", "commandline", "cookie", "credential", "credentials"),
    *("environment", "envvars", "headers", "passphrase", "passwd", "password", "privatekey", "secret", "secretkey"),
    *("token", "vllmenv"),
)
"""Ends of such names: engines that tell all their settings call a key by many names. (`eos_token` goes with them.)"""

MODEL_ENTRY: Final = "loaded_instances"
"""LM Studio calls a model's name its `key`, in entries that have this field, too."""
COUNT_OPTIONS: Final = frozenset({"-np", "--parallel", "-c", "--ctx-size"})
"""Options of llama-server that take a number which probes read."""
FLAGS: Final = frozenset({"--embedding", "--embeddings", "--rerank", "--reranking"})
"""Options of llama-server without a value that probes read."""

_SHOWN: Final = (bool, int, float, type(None))
"""Kinds of values that cannot hold text."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,12}(?:\.[0-9]{1,12})?")
_FROM: Final = re.compile(r"FROM (?:[^\n]*[/\\])?(sha256-[0-9a-f]{64})")
_CONTEXT: Final = re.compile(r"PARAMETER num_ctx ([0-9]{1,9})?.*", re.DOTALL)

_LOOKS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(?i)\b(bearer)(\s+|%20|\+)(?!\(masked\))[\w~+/=.%-]{6,}+"), rf"\1\2{MASK}"),
    (re.compile(r"(?i)\b(basic)(\s+|%20|\+)(?:[a-z0-9+/]{16,}+=*|[a-z0-9+/]{6,}+=+)"), rf"\1\2{MASK}"),
    (re.compile(r"(://)[^\s/@\"'<>?#]{1,512}@"), rf"\1{MASK}@"),
    (
        re.compile(
            r"(?i)(?<![\w-])(--?[\w-]*?(?:key|token|password|passwd|secret)(?:[ \t]+|=))"
            r"(?!\(masked\))([\"']?)[^\s\"']+"
        ),
        rf"\1\2{MASK}",
    ),
)
"""What looks like a key in any text: after `Bearer`, before the `@` of a URL, and as the value of an option."""
_NAMED: Final = re.compile(r"(?<![\w.-])([\w.-]++)\\?[\"']?\s*+(?:=>|:=|[:=])\s*+")
"""A name and what stands between it and its value: HTML, Prometheus' labels, JSON that is cut."""
_VALUES: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"()[\[{].*+",  # nobody knows where what is cut ends
        r'(\\")(?:(?!\\").)*+',
        r'(")(?:[^"\\]|\\.)*+',
        r"(')[^'\r\n]*+",
        r"()(?:(?<==)|(?<== ))[^\s&;,\"'<>}\]]++",
        r"()[^\r\n\"<]++",
    )
)

Known = Callable[[str], str]
"""Takes out of a text what is known to be secret."""


def masked(body: bytes, known: Known = str) -> bytes:
    """Return the body with the text of such fields masked, and what looks like a key in any text."""
    mask = _Mask(known)
    try:
        clean = mask.clean(json.loads(body, object_pairs_hook=mask.once))
        return json.dumps(clean, ensure_ascii=False).encode("utf-8", "surrogatepass") if mask.has_hidden else body
    except RecursionError:
        return MASK.encode()
    except ValueError:
        return masked_text(body.decode("utf-8", "surrogateescape"), known).encode("utf-8", "surrogateescape")


def masked_text(text: str, known: Known = str) -> str:
    """Mask what is known, what looks like a key, and what follows the name of such a field, in what is no JSON."""
    text, parts, at = masked_looks(text, known), [], 0
    for named in _NAMED.finditer(text):
        if named.start() < at or not _is_secret(named[1]):
            continue
        value = next((found for each in _VALUES if (found := each.match(text, named.end()))), None)
        if value is None or _NUMBER.fullmatch(value[0].strip()):
            continue
        parts += [text[at : named.end()], value[1], MASK]
        at = value.end()
    return "".join((*parts, text[at:]))


def masked_looks(text: str, known: Known = str) -> str:
    """Mask what is known and what looks like a key, and nothing by the name of a field: for lines of a log."""
    text = known(text)
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return text


class _Mask:
    """Masks one document, and remembers whether there was anything to mask."""

    def __init__(self, known: Known) -> None:
        self.has_hidden = False
        self._known = known

    def once(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Keep of a name that comes twice the last value; the body as it was has the others, too."""
        fields = dict(pairs)
        self.has_hidden |= len(fields) < len(pairs)
        return fields

    def clean(self, value: object) -> object:
        """Mask what a value has to hide."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            return {self._text(name): self._field(name, item, value) for name, item in value.items()}
        shown = str(value)
        return value if self._known(shown) == shown else self._hide()

    def _text(self, text: str) -> str:
        shown = masked_looks(text, self._known)
        self.has_hidden |= shown != text
        return shown

    def _field(self, name: str, value: object, beside: dict[str, Any]) -> object:
        if not _is_secret(name) or (name == "key" and MODEL_ENTRY in beside):
            return self.clean(value)
        if isinstance(value, str):
            shown = _model_file(value) if name == "modelfile" else value and MASK
            self.has_hidden |= shown != value
            return shown
        if name == "args" and isinstance(value, list):
            return self._options(value)
        return self._all(value)

    def _options(self, options: list[Any]) -> list[Any]:
        """Keep of a command line what probes read: flags, and counts with their options."""
        shown: list[Any] = []
        for before, option in itertools.pairwise([None, *options]):
            is_read = isinstance(option, str) and (
                option in COUNT_OPTIONS | FLAGS
                or (isinstance(before, str) and before in COUNT_OPTIONS and _NUMBER.fullmatch(option) is not None)
            )
            shown.append(option if is_read else self._all(option))
        return shown

    def _all(self, value: object) -> object:
        """Mask every text within, names of fields included; keep kinds and lengths."""
        if isinstance(value, list):
            return [self._all(item) for item in value]
        if isinstance(value, dict):
            self.has_hidden |= bool(value)
            return {f"{MASK} {index}": self._all(item) for index, item in enumerate(value.values(), 1)}
        if isinstance(value, _SHOWN) or not value:
            return self.clean(value)
        return self._hide()

    def _hide(self) -> str:
        self.has_hidden = True
        return MASK


def _is_secret(name: str) -> bool:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return plain in SECRET or plain.endswith(SECRET_ENDS)


def _model_file(text: str) -> str:
    """Keep of Ollama's model file the name of the file that a model is in, and its length of context."""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    return "\n".join(_line_of_model_file(line) for line in lines)


def _line_of_model_file(line: str) -> str:
    file, context = _FROM.fullmatch(line), _CONTEXT.fullmatch(line)
    if file is not None:
        return f"FROM {file[1]}"
    if context is not None:
        return f"PARAMETER num_ctx {context[1] if context[1] is not None else MASK}"
    return line and MASK
