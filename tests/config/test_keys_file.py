import json
from pathlib import Path

import pytest

from pharos.config.load import load, read
from pharos.config.problems import ConfigError

A, B = "a" * 64, "b" * 64
ALICE, BOB = f"{{name: alice, sha256: {A}}}", f"{{name: bob, sha256: {B}, rpm: 5}}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(more: str | bytes | None, *own: str) -> None:
    keys = "".join(f"\n- {entry}" for entry in own)
    Path("pharos.yaml").write_text("keys_file: more.yaml\n" + (f"keys:{keys}\n" if own else ""))
    if isinstance(more, bytes):
        Path("more.yaml").write_bytes(more)
    elif more is not None:
        Path("more.yaml").write_text(more)


def fault() -> str:
    with pytest.raises(ConfigError) as caught:
        load("pharos.yaml", {})
    return str(caught.value)


@pytest.mark.parametrize(
    "more", [f"- {BOB}", f"keys:\n- {BOB}", f"[{BOB}]", json.dumps([{"name": "bob", "sha256": B}])]
)
def test_keys_of_the_file_come_behind_those_of_the_configuration(more: str) -> None:
    given(more, ALICE)
    assert [key.name for key in load("pharos.yaml", {}).keys] == ["alice", "bob"]


def test_a_file_alone_is_enough_and_an_empty_one_beside_keys_is_too() -> None:
    given(f"- {BOB}")
    assert load("pharos.yaml", {}).keys[0].rpm == 5
    for nothing in ("", "# nobody", "[]", "keys:"):
        given(nothing, ALICE)
        assert [key.name for key in load("pharos.yaml", {}).keys] == ["alice"]


def test_places_of_its_entries_name_the_file() -> None:
    given(f"- {ALICE}\n- {BOB}")
    places = read("pharos.yaml", {}).places
    assert places["keys_file[1].rpm"] == "more.yaml line 2"


def test_a_link_is_followed_as_mounted_secrets_are() -> None:
    given(None, ALICE)
    Path("..data_1").mkdir()
    Path("..data_1/more.yaml").write_text(f"- {BOB}")
    Path("more.yaml").symlink_to("..data_1/more.yaml")
    assert len(load("pharos.yaml", {}).keys) == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (f"- {{name: alice, sha256: {B}}}", "more.yaml line 1, keys_file[0].name: alice is the name of keys[0] too"),
        (f"- {{name: x, sha256: {A}}}", "more.yaml line 1, keys_file[0].sha256: is the same key as keys[0]"),
        (f"- {BOB}\n- {BOB}", "more.yaml line 2, keys_file[1].name: bob is the name of keys_file[0] too"),
        ("- {name: x, sha256: abc}", "more.yaml line 1, keys_file[0].sha256: must be 64 hexadecimal digits"),
        (f"- {{name: x, sha256: {B}, rpm: -1}}", "keys_file[0].rpm: must be of at least 1, got -1"),
        (f"- {{name: x, sha256: {B}, tokens_per_day: 2e+06}}", "expected a whole number of at least 1, got 2e+06"),
        (f"- {{name: x, sha256: {B}, priority: 2000}}", "priority: must be from -1000 to 1000, got 2000"),
        (f"- {{name: x, sha256: {B}, rmp: 1}}", "keys_file[0].rmp: no such field; did you mean rpm?"),
        ("- {name: x, sha256: phk-secret}", "this is a key itself, which never belongs here"),
        ("- name: x", "more.yaml line 1, keys_file[0].sha256: is missing"),
        ("phk-secret", "more.yaml line 1, keys_file: expected a list of keys"),
        ("keys: {a: b}", "expected a list of keys"),
        ("other: []", "expected a list of keys"),
        ("- {name: x", "more.yaml line 1, keys_file: it is not YAML"),
        (b"\xff\xfe\xfa", "more.yaml line 1, keys_file: is not UTF-8 text"),
        (None, "line 1, more.yaml, keys_file: there is no such file"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_entry_and_without_a_key(more: str | bytes | None, told: str) -> None:
    given(more, ALICE)
    assert told in fault()
    assert "phk-secret" not in fault()


@pytest.mark.parametrize("more", ["", "[]", "keys: []"])
def test_no_key_at_all_would_open_the_door_and_is_refused(more: str) -> None:
    given(more)
    assert "line 1, more.yaml, keys_file: holds no key" in fault()
    assert "everybody would be let in" in fault()


def test_all_problems_of_both_files_are_told_at_once() -> None:
    given("- {name: x, sha256: abc}", "{name: y, sha256: def}")
    assert "line 3, keys[0].sha256" in fault()
    given("- {name: x, sha256: abc}", f"{{name: y, sha256: {A}}}", f"{{name: y, sha256: {B}}}")
    assert "keys_file[0].sha256" in fault()
    assert "keys[1].name" in fault()


def test_a_folder_or_an_odd_path_is_told() -> None:
    given(None, ALICE)
    Path("more.yaml").mkdir()
    assert "is a folder, not a file" in fault()
    Path("pharos.yaml").write_text('keys_file: "a\\0b"')
    assert "has a character that no path can have" in fault()
