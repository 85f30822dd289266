"""Fails where `pharos/core` waits, opens a file, chooses by chance, logs or reads a clock.

The import contracts say the same of imports, through every level; this names the line, and sees what no import shows.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "asyncio",
    "aiohttp",
    "socket",
    "ssl",
    "time",
    "datetime",
    "random",
    "secrets",
    "logging",
    "os",
    "io",
    "pathlib",
    "threading",
}
CALLS = {"open", "print", "input"}


def impurities(path: Path) -> list[str]:
    """What in a file is not pure, a line each."""
    places = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{getattr(item, 'lineno', 0)}"
        if isinstance(item, ast.AsyncFunctionDef | ast.Await):
            places.append(f"{where}: core never waits")
        elif isinstance(item, ast.Import):
            places += [f"{where}: import {a.name}" for a in item.names if a.name.split(".")[0] in FORBIDDEN]
        elif isinstance(item, ast.ImportFrom) and (item.module or "").split(".")[0] in FORBIDDEN:
            places.append(f"{where}: from {item.module} import …")
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id in CALLS:
            places.append(f"{where}: {item.func.id}(…)")
    return places


def main() -> int:
    """Look at the whole core."""
    places = [place for path in sorted((ROOT / "pharos" / "core").rglob("*.py")) for place in impurities(path)]
    print("\n".join(places))
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main())
