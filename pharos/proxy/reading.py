"""Reads a whole JSON body: what routing needs of it, and what its prompt is. On the loop, or in a worker thread.

Forbidden here: judging who may ask (`accept.py` does), and keeping anything of a prompt but its chain.
"""

import os
import sys
from typing import Final, TypeGuard

from msgspec import Struct, structs

from pharos.core.fleet import Fleet
from pharos.core.prefix import Chain, Known
from pharos.core.prefix.chain import MOST_LINKS
from pharos.proxy.auth import Key
from pharos.proxy.parse import ChatRequest, SlowBodyError, is_light, needs_thread, parse_body
from pharos.proxy.parse_whole import guess_model, parse_whole
from pharos.proxy.prompt import has_prompt, is_slow, prompt_in, prompt_of
from pharos.proxy.table import Route

LOOKED_AT: Final = 16
"""Backslashes that are looked at, since a text that writes characters as `\\u0416` has one before each of them."""


class Read(Struct, frozen=True, gc=False):
    """What a body says."""

    parsed: ChatRequest
    """With the model's one name."""
    named: str
    """The model as the body has it."""
    prompt_bytes: int
    """Bytes of the prompt's text, which tokens are estimated from: decoded, where the prompt was read."""
    chain: Chain | None = None
    """`None`: nothing can be predicted about its prompt."""
    needs: frozenset[str] = frozenset()
    """What it asks of a model: words of `signals.ABILITIES`."""


def memory() -> Known | None:
    """Where to keep links that were made; `None` while somebody may know what Python's own hashes are keyed with."""
    is_secret = bool(sys.flags.hash_randomization) and os.environ.get("PYTHONHASHSEED", "") in ("", "random")
    return Known() if is_secret else None


class Reader:
    """Reads bodies, and remembers what hashes their beginnings had. Worker threads may use it, too."""

    def __init__(self, fleet: Fleet, known: Known | None = None) -> None:
        """`known`: see `ChainBuilder`."""
        self._fleet = fleet
        self._known = known

    def __repr__(self) -> str:
        return f"<Reader {self._known!r}>"

    def read(self, body: bytes, route: Route, key: Key, *, in_loop: bool = False) -> Read:
        """Read a JSON body. Raises `ClientFault` (400), and `SlowBodyError` if `in_loop`.

        The prompt is not looked at when the key may not use the model, when there is nothing to compute, or when one
        target alone has the model: it gets the request whatever its cache holds, and hashing is dear (`docs/adr/0009`).
        """
        if has_prompt(route):
            guess = guess_model(body)
            if guess is not None and self._fleet.has_choice(self._fleet.resolve(guess)) and is_light(body):
                whole = self._read_whole(body, route, key)
                if whole is not None:
                    return whole
        return self.read_prompt(parse_body(body, route, in_loop=in_loop), body, route, key)

    def read_here(self, body: bytes, route: Route, key: Key) -> Read | None:
        """The same on the loop; `None` when it takes so long that a worker thread must do it."""
        if needs_thread(body) or is_slow(body):
            return None
        try:
            return self.read(body, route, key, in_loop=True)
        except SlowBodyError:
            return None

    def read_prompt(self, parsed: ChatRequest, body: bytes, route: Route, key: Key) -> Read:
        """Add to what was parsed of a body what its prompt is."""
        parsed, named = self._resolved(parsed)
        model = parsed.model
        if not parsed.teaches or not key.allows(model):
            return Read(parsed, named, parsed.prompt_bytes)
        if not self._fleet.has_choice(model) and not _escapes(body):
            return Read(parsed, named, parsed.prompt_bytes)
        chain, needs = prompt_of(body, route, model, key.salt, self._known)
        return Read(parsed, named, chain.ends[-1] if _is_whole(chain) else parsed.prompt_bytes, chain, needs)

    def _read_whole(self, body: bytes, route: Route, key: Key) -> Read | None:
        """Read a body and its prompt in one step; `None` for any that must be looked at in two."""
        found = parse_whole(body, route)
        if found is None:
            return None
        parsed, named = self._resolved(found[0])
        if not parsed.teaches or not key.allows(parsed.model):
            return None
        chain, needs = prompt_in(found[1], route, parsed.model, key.salt, self._known)
        return Read(parsed, named, chain.ends[-1], chain, needs) if _is_whole(chain) else None

    def _resolved(self, parsed: ChatRequest) -> tuple[ChatRequest, str]:
        """With the model's one name; and the name that it came with."""
        named = parsed.model
        model = self._fleet.resolve(named)
        return (parsed if model == named else structs.replace(parsed, model=model)), named


def _is_whole(chain: Chain | None) -> TypeGuard[Chain]:
    """Whether a chain tells how long its prompt is: one that is as long as can be may have left the rest out."""
    return chain is not None and len(chain.ends) < MOST_LINKS


def _escapes(body: bytes) -> bool:
    """Whether a text is written in escapes of six bytes a character: only when decoded it tells its length."""
    at = -2
    for _ in range(LOOKED_AT):
        at = body.find(b"\\", at + 2)  # one byte: a search for two would take as long as all of the reading
        if at < 0:
            return False
        if body.startswith(b"u", at + 1):
            return True
    return False
