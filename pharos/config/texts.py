"""A file of the configuration as text: bounded, and with a sentence for everything that can be wrong with one."""

import stat
from pathlib import Path

from pharos.config.problems import ConfigError, Problem
from pharos.config.tree import MAX_BYTES


def read_text(path: Path, missing: str = "", *, may_be_pipe: bool = False) -> str:
    """The text of a file. `missing`: what to add when there is none. Raises `ConfigError`.

    `may_be_pipe`: what gives its text only once will do, and is waited for.
    """
    source = str(path)
    try:
        if not (may_be_pipe or is_lasting(path)):
            raise ConfigError([Problem("", "is no regular file, and so it cannot be read again")], source)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem("", f"there is no such file; is the path right?{missing}")], source) from None
    except IsADirectoryError:
        raise ConfigError([Problem("", "is a folder, not a file")], source) from None
    except OSError as fault:
        raise ConfigError([Problem("", f"cannot be read: {fault.strerror}")], source) from None
    except ValueError:
        raise ConfigError([Problem("", "has a character that no path can have")], source) from None
    if len(data) > MAX_BYTES:
        raise ConfigError([Problem("", "is larger than 4 MiB, which no configuration is")], source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ConfigError([Problem("", "is not UTF-8 text", f"line {line}")], source) from None


def is_lasting(path: Path) -> bool:
    """Whether opening it waits for nobody, and gives the same once more. Raises `OSError` and `ValueError`."""
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # that a folder is none is said by whoever opens it
