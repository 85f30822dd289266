"""Writes the pieces of a prompt into a chain: messages, their parts, tools, and text in blocks.

What is hashed is what a request says, not how it is written: texts are decoded, members stand in one order, white space
and null members are nothing. So bodies that escape and bodies that do not give the same chain. Forbidden here: reading
what a text holds (arguments of tools are a text), and repairing anything.

Fields begin with bytes that UTF-8 never has, so that no text can pretend to be a field.
"""

import json
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from pharos.core.prefix import ChainBuilder, Known
from pharos.core.prefix.chain import Piece

BLOCK: Final = 1024
"""Bytes of text of one link of a plain prompt."""
IMAGES: Final = frozenset({"image_url", "image", "input_image"})
"""Types of parts that only a model with eyes can read."""
MARKERS: Final = frozenset({"cache_control"})
"""Members that tell a cloud what to cache; clients move them from turn to turn."""
TEXTS: Final = frozenset({"text", "input_text", "output_text"})
"""Types of parts that are nothing but text, in all protocols: one of them is the same as a plain string."""
FILES: Final = frozenset({
    "image_url", "image", "input_image", "input_audio", "audio_url", "video_url", "file", "input_file", "document",
})  # fmt: skip
"""Types of parts that are hashed, but are no text."""

_ROLE: Final = b"\xff"
_TEXT: Final = b"\xfe"
_FIELD: Final = b"\xfd"
_VALUE: Final = b"\xfc"
_PART: Final = b"\xfb"
_SENT: Final = b"\xfa"
_OPEN: Final = b"\xf9"
_CLOSE: Final = b"\xf8"
_DEEPEST: Final = 4
"""Lists of parts inside parts; what is deeper is hashed as one value."""
_AT_ONCE: Final = 64
"""Messages that are held to be hashed together."""
_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode
_BEGINS: Final[dict[str, bytes]] = {
    role: _ROLE + role.encode() + _TEXT for role in ("user", "assistant", "tool", "system", "developer")
}
_NO_MEMBERS: Final[frozenset[str]] = frozenset()


class PromptBuilder(ChainBuilder):
    """Makes the chain of a prompt, and sees what else it holds."""

    __slots__ = ("has_images",)

    def __init__(self, model: str, salt: bytes = b"", known: Known | None = None) -> None:
        super().__init__(model, salt, known)
        self.has_images = False


class AsSent(Struct, frozen=True, gc=False):
    """A value that cannot be decoded, or not in reasonable time: its bytes as they stand in the body."""

    raw: bytes
    text_bytes: int
    """Without files in it."""


