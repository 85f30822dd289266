"""The checks that hold the layers, tried on a copy of the package: it passes, and with one wrong import it does not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "pharos", tmp_path / "pharos", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack" / "check_pure.py", tmp_path / "hack")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def contracts(where: Path) -> tuple[int, str]:
    ended = subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=where, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def purity(where: Path) -> tuple[int, str]:
    program = [sys.executable, "hack/check_pure.py"]
    ended = subprocess.run(program, cwd=where, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout.strip()


def add(where: Path, module: str, line: str) -> None:
    path = where / module
    path.write_text(path.read_text(encoding="utf-8") + "\n" + line + "\n", encoding="utf-8")


def test_the_package_as_it_is_keeps_all_contracts(copy: Path) -> None:
    code, said = contracts(copy)
    assert code == 0, said
    assert "0 broken" in said
    assert purity(copy) == (0, "")


def test_a_clock_in_the_core_breaks_the_contract_and_the_purity_check(copy: Path) -> None:
    add(copy, "pharos/core/policy/cost.py", "import time")
    code, said = contracts(copy)
    assert code != 0
    assert "pharos.core.policy.cost -> time" in said
    code, said = purity(copy)
    assert code == 1
    assert said.startswith("pharos/core/policy/cost.py:")
    assert said.endswith(": import time")


@pytest.mark.parametrize(
    "line",
    [
        "async def wait() -> None: ...",
        "from random import random",
        "import logging.handlers",
        'TEXT = open("numbers")',
    ],
)
def test_whatever_waits_chooses_logs_or_reads_in_the_core_is_named_by_its_line(copy: Path, line: str) -> None:
    add(copy, "pharos/core/signals.py", line)
    code, said = purity(copy)
    assert code == 1
    assert said.startswith("pharos/core/signals.py:")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "line", "told"),
    [
        ("proxy/head.py", "from pharos.control import bucket", "pharos.proxy is not allowed to import pharos.control"),
        ("control/bucket.py", "from pharos.proxy import head", "pharos.control is not allowed to import pharos.proxy"),
        ("core/policy/types.py", "import pharos.core.sched", "pharos.core.policy is not allowed to import"),
        ("core/decisions.py", "import pharos.clock", "pharos.core is not allowed to import pharos.clock"),
        ("config/units.py", "import pharos.app", "pharos.config is not allowed to import pharos.app"),
        ("newcomer.py", "", "pharos.newcomer"),
    ],
    ids=["plane to plane", "plane to plane, back", "up inside the core", "clock", "up outside", "in no layer"],
)
def test_an_import_against_the_layers_breaks_a_contract(copy: Path, module: str, line: str, told: str) -> None:
    (copy / "pharos" / module).touch()
    add(copy, f"pharos/{module}", line)
    code, said = contracts(copy)
    assert code != 0
    assert told in said
