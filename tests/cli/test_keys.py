import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner, Result

from pharos import app
from pharos.cli import main
from pharos.config.keys import digest, new_key
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


# --- rights of a new key


def test_rights_that_are_asked_for_are_in_the_entry_and_no_others(run: Run) -> None:
    printed = run("keys", "new", "--name", "a", "--rpm", "60", "--tokens-per-day", "2000000", "--model", "qwen*",
                  "--model", "llama", "--weight", "3", "--priority", "-1", "--admin").stdout  # fmt: skip
    entry = yaml.safe_load(printed[printed.index("  - name:") :])[0]
    assert entry.pop("sha256")
    assert entry == {
        "name": "a", "models": ["qwen*", "llama"], "rpm": 60, "tokens_per_day": 2000000, "weight": 3, "priority": -1,
        "admin": True,
    }  # fmt: skip
    plain = run("keys", "new", "--name", "b").stdout
    assert list(yaml.safe_load(plain[plain.index("  - name:") :])[0]) == ["name", "sha256"]


@pytest.mark.parametrize("wrong", [("--rpm", "0"), ("--tokens-per-day", "-5"), ("--weight", "0"), ("--priority", "x")])
def test_a_right_that_cannot_be_is_a_usage_error(run: Run, wrong: tuple[str, str]) -> None:
    result = run("keys", "new", "--name", "a", *wrong)
    assert result.exit_code == 64
    assert wrong[0] in result.stderr


def test_a_name_of_the_file_of_keys_is_refused_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(OLD)
    (tmp_path / "pharos.yaml").write_text("keys_file: more.yaml")
    assert "choose another name" in run("keys", "new", "--name", "old").stderr


# --- whose key it is


def ask(key: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", "check", *arguments], input=key)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A configuration with a key of its own and one in its file of keys; both keys, by name."""
    monkeypatch.chdir(tmp_path)
    alice, bob = new_key("alice", {"rpm": 60, "models": ["qwen*"]}), new_key("bob", {"tokens_per_day": 2000000})
    (tmp_path / "pharos.yaml").write_text(f"keys_file: more.yaml\nkeys:\n{alice.entry()}")
    (tmp_path / "more.yaml").write_text(f"keys:\n{bob.entry()}")
    return {"alice": alice.key, "bob": bob.key}


def test_a_key_is_told_by_its_entry_with_what_it_may(given: dict[str, str]) -> None:
    result = ask(given["alice"] + "\n")
    assert result.exit_code == 0
    for words in ("the key of alice", "keys[0] of pharos.yaml, line 3", "qwen*", "60", "no limit"):
        assert words in result.stdout
    assert "keys_file[0] of pharos.yaml, more.yaml line 2" in ask(given["bob"]).stdout


def test_programs_get_the_same_as_json(given: dict[str, str]) -> None:
    assert json.loads(ask(given["bob"], "--json").stdout) == {
        "name": "bob", "file": "pharos.yaml", "entry": "keys_file[0]", "place": "more.yaml line 2", "models": [],
        "weight": 1, "admin": False, "rpm": None, "tokens_per_day": 2000000, "priority": 0, "queue_events": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("phk-of-nobody", "no entry in pharos.yaml is of this key"),
        ("", "no key was given"),
        ("two words", "write the key alone"),
        ("\udcff\udcfe", "no entry in pharos.yaml is of this key"),
    ],
)
def test_what_is_nobodys_key_is_told_without_being_shown(given: dict[str, str], wrong: str, words: str) -> None:
    assert given
    result = ask(wrong.encode("utf-8", "surrogateescape"))  # type: ignore[arg-type]
    assert result.exit_code == 1
    assert words in result.stderr
    assert wrong == "" or wrong not in result.output


def test_a_hash_in_the_place_of_its_key_is_told_apart(given: dict[str, str]) -> None:
    assert "give the key itself" in ask(digest(given["alice"])).stderr


def test_no_key_is_ever_shown(given: dict[str, str]) -> None:
    for key in given.values():
        for options in ((), ("--json",)):
            output = ask(key, *options).output
            assert key not in output
            assert digest(key) not in output


def test_without_keys_or_without_a_file_that_is_said(run: Run, tmp_path: Path) -> None:
    assert "there is no such file" in run("keys", "check").stderr
    (tmp_path / "pharos.yaml").write_text("listen: :1")
    assert "has no keys: everybody" in run("keys", "check").stderr


def test_at_a_terminal_the_key_is_asked_for_and_not_shown(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharos.cli.keys.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    asked: list[bool] = []

    def prompt(_: str, *, hide_input: bool, err: bool) -> str:
        asked.append(hide_input and err)
        return given["alice"]

    monkeypatch.setattr("click.prompt", prompt)
    assert "the key of alice" in CliRunner().invoke(main, ["keys", "check"]).output
    assert asked == [True]
