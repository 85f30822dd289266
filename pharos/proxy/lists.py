"""The list of models in the caller's protocol: OpenAI's or Anthropic's. Made from what scraping knows: nobody is asked.

Forbidden here: naming a model that the key may not use.
"""

import datetime as dt
import json
from collections.abc import Sequence
from urllib.parse import unquote

from pharos.core.fleet import Fleet
from pharos.core.fleet.names import canonical
from pharos.proxy.auth import Key
from pharos.proxy.errors import model_not_found, shape_for
from pharos.proxy.incoming import Incoming

MODELS = "/v1/models"
MODELS_PREFIX = MODELS + "/"


def usable(fleet: Fleet, key: Key, now: float) -> list[str]:
    """Models that are there now and that the key may use, by the clients' names."""
    return [name for name in fleet.models(now) if key.allows(name)]


def models(incoming: Incoming, found: Sequence[str], started_at: int) -> bytes:
    """Answer a request for the list, or for one model. Raises ClientFault (404). `started_at`: seconds since 1970."""
    is_anthropic = shape_for(incoming.path, incoming.headers) == "anthropic"
    card = _anthropic if is_anthropic else _openai
    if incoming.path != MODELS:
        wanted = unquote(incoming.path[len(MODELS_PREFIX) :])  # once: a name may have percent signs itself
        name = canonical(wanted)
        if name not in found:
            raise model_not_found(wanted)
        return _json(card(name, started_at))
    cards = [card(name, started_at) for name in found]
    if is_anthropic:
        ends = (found[0], found[-1]) if found else (None, None)
        return _json({"data": cards, "has_more": False, "first_id": ends[0], "last_id": ends[1]})
    return _json({"object": "list", "data": cards})


def _openai(name: str, started_at: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": started_at, "owned_by": "pharos"}


def _anthropic(name: str, started_at: int) -> dict[str, object]:
    created = dt.datetime.fromtimestamp(started_at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": created}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
