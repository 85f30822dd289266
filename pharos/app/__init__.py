"""The composition root: builds the planes over one fleet and one ledger, starts them, and ends them in order.

Forbidden here, in every file: deciding anything. Planes meet only here, as callables handed to each other. What joins
one more part to the rest is a file of its own; `root` holds the order of start and end.
"""

from pharos.app.from_config import keyring, settings
from pharos.app.process import Stop, handle_signals, run, serve
from pharos.app.reporting import COUNTED_AT, Reporting
from pharos.app.root import App, farewell

__all__ = [
    "COUNTED_AT",
    "App",
    "Reporting",
    "Stop",
    "farewell",
    "handle_signals",
    "keyring",
    "run",
    "serve",
    "settings",
]
