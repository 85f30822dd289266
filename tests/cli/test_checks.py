"""The checks under hack/ as a person runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

HACK = Path(__file__).resolve().parents[2] / "hack"


def test_a_missing_coverage_page_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hack").mkdir()
    program = shutil.copy(HACK / "check_coverage_page.py", tmp_path / "hack")
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    (line,) = ended.stdout.splitlines()
    assert line.startswith("there is no docs/coverage.md")
