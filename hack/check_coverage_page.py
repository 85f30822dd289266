"""Fails where docs/coverage.md names a test that is not there, or has a row that neither names one nor says why not.

A row is `| topic | behaviour or number | tests |`; the last cell holds `path::name` entries in backticks, or
`not: reason`. A name stands for a test function of that file.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coverage.md"
ENTRY = re.compile(r"`([\w./-]+\.py)(?:::(\w+))?`")


def functions(path: Path) -> set[str]:
    """Names of the test functions and classes of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        item.name for item in ast.walk(tree) if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def problems(line: str, number: int) -> list[str]:
    """What is wrong with one line of the page."""
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    if not line.startswith("|") or len(cells) < 3 or set(cells[0]) <= {"-"} or cells[0] == "topic":
        return []
    entries, found = ENTRY.findall(cells[-1]), []
    if not entries and not cells[-1].startswith("not: "):
        found.append(f"line {number}: names no test and gives no reason (`not: …`)")
    for name, function in entries:
        path = ROOT / name
        if not path.is_file():
            found.append(f"line {number}: there is no {name}")
        elif function and function not in functions(path):
            found.append(f"line {number}: {name} has no {function}")
    return found


def main() -> int:
    """Look at every row of the page."""
    if not PAGE.is_file():
        print(f"there is no {PAGE.relative_to(ROOT)}: it must say which test shows which promise")
        return 1
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [problem for number, line in enumerate(lines, 1) for problem in problems(line, number)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
