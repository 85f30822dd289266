import re
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from pharos import app
from pharos.config.load import load

Run = Callable[..., Result]
OLD = "keys:\n  - {name: old, sha256: " + "a" * 64 + "}\n"


def test_a_pasted_entry_lets_its_key_in_and_no_other(run: Run, tmp_path: Path) -> None:
    printed = run("keys", "new", "--name", "alice").stdout
    key = re.search(r"phk-\S+", printed)
    assert key is not None
    (tmp_path / "pharos.yaml").write_text(OLD + printed[printed.index("  - name:") :])
    keyring = app.keyring(load(tmp_path / "pharos.yaml", {}))
    found = keyring.find({"Authorization": f"Bearer {key.group()}"})
    assert found is not None
    assert found.name == "alice"
    assert keyring.find({"Authorization": f"Bearer {key.group()}x"}) is None


def test_a_key_is_printed_once_and_written_nowhere(run: Run, tmp_path: Path) -> None:
    printed = run("keys", "new", "--name", "alice").stdout
    assert len(re.findall(r"phk-\S+", printed)) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_the_configuration_has_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pharos.yaml").write_text(OLD)
    result = run("keys", "new", "--name", "old")
    assert result.exit_code == 1
    assert "choose another name" in result.stderr
    assert "phk-" not in result.output
    assert run("keys", "new", "--name", "new").exit_code == 0


def test_a_broken_configuration_keeps_nobody_from_making_a_key_unless_it_was_asked_for(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "pharos.yaml").write_text("lissten: :1")
    assert run("keys", "new", "--name", "a").exit_code == 0
    result = run("keys", "new", "--name", "a", "--config", "pharos.yaml")
    assert result.exit_code == 1
    assert "did you mean listen?" in result.stderr
