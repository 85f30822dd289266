"""The configuration in effect: every field, where it comes from, and nothing that is secret."""

from pharos.config.load import parse_placed
from pharos.config.show import Row, rows, text

HASH = "0123456789" + "a" * 54
FILE = f"""
listen: :9
deadlines: {{connect: 0}}
backends:
  - url: http://a
    headers: {{X-Team: hidden-header}}
    aliases: {{x: y}}
credentials: {{c: {{api_key_file: /run/key}}}}
keys:
  - {{name: k, sha256: {HASH}, cache_salt: hidden-salt}}
"""
ENVIRON = {"PHAROS_DRAIN__TIMEOUT": "90s", "PHAROS_CORS": "{origins: ['https://chat']}"}


def shown() -> dict[str, Row]:
    loaded = parse_placed(FILE, ENVIRON, "p.yaml")
    return {row.field: row for row in rows(loaded.config, loaded.places, "p.yaml")}


def test_each_value_is_as_it_would_be_written_and_has_its_origin() -> None:
    found = {name: (row.value, row.origin) for name, row in shown().items()}
    assert found["listen"] == (":9", "p.yaml:2")
    assert found["deadlines.connect"] == (0, "p.yaml:3")
    assert found["backends[0].url"] == ("http://a", "p.yaml:5")
    assert found["backends[0].aliases.x"] == ("y", "p.yaml:7")
    assert found["credentials.c.api_key_file"] == ("/run/key", "p.yaml:8")
    assert found["drain.timeout"] == ("1m30s", "PHAROS_DRAIN__TIMEOUT")
    assert found["cors.origins"] == (["https://chat"], "PHAROS_CORS")
    assert found["limits.body"] == ("32MiB", "default")
    assert found["peers"] == (None, "default")


def test_secrets_are_masked_and_of_a_hash_only_enough_to_tell_it_is_shown() -> None:
    loaded = parse_placed(FILE, ENVIRON, "p.yaml")
    said = text(rows(loaded.config, loaded.places, "p.yaml"), "p.yaml")
    assert "hidden" not in said
    assert HASH not in said
    assert shown()["keys[0].sha256"].value == "01234567…"
    assert shown()["keys[0].cache_salt"].value == "********"
    assert shown()["backends[0].headers.X-Team"].value == "********"


def test_each_field_says_when_a_change_of_it_takes_effect() -> None:
    assert shown()["listen"].takes_effect == "at a restart"
    assert shown()["backends[0].url"].takes_effect == "at once"


def test_what_has_no_file_comes_from_the_command_line_or_is_a_default() -> None:
    loaded = parse_placed("backends: [{url: http://a}]", {}, "x")
    found = {row.field: row.origin for row in rows(loaded.config, {}, None)}
    assert found["backends[0].url"] == "command line"
    assert found["listen"] == "default"


def test_people_get_a_line_for_each_field_as_yaml_with_its_origin() -> None:
    loaded = parse_placed("cors: {origins: ['*']}", {}, "p.yaml")
    lines = text(rows(loaded.config, loaded.places, "p.yaml"), "p.yaml").splitlines()
    assert lines[0] == "# p.yaml, as it is in effect. Each line says where its value comes from."
    assert any(line.startswith("listen: :8090 ") and line.endswith("# default") for line in lines)
    assert any(line.startswith('cors.origins: ["*"] ') and line.endswith("# p.yaml:1") for line in lines)
    assert any(line.startswith("queue.max_wait: 0 ") for line in lines)
