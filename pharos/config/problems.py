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

    @property
    def is_of_variable(self) -> bool:
        """Whether it is in an environment variable, and not in the file."""
        return self.where.startswith("PHAROS_")

    def __str__(self) -> str:
        """One line, for people."""
        place = f"{self.where}, " if self.where and self.path else self.where
        subject = f"{place}{self.path}"
        return f"{subject}: {self.message}" if subject else self.message


class ConfigError(Exception):
    """A configuration that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], source: str = "", *, keys_file: str | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        self.keys_file = keys_file
        """The file of keys that it names, as far as could be read: what is wrong may be in there."""
        super().__init__(self._text())

    def _text(self) -> str:
        """The file's problems, then those of the environment, which are not the file's."""
        in_file = [problem for problem in self.problems if not problem.is_of_variable]
        in_variables = [problem for problem in self.problems if problem.is_of_variable]
        told = [_told(self.source or "the configuration", in_file)] if in_file else []
        if len(in_variables) == 1:
            told.append(str(in_variables[0]))
        elif in_variables:
            told.append(_told("the environment", in_variables))
        return "\n".join(told)


def _told(source: str, problems: Sequence[Problem]) -> str:
    """What is wrong with one source, a line for each problem."""
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    lines = [f"{source} has {len(problems)} problems:", *(f"  {problem}" for problem in problems[:SHOWN])]
    if len(problems) > SHOWN:
        lines.append(f"  and {len(problems) - SHOWN} more")
    return "\n".join(lines)
