"""Makes the chain of hashes of a request's prompt, whatever protocol it is written in.

# ops: prompt_of(body, route, model, salt) · prompt_in(members, ...) · is_slow(body)
# plan: decode what is prompt (at once, else `prompt_loose`) -> one reader for each protocol -> `prompt_parts`
# cost: of a chat of 32 KiB in 20 messages some 12 µs to decode, and 20 to 65 to hash, by how much of it was seen before
# warning: call it in a worker thread wherever `parse_body` was called in one, and for bodies that are slow here

Forbidden here: keeping or logging anything of a prompt, and refusing a request: without a chain it is routed as well.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from pharos.core.prefix import Chain, Known
from pharos.core.prefix.chain import MOST_LINKS
from pharos.proxy import prompt_loose
from pharos.proxy.parse import THREAD_BRACKETS, THREAD_BYTES
from pharos.proxy.parse_size import Blob
from pharos.proxy.prompt_parts import AsSent, PromptBuilder, add_conversation, add_text
from pharos.proxy.protocol import Protocol
from pharos.proxy.table import Route


class _Prompt(Struct, gc=False):
    """Members of a body that are prompt, or come before it in an engine's template."""

    messages: Any = None
    system: Any = None
    instructions: Any = None
    input: Any = None
    prompt: Any = None
    suffix: Any = None
    images: Any = None
    context: Any = None
    template: Any = None
    tools: Any = None
    functions: Any = None
    documents: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    reasoning_effort: Any = None
    reasoning: Any = None
    think: Any = None
    previous_response_id: Any = None
    conversation: Any = None


MOST_COLONS: Final = 10_000
"""Members of objects, or so, in the largest body that is worked on between streams (1 µs each); and lists."""
MOST_BRACES: Final = 250_000
"""Objects, or so, in a body that gets a chain: it would keep a thread for seconds, and is nothing that people write."""
_QUICK: Final = 40 * 1024
"""Bytes of a body that cannot hold so many of them that counting them would pay."""
_WINDOW: Final = 64 * 1024
_NAMES: Final = frozenset(_Prompt.__struct_fields__)
_DECODE: Final = msgspec.json.Decoder(_Prompt).decode
_CHAT_HEAD: Final = (
    "tools", "functions", "documents", "chat_template", "chat_template_kwargs", "reasoning_effort", "reasoning",
    "think", "template",
)  # fmt: skip
"""What templates write ahead of the messages, as far as the request brings it."""
_TEXT_HEAD: Final = ("suffix", "images", "template", "think")

_NOTHING: Final[frozenset[str]] = frozenset()
_TOOLS: Final = frozenset({"tools"})
_VISION: Final = frozenset({"vision"})
_BOTH: Final = _TOOLS | _VISION

Reader = Callable[[PromptBuilder, _Prompt], None]
"""Adds the prompt of one protocol to a chain. No link: there is nothing to predict."""


def is_slow(body: bytes) -> bool:
    """Whether making the chain would hold up other streams noticeably; where reading the body did, it does too."""
    if len(body) <= _QUICK:
        return False
    if len(body) > THREAD_BYTES or body.count(b"{") > THREAD_BRACKETS:
        return True
    return body.count(b":") > MOST_COLONS or body.count(b"[") > MOST_COLONS


def has_prompt(route: Route) -> bool:
    """Whether requests on a route have prompts that engines cache."""
    return route.takes_slot and route.protocol in _READERS


def prompt_of(
    body: bytes, route: Route, model: str, salt: bytes = b"", known: Known | None = None
) -> tuple[Chain | None, frozenset[str]]:
    """Read the prompt of a body that `parse_body` has accepted: its chain, and the abilities that it asks of a model.

    No chain: nothing can be predicted about it. `model`: its one name. `salt`: of the key or its group; prompts of
    different salts never match. `known`: see `ChainBuilder`.
    """
    if not has_prompt(route):
        return None, _NOTHING
    prompt = _read(body, route.blob)
    return (None, _NOTHING) if prompt is None else _chained(prompt, route, PromptBuilder(model, salt, known))


