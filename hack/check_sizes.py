"""Prints the five largest files, functions and classes, and fails past the hard limits: 500, 60 and 250 lines."""

import ast
import sys
from pathlib import Path

LIMITS = {"file": 500, "function": 60, "class": 250}
ROOT = Path(__file__).resolve().parent.parent


def measure(path: Path) -> list[tuple[int, str, str]]:
    """(lines, kind, name) of a file and of everything defined in it; docstrings count."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    found = [(text.count("\n"), "file", name)]
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(item, ast.ClassDef) else "function"
            lines = (item.end_lineno or item.lineno) - item.lineno + 1
            found.append((lines, kind, f"{name}:{item.lineno} {item.name}"))
    return found


def main() -> int:
    """Measure the package, the tests and the programs beside them."""
    found = [
        row
        for top in ("pharos", "tests", "hack")
        for path in sorted((ROOT / top).rglob("*.py"))
        for row in measure(path)
    ]
    status = 0
    for kind, limit in LIMITS.items():
        rows = sorted((row for row in found if row[1] == kind), reverse=True)
        for lines, _, name in rows[:5]:
            print(f"{kind:9}{lines:5}  {name}")
        for lines, _, name in rows:
            if lines > limit:
                print(f"too long: {name} has {lines} lines, the limit for a {kind} is {limit}: split it")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
