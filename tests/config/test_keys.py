import pytest
import yaml

from pharos.config.keys import digest, new_key
from pharos.config.load import parse


def test_a_new_key_is_found_by_the_entry_that_is_printed_with_it() -> None:
    made = new_key("alice")
    config = parse(f"keys:\n{made.entry()}", {})
    assert config.keys[0].name == "alice"
    assert config.keys[0].sha256 == digest(made.key) == made.sha256


def test_a_key_has_256_random_bits_behind_a_prefix_that_scanners_know() -> None:
    keys = {new_key("a").key for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("phk-") and len(key) == 47 for key in keys)


def test_the_key_itself_is_in_neither_the_entry_nor_the_repr() -> None:
    made = new_key("alice")
    assert made.key not in made.entry() + repr(made)


@pytest.mark.parametrize("name", ["alice", "Jürgen: x", "true", "007", "a'b", "- x", "#1"])
def test_any_allowed_name_survives_its_entry(name: str) -> None:
    entry = new_key(name).entry()
    assert yaml.safe_load(entry)[0]["name"] == name
    assert parse(f"keys:\n{entry}", {}).keys[0].name == name


@pytest.mark.parametrize("name", ["", " a", "a\n", "_x", "phk-x", "n" * 129])
def test_a_name_that_the_configuration_would_refuse_makes_no_key(name: str) -> None:
    with pytest.raises(ValueError, match=r"name|key itself"):
        new_key(name)
