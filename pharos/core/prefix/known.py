"""Links that were made lately, by what they were made of: a message that comes again need not be hashed again.

# ops: young.get, old.get, put · goal: a chat that goes on costs a third of the hashing for all but its new messages
# plan: two dictionaries; when the young one is full it becomes the old one, and the old one goes
# warning: use it only while Python's own hashes are of a secret of this process: see `docs/adr/0009`

What a link is made of stands here as one of Python's hashes alone: 64 bits, keyed with what no client knows and no
other process has. Nothing that leaves the process depends on it. Forbidden here: keeping any text.
"""

from typing import Final

KEPT: Final = 20_000
"""Links of one dictionary; both take some 4 MB."""


class Known:
    """Hashes of beginnings, by a hash of the link before and what was added to it. Threads may share one."""

    __slots__ = ("_kept", "old", "young")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.old: dict[int, int] = {}
        """What was not asked for since it was young. What is found here must be `put` again."""
        self.young: dict[int, int] = {}
        """What was made or asked for lately: to be asked first."""

    def __repr__(self) -> str:
        return f"<Known {len(self.young)} young, {len(self.old)} old>"

    def put(self, key: int, link: int) -> None:
        """Remember a link."""
        young = self.young
        young[key] = link
        if len(young) >= self._kept:
            self.old, self.young = young, {}