def utf8(text: str) -> bytes:
    """The bytes of a text; halves of surrogate pairs have some too."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def piece_of(text: str) -> Piece:
    """A text as chains take it: its bytes only where they must be made."""
    return text if text.isascii() else utf8(text)


def canonical(value: object) -> bytes:
    """A decoded value in one way of writing it. Raises RecursionError."""
    try:
        return _ENCODE(value)
    except (ValueError, OverflowError):  # half of a surrogate pair, a number of too many digits
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def add_message(chain: PromptBuilder, message: object) -> None:
    """Add one message, or an item of a list that is none: all its members count, whatever they are."""
    if isinstance(message, dict):
        role, content = message.get("role"), message.get("content")
        if isinstance(content, str) and isinstance(role, str):
            text = piece_of(content)
            chain.add(_BEGINS[role] if role in _BEGINS else _ROLE + utf8(role) + _TEXT, 0)
            chain.add(text, len(text))
            if len(message) == 2:  # noqa: PLR2004 - role and content
                return
        else:
            named = utf8(role) if isinstance(role, str) else b"" if role is None else _PART + canonical(role)
            chain.add(_ROLE + named, 0)
            add_content(chain, content)
        add_fields(chain, message, ("role", "content"))
    else:
        chain.add(_ROLE, 0)
        add_content(chain, message)


def add_content(chain: PromptBuilder, content: object, depth: int = 0) -> None:
    """Add what a message says: a text, or a list of parts."""
    if isinstance(content, str):
        text = piece_of(content)
        chain.add(_TEXT, 0)
        chain.add(text, len(text))
    elif isinstance(content, list) and depth < _DEEPEST and all(isinstance(part, dict) for part in content):
        for part in content:
            _add_part(chain, part, depth)
    elif isinstance(content, AsSent):
        chain.add(b"%b%d:" % (_SENT, len(content.raw)), 0)
        chain.add(content.raw, content.text_bytes)
    elif content is not None:
        data = canonical(content)
        chain.add(_PART + data, len(data))


def _add_part(chain: PromptBuilder, part: dict[str, Any], depth: int) -> None:
    text = part.get("text")
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else None
    if isinstance(text, str) and kind in TEXTS:
        piece = piece_of(text)
        chain.add(_TEXT, 0)
        chain.add(piece, len(piece))
        add_fields(chain, part, ("type", "text"))
        return
    inner = part.get("content")
    has_parts = isinstance(inner, list)  # results of tools: texts and images
    members = {
        name: value
        for name, value in part.items()
        if value is not None and name not in MARKERS and not (has_parts and name == "content")
    }
    data = canonical(members)
    if kind in FILES:
        chain.add(_PART + data, 0)
        chain.has_images |= kind in IMAGES
    else:
        chain.add(_PART + data, len(data))
    if has_parts:
        chain.add(_OPEN, 0)
        add_content(chain, inner, depth + 1)
        chain.add(_CLOSE, 0)


def add_fields(chain: PromptBuilder, members: dict[str, Any], known: Collection[str] = _NO_MEMBERS) -> None:
    """Add members that are not `known`, in the order of their names. Null and empty lists are no members."""
    for name in sorted(members):
        value = members[name]
        if name in known or value is None or value == [] or name in MARKERS or (name == "type" and value == "message"):
            continue
        chain.add(_FIELD + utf8(name) + _VALUE, 0)
        if isinstance(value, str | AsSent):
            add_content(chain, value)
            continue
        data = canonical([*map(_unmarked, value)] if isinstance(value, list) else value)
        if name == "images":
            chain.add(data, 0)
            chain.has_images = True
        else:
            chain.add(data, len(data))


def _unmarked(value: object) -> object:
    """A tool without markers."""
    if isinstance(value, dict) and not MARKERS.isdisjoint(value):
        return {name: member for name, member in value.items() if name not in MARKERS}
    return value


def add_text(chain: PromptBuilder, prompt: object) -> None:
    """Add a plain prompt, a link for each `BLOCK` of it and one for what is left: a text, or a list of tokens."""
    if isinstance(prompt, str):
        mark, data = _TEXT, utf8(prompt)
    elif isinstance(prompt, AsSent):
        mark, data = _SENT, prompt.raw
    else:
        mark, data = _PART, canonical(prompt)
    chain.add(mark, 0)
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        if not chain.add_link(block, len(block)):
            return


def add_conversation(chain: PromptBuilder, head: dict[str, Any], system: object, messages: Iterable[object]) -> None:
    """Add a conversation, a link for each message.

    Tools and what the system says are one: templates disagree on which comes first. Without a system message, they are
    one with the first message. `head`: tools and what else is not said by anybody.
    """
    add_fields(chain, head)
    has_system = system not in (None, "", [])
    if has_system:
        add_message(chain, {"role": "system", "content": system})
    turns = iter(messages)
    for message in turns:
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            add_message(chain, message)
            has_system = True
            continue
        if has_system:
            chain.link()
        add_message(chain, message)
        if chain.link():
            _add_turns(chain, turns)
        return
    if has_system:
        chain.link()


def _add_turns(chain: PromptBuilder, messages: Iterable[object]) -> None:
    """Add messages, a link for each. Most are a role and a text: they are hashed many at once."""
    plain: list[tuple[Piece, Piece]] = []
    for message in messages:
        if type(message) is dict and len(message) == 2:  # noqa: PLR2004 - role and content
            try:
                begin, content = _BEGINS[message["role"]], message["content"]
            except (KeyError, TypeError):  # another role, or none
                begin, content = b"", None
            if type(content) is str:
                plain.append((begin, content if content.isascii() else utf8(content)))
                if len(plain) == _AT_ONCE:
                    if not chain.add_links(plain):
                        return
                    plain = []
                continue
        if not chain.add_links(plain):
            return
        plain = []
        add_message(chain, message)
        if not chain.link():
            return
    chain.add_links(plain)
