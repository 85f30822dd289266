"""What all pages answer with, whatever they show. Forbidden here: knowing any page."""

import json
from typing import Final

import msgspec

from pharos.proxy.errors import ClientFault, render
from pharos.proxy.incoming import Page

JSON: Final = "application/json"
HTML: Final = "text/html"


def encoded(described: object) -> bytes:
    """As JSON, whatever letters engines put into their names."""
    try:
        return msgspec.json.encode(described)
    except UnicodeEncodeError:  # an engine's name has half of a surrogate pair in it: JSON can write that, UTF-8 cannot
        return json.dumps(described).encode("ascii")


def fault_page(fault: ClientFault) -> Page:
    """What is answered to a request that a page refuses."""
    return fault.status, JSON, render(fault, "openai")
