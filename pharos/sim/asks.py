"""What clients ask: requests, and sessions that bring one after the other. Records and protocols only."""

from typing import Protocol

from msgspec import Struct

from pharos.core.prefix import Chain

CHAT_ROUTE = "/v1/chat/completions"


class Ask(Struct, frozen=True, gc=False):
    """One request."""

    kind: str
    """What sort of client asks: results are shown by it."""
    key: str
    model: str
    chain: Chain
    """The prompt, as the prefix index sees it."""
    after: Chain
    """The prompt and its reply: what the engine's cache holds afterwards, and the next turn begins with."""
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    bytes_per_token: float = 4.0
    """Of the prompt's text, as the engine's tokenizer would have it."""

    @property
    def prompt_bytes(self) -> int:
        """Bytes of text in the prompt."""
        return self.chain.ends[-1]

    def tokens_to(self, nbytes: int) -> int:
        """Tokens of the first bytes of the prompt."""
        return round(nbytes / self.bytes_per_token)


class Turn(Struct, frozen=True, gc=False):
    """A request that comes a while after the reply to the one before, or after the session's start."""

    pause_s: float
    ask: Ask


class Session(Protocol):
    """A client: its next request comes only after the reply to its last."""

    def next(self) -> Turn | None:
        """What it asks next; `None`: it is done. What comes does not depend on when it is asked."""
        ...
