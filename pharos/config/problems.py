"""What can be wrong with a configuration, told all at once. No reading here, only the shapes and their text."""

from collections.abc import Sequence

import msgspec

SHOWN = 30
"""Problems told at once: more do not fit on a screen, and the rest often has the same cause."""


class Problem(msgspec.Struct, frozen=True):
    """One thing to mend."""

    path: str
    """The field, as in `backends[0].capacity`; empty for the file as a whole."""
    message: str
    """What is wrong and what to write. Never holds a key, and never more than a few words of a value."""
    where: str = ""
    """`line 4`, or the name of an environment variable; empty where neither is known."""

    def __str__(self) -> str:
        """One line, for people."""
        place = f"{self.where}, " if self.where and self.path else self.where
        subject = f"{place}{self.path}"
        return f"{subject}: {self.message}" if subject else self.message


class ConfigError(Exception):
    """A configuration that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        source = self.source or "the configuration"
        if len(self.problems) == 1:
            return f"{source}: {self.problems[0]}"
        lines = [f"{source} has {len(self.problems)} problems:", *(f"  {problem}" for problem in self.problems[:SHOWN])]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)
