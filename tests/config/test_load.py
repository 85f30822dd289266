from pathlib import Path

import pytest

from pharos.config.load import backend_specs, from_urls, load, parse
from pharos.config.problems import ConfigError
from pharos.config.schema import Backend, Config, Deadlines, Key
from pharos.core.fleet import BackendSpec

A, B = "a" * 64, "b" * 64

FULL = f"""
x-defaults: &defaults {{weight: 2, models: [qwen*]}}
listen: 127.0.0.1:9000
policy: least-load
log: {{level: debug, format: json}}
limits: {{body: 1MiB, header: 16KiB, buffered: 64MiB, connections: 500}}
deadlines: {{connect: 250ms, first_byte_warm: 0}}
retry: {{attempts: 2, budget: 0.5}}
queue: {{size: 10, max_wait: 1m30s, absent_wait: 0}}
backends:
  - url: http://gpu-1:8080/
    capacity: 4
    memory_gb: 24
  - {{url: https://gpu-2, name: big, kind: openai}}
keys:
  - {{name: alice, sha256: {A}, <<: *defaults}}
  - {{<<: *defaults, name: ops, sha256: {B.upper()}, admin: true, weight: 3}}
discovery: {{docker: {{enabled: false}}}}
drain: {{grace: 1s, timeout: 0}}
response_headers: {{target: true, reason: true}}
metrics: {{max_models: 5, max_keys: 6}}
"""


def test_an_empty_file_is_all_defaults() -> None:
    for text in ("", "---\n", "# nothing\n", "null", "{}"):
        assert parse(text, {}) == Config()


def test_every_field_that_is_built_can_be_set() -> None:
    config = parse(FULL, {})
    assert (config.listen, config.policy, config.log.format) == ("127.0.0.1:9000", "least-load", "json")
    assert config.limits.body_bytes == 1024**2
    assert config.deadlines == Deadlines(connect_s=0.25)
    assert (config.queue.max_wait_s, config.queue.absent_wait_s) == (90.0, 0.0)
    assert config.drain.timeout_s == 0.0
    assert config.metrics.max_keys == 6
    assert config.keys[0] == Key(name="alice", sha256=A, weight=2, models=("qwen*",))
    assert config.keys[1] == Key(name="ops", sha256=B, weight=3, models=("qwen*",), admin=True)
    assert backend_specs(config) == (
        BackendSpec(name="gpu-1:8080", url="http://gpu-1:8080", kind=None, capacity=4, memory_bytes=24 * 1024**3),
        BackendSpec(name="big", url="https://gpu-2", kind="openai"),
    )


def test_zero_means_off_where_a_duration_may_be_off() -> None:
    assert parse("deadlines: {connect: 0}", {}).deadlines.connect_s is None
    assert parse("queue: {max_wait: 0s}", {}).queue.max_wait_s is None


def test_an_empty_value_means_the_default() -> None:
    assert parse("listen:\nbackends:\nkeys: ~\nlog: {level: }", {}) == Config()


def test_plain_words_are_text_as_in_yaml_1_2() -> None:
    config = parse("listen: 0:8090\nkeys: [{name: no, sha256: " + A + "}, {name: 2026-01-01, sha256: " + B + "}]", {})
    assert config.listen == "0:8090"
    assert [key.name for key in config.keys] == ["no", "2026-01-01"]


def test_a_number_may_be_a_name() -> None:
    assert parse(f"keys: [{{name: 007, sha256: {A}}}]", {}).keys[0].name == "007"


def test_a_merge_gives_way_to_fields_beside_it_and_to_earlier_merges() -> None:
    text = f"x-a: &a {{weight: 2, admin: true}}\nx-b: &b {{weight: 3}}\nkeys: [{{<<: [*b, *a], name: k, sha256: {A}}}]"
    key = parse(text, {}).keys[0]
    assert (key.weight, key.admin) == (3, True)


def test_urls_alone_are_a_configuration() -> None:
    config = from_urls(["http://a:1/", "http://b:2"], {"PHAROS_POLICY": "least-load"})
    assert config.backends == (Backend(url="http://a:1"), Backend(url="http://b:2"))
    assert config.policy == "least-load"


def test_urls_win_over_backends_of_the_environment() -> None:
    assert from_urls(["http://a:1"], {"PHAROS_BACKENDS": "[{url: http://b:1}]"}).backends == (
        Backend(url="http://a:1"),
    )


def test_a_bad_url_is_told_by_itself() -> None:
    with pytest.raises(ConfigError) as caught:
        from_urls(["http://a:1", "ftp://b"], {})
    assert str(caught.value) == "the command line: ftp://b: ftp:// is not spoken: a URL starts with http:// or https://"


def test_a_url_given_twice_is_told_without_a_field_of_a_file() -> None:
    with pytest.raises(ConfigError) as caught:
        from_urls(["http://a:1", "http://a:1"], {})
    assert "backends" not in str(caught.value)
    assert "a:1" in str(caught.value)


def test_a_file_is_read_as_utf8_with_or_without_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "pharos.yaml"
    path.write_bytes("\ufeffkeys: [{name: Jürgen, sha256: ".encode() + A.encode() + b"}]\r\n")
    assert load(path, {}).keys[0].name == "Jürgen"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no such file"),
        (b"a: \xff", "line 1: is not UTF-8"),
        (b"# x\n" * 1_100_000, "larger than 4 MiB"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "pharos.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as caught:
        load(path, {})
    assert str(caught.value).startswith(str(path))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path, {})


def test_a_device_that_cannot_be_opened_says_why() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load("/proc/self/mem", {})