def prompt_in(
    members: Mapping[str, Any], route: Route, model: str, salt: bytes = b"", known: Known | None = None
) -> tuple[Chain | None, frozenset[str]]:
    """Do the same for a body whose members were decoded. Its route must have prompts."""
    prompt = _Prompt(**{name: members[name] for name in members if name in _NAMES})
    return _chained(prompt, route, PromptBuilder(model, salt, known))


def _chained(prompt: _Prompt, route: Route, chain: PromptBuilder) -> tuple[Chain | None, frozenset[str]]:
    try:
        _READERS[route.protocol](chain, prompt)
    except RecursionError:  # nested as deep as can be read, but not written
        return None, _NOTHING
    if not prompt.tools:
        return chain.chain(), _VISION if chain.has_images else _NOTHING
    return chain.chain(), _BOTH if chain.has_images else _TOOLS


def _read(body: bytes, blob: Blob) -> _Prompt | None:
    if len(body) <= THREAD_BYTES:
        try:
            return _DECODE(body)
        except (msgspec.DecodeError, RecursionError):
            pass
    if _is_too_much(body):
        return None
    members = prompt_loose.members(body, _NAMES, blob)
    return None if members is None else _Prompt(**members)


def _is_too_much(body: bytes) -> bool:
    count = 0
    for at in range(0, len(body), _WINDOW):
        count += body.count(b"{", at, at + _WINDOW)
        if count > MOST_BRACES:
            return True
    return False


def _head(prompt: _Prompt, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(prompt, name)) is not None}


def _chat(chain: PromptBuilder, prompt: _Prompt) -> None:
    _conversation(chain, prompt, None, prompt.messages)


def _anthropic(chain: PromptBuilder, prompt: _Prompt) -> None:
    _conversation(chain, prompt, prompt.system, prompt.messages)


def _responses(chain: PromptBuilder, prompt: _Prompt) -> None:
    if prompt.previous_response_id is not None or prompt.conversation is not None:
        return  # what came before stands in one engine's memory, and there the request goes
    said = prompt.input
    messages = [{"role": "user", "content": said}] if isinstance(said, str | AsSent) else said
    _conversation(chain, prompt, prompt.instructions, messages)


def _conversation(chain: PromptBuilder, prompt: _Prompt, system: object, messages: object) -> None:
    if isinstance(messages, list | Iterator):
        head = _head(prompt, _CHAT_HEAD)
        add_conversation(chain, head, system, islice(messages, MOST_LINKS))


def _completion(chain: PromptBuilder, prompt: _Prompt) -> None:
    text = prompt.prompt
    if isinstance(text, list):
        if len(text) == 1:
            text = text[0]  # several are several prompts
        elif not all(isinstance(token, int) for token in text):
            return
    if text and isinstance(text, str | list | AsSent):
        _plain(chain, prompt, text, None)


def _generate(chain: PromptBuilder, prompt: _Prompt) -> None:
    if prompt.prompt and not prompt.context and isinstance(prompt.prompt, str | AsSent):  # the context is tokens
        _plain(chain, prompt, prompt.prompt, prompt.system)


def _plain(chain: PromptBuilder, prompt: _Prompt, text: object, system: object) -> None:
    """A plain prompt in blocks. What the system says has a link of its own, as in a conversation."""
    add_conversation(chain, _head(prompt, _TEXT_HEAD), system, ())
    add_text(chain, text)


_READERS: Final[dict[Protocol, Reader]] = {
    "openai_chat": _chat,
    "ollama_chat": _chat,
    "anthropic": _anthropic,
    "openai_responses": _responses,
    "openai_completion": _completion,
    "ollama_generate": _generate,
}
"""Protocols with prompts that engines cache; embeddings and rerank have none."""
