"""What a look at a backend showed, and the exit status it stands for; no matter who looked.

Forbidden here: importing what looks, as a doctor that asks the running process needs none of it.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from pharos.control.inspect import Inspection

EXIT_COMPLETE: Final = 0
EXIT_WRONG: Final = 1
EXIT_UNREACHABLE: Final = 2
ROUTES: Final = {"/v1/chat/completions": "most agents", "/v1/messages": "Claude Code", "/v1/responses": "Codex"}
"""Route of coding agents -> who needs it."""


class Finding(msgspec.Struct, frozen=True):
    """What one look at one backend showed."""

    row: dict[str, Any]
    """The shape that all pages share, and more fields: `evidence` (how the kind was told), `error`, `remarks`, `routes`
    of coding agents (route -> served, `None`: not to be told) and `feeds` (followed feed -> why it cannot be read)."""
    exit_code: int
    found: "Inspection | None" = None
    """The visit itself, for a recording."""
