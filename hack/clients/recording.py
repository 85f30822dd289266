"""What is kept of a client's requests, and in which form: `testdata/clients/<client>/<version>/`.

Keys, ids and what tells of one machine are masked. Texts of others (the prompts of a coding agent) are replaced by
filler of the same length in bytes, line by line, so that sizes and structure stay. Forbidden here: keeping a key.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.fakes.http import Seen

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "testdata" / "clients"
KEY, WRONG_KEY, HOST = "<key>", "<wrong key>", "pharos.example"
"""What stands in a recording for the keys, and for the address that the client had."""
MASK = "masked"
MACHINE = re.compile(r"x-stainless-(arch|os|runtime-version)")
"""Headers that tell of one machine."""
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NO_ID = "00000000-0000-0000-0000-000000000000"
SYSTEM = re.compile(r"\((?:\w+ )*(?:amd64|arm64|x86_64|aarch64)[^)]*\)|(?<=node\.js/)\S+|(?<=Go/)\S+|(?<=Python/)\S+")
"""What a user agent tells of its machine."""
FILLER = (
    "The lamp turns above the bay and the keeper counts the ships that pass before the fog comes in from the west. "
)
SHORT = 24
"""Bytes of a text that is kept as it is when it is one word."""
NAMES = frozenset({"model", "role", "type", "name", "id", "effort", "format", "required", "tool_use_id", "media_type"})
"""Fields whose short values are names of the protocol."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"')
_TEXT = re.compile(r'"(?:[^"\\]|\\.){24,}"')
_WORD = re.compile(rb"[\w.:/-]*")


class Recorded(msgspec.Struct, frozen=True):
    """One request as it is kept."""

    step: str
    """What the client was doing."""
    method: str
    path: str
    headers: list[str]
    """`name: value` in their order, names in lower case."""
    body: str
    """As it was sent; every client here sends JSON in UTF-8."""


class Recording:
    """The requests of one client in one run."""

    def __init__(self, keys: Mapping[str, str], models: Sequence[str], *, is_foreign: bool) -> None:
        """`keys`: secret to what stands for it. `models`: names that differ in nothing else. `is_foreign`: of texts."""
        self.requests: list[Recorded] = []
        self._keys = keys
        self._models = re.compile("|".join(rf'"{re.escape(name)}"' for name in models))
        self._is_foreign = is_foreign
        self._seen: set[tuple[str, ...]] = set()

    def add(self, step: str, seen: Seen) -> None:
        """Keep a request unless the same was sent before, for another model or with other texts that are not kept."""
        body = filled(seen.body) if self._is_foreign else seen.body
        step = step.partition(" (")[0]  # which engine it was for is the model's business
        one = Recorded(step, seen.method, seen.path, self._masked(seen.headers), body.decode())
        told = [line for line in one.headers if not line.startswith("content-length:")]
        words = _TEXT.sub("", one.body) if self._is_foreign else one.body
        sameness = (one.method, one.path, *told, self._models.sub("MODEL", words))
        if sameness not in self._seen:
            self._seen.add(sameness)
            self.requests.append(one)

    def _masked(self, headers: Mapping[str, str]) -> list[str]:
        found = []
        for name, told in headers.items():
            value = told
            for secret, mask in self._keys.items():
                value = value.replace(secret, mask)
            if name == "host":
                value = HOST
            elif MACHINE.fullmatch(name):
                value = MASK
            elif name == "user-agent":
                value = SYSTEM.sub(MASK, value)
            found.append(f"{name}: {ID.sub(NO_ID, value)}")
        return found

    def write(self, client: str, version: str, meta: Mapping[str, object]) -> Path:
        """Write the folder anew."""
        folder = FOLDER / client / version
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for number, one in enumerate(self.requests, 1):
            text = json.dumps(msgspec.to_builtins(one), indent=1, ensure_ascii=False)
            (folder / f"{number:02}-{slug(one.step)}.json").write_text(text + "\n", encoding="utf-8")
        told = yaml.safe_dump(dict(meta), sort_keys=False, allow_unicode=True, width=116)
        (folder / "meta.yaml").write_text(told, encoding="utf-8")
        return folder


def read(path: Path) -> Recorded:
    """One request of a folder."""
    return msgspec.json.decode(path.read_bytes(), type=Recorded)


def slug(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def filled(body: bytes) -> bytes:
    """A JSON body with filler in place of its texts. Names of the protocol stay; so do all lengths in bytes."""
    if not body:
        return body
    made, at, field = bytearray(), 0, b""
    for token in _TOKEN.finditer(body):
        made += body[at : token.start()]
        at = token.end()
        if body[at : at + 1] == b":" or body[at : at + 2] == b" :":
            field = token[0]
            made += token[0]
        else:
            made += token[0] if _is_name(field, token[0]) else b'"' + _filler(token[0][1:-1]) + b'"'
    made += body[at:]
    _check_same(json.loads(body), json.loads(bytes(made)))
    return bytes(made)


def _is_name(field: bytes, token: bytes) -> bool:
    return len(token) <= SHORT + 2 and field[1:-1].decode() in NAMES and _WORD.fullmatch(token[1:-1]) is not None


def _filler(text: bytes) -> bytes:
    """As many bytes as the text of a JSON token, with its line ends where they are."""
    lines = text.replace(rb"\\", b"xx").split(rb"\n")
    source = (FILLER * (max(map(len, lines)) // len(FILLER) + 1)).encode()
    return rb"\n".join(source[: len(line)] for line in lines)


def _check_same(one: Any, other: Any) -> None:  # noqa: ANN401 - any JSON
    """Fail where filler has changed more than texts."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            _check_same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, yours in zip(one, other, strict=True):
            _check_same(mine, yours)
    elif not isinstance(one, str):
        assert one == other
