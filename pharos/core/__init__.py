"""What Pharos decides, and nothing else.

Forbidden here: I/O, clocks, randomness, logging, `async`. Time and seeds are arguments; methods that
change state return the work to do. The linter proves it (`pyproject.toml`, import contracts).
"""
