"""Fails where a page names a test that is not there, or has a row that neither names one nor says why not.

The pages are docs/coverage.md (promise -> test), docs/field-reports.md (report -> test) and docs/threat-model.md
(danger -> test). A row is a line `| … | … | tests |`; its last cell holds `path::name` entries in backticks, or a
reason after the page's own words.
A name stands for a test function or class of that file.
"""

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"`([\w./-]+\.py)(?:::(\w+))?`")


class Page(NamedTuple):
    """One page and its rules."""

    name: str
    header: str
    """The first cell of a table's head."""
    reason: str
    """What a last cell begins with that names no test."""
    keys: Sequence[str] = ()
    """The first cells that there must be, each once; () for any."""


PAGES = (
    Page("docs/coverage.md", "topic", "not: "),
    Page("docs/field-reports.md", "report", "not yet: ", [f"B{number:02}" for number in range(1, 61)]),
    Page("docs/threat-model.md", "case", "not: "),
)


@functools.cache
def functions(path: Path) -> set[str]:
    """Names of the functions and classes of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        item.name for item in ast.walk(tree) if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def rows(page: Page, lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row."""
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and len(cells) >= 3 and not set(cells[0]) <= {"-"} and cells[0] != page.header:
            yield number, cells


def problems(page: Page, cell: str) -> Iterator[str]:
    """What is wrong with the last cell of a row."""
    entries = ENTRY.findall(cell)
    if not entries and not cell.startswith(page.reason):
        yield f"names no test and gives no reason (`{page.reason}…`)"
    for name, function in entries:
        path = ROOT / name
        if not path.is_file():
            yield f"there is no {name}"
        elif function and function not in functions(path):
            yield f"{name} has no {function}"


def check(page: Page) -> list[str]:
    """What is wrong with a page, a line each."""
    path = ROOT / page.name
    if not path.is_file():
        return [f"there is no {page.name}: it must say which test shows what"]
    found = list(rows(page, path.read_text(encoding="utf-8").splitlines()))
    told = [f"{page.name}:{number}: {problem}" for number, cells in found for problem in problems(page, cells[-1])]
    if page.keys:
        seen = Counter(cells[0] for _, cells in found)
        told += [f"{page.name}: no row for {key}" for key in page.keys if key not in seen]
        told += [f"{page.name}: {key} has no place here" for key in seen if key not in page.keys]
        told += [f"{page.name}: {count} rows for {key}" for key, count in seen.items() if count > 1]
    return told


def main() -> int:
    """Look at every row of every page."""
    told = [line for page in PAGES for line in check(page)]
    print("\n".join(told))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
