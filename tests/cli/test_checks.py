"""The checks under hack/ as a person runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

HACK = Path(__file__).resolve().parents[2] / "hack"
REPORTS = "docs/field-reports.md"
THREATS = "docs/threat-model.md"
HEADS = {"docs/coverage.md": "topic", REPORTS: "report", THREATS: "case"}


class Pages:
    """A copy of the check beside pages and tests of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("hack", "docs", "tests"):
            (folder / name).mkdir()
        shutil.copy(HACK / "check_pages.py", folder / "hack")
        (folder / "tests" / "test_it.py").write_text("def test_it_is_so():\n    ...\n", encoding="utf-8")
        self.write(THREATS, "| a | b | `tests/test_it.py::test_it_is_so` |")

    def write(self, name: str, *rows: str) -> None:
        head = f"| {HEADS[name]} | what | tests |"
        (self.folder / name).write_text("\n".join(["# Page", "", head, "|---|---|---|", *rows, ""]), encoding="utf-8")

    def complain(self) -> list[str]:
        program = [sys.executable, "hack/check_pages.py"]
        ended = subprocess.run(program, cwd=self.folder, capture_output=True, text=True, timeout=30, check=False)
        assert ended.stderr == ""
        lines = ended.stdout.splitlines()
        assert ended.returncode == (1 if lines != [""] else 0)
        return [line for line in lines if line]


def reports(*left_out: int) -> list[str]:
    return [
        f"| B{number:02} | x | `tests/test_it.py::test_it_is_so` |" for number in range(1, 61) if number not in left_out
    ]


def test_a_missing_page_is_one_line(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.write(REPORTS, *reports())
    (line,) = pages.complain()
    assert line.startswith("there is no docs/coverage.md")


def test_a_row_needs_a_test_that_is_there_or_a_reason(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.write(REPORTS, *reports())
    pages.write(
        "docs/coverage.md",
        "| a | b | `tests/test_it.py::test_it_is_so` |",
        "| a | b | not: nobody can tell |",
        "| a | b | `tests/test_it.py::test_it_is_not_so` |",
        "| a | b | `tests/test_that.py::test_it_is_so` |",
        "| a | b | some day |",
    )
    assert pages.complain() == [
        "docs/coverage.md:7: tests/test_it.py has no test_it_is_not_so",
        "docs/coverage.md:8: there is no tests/test_that.py",
        "docs/coverage.md:9: names no test and gives no reason (`not: …`)",
    ]


def test_every_report_has_one_row_which_may_say_what_is_missing(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.write("docs/coverage.md", "| a | b | not: x |")
    pages.write(REPORTS, *reports(7), "| B07 | x | not yet: the route |")
    assert pages.complain() == []
    pages.write(REPORTS, *reports(7, 8), "| B09 | x | not yet: x |", "| B61 | x | not yet: x |")
    assert pages.complain() == [
        f"{REPORTS}: no row for B07",
        f"{REPORTS}: no row for B08",
        f"{REPORTS}: B61 has no place here",
        f"{REPORTS}: 2 rows for B09",
    ]


def test_a_danger_needs_a_test_that_is_there_or_what_to_do_about_it(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.write(REPORTS, *reports())
    pages.write("docs/coverage.md", "| a | b | not: x |")
    pages.write(
        THREATS, "| a | b | not: keep it away |", "| a | b | `tests/test_it.py::test_it_is_not_so` |", "| a | b | c |"
    )
    assert pages.complain() == [
        f"{THREATS}:6: tests/test_it.py has no test_it_is_not_so",
        f"{THREATS}:7: names no test and gives no reason (`not: …`)",
    ]
