import pytest

from pharos.config import env
from pharos.config.load import parse
from pharos.config.problems import ConfigError

A = "a" * 64


def test_a_variable_wins_over_the_file_and_leaves_its_neighbours() -> None:
    config = parse(
        "drain: {grace: 1s, timeout: 2s}\nlisten: :1", {"PHAROS_DRAIN__TIMEOUT": "30s", "PHAROS_LISTEN": "[::]:2"}
    )
    assert (config.drain.grace_s, config.drain.timeout_s, config.listen) == (1.0, 30.0, "[::]:2")


def test_variables_need_no_file() -> None:
    config = parse(
        "", {"PHAROS_QUEUE__SIZE": "5", "PHAROS_RESPONSE_HEADERS__TARGET": "true", "PHAROS_RETRY__BUDGET": "0.5"}
    )
    assert (config.queue.size, config.response_headers.target, config.retry.budget) == (5, True, 0.5)


def test_a_list_is_set_whole_as_yaml() -> None:
    config = parse(
        "backends: [{url: http://old}]",
        {"PHAROS_BACKENDS": "[{url: http://a}, {url: http://b}]", "PHAROS_KEYS": f"- {{name: k, sha256: {A}}}"},
    )
    assert [backend.url for backend in config.backends] == ["http://a", "http://b"]
    assert config.keys[0].name == "k"


def test_a_group_set_whole_comes_before_its_fields() -> None:
    config = parse("", {"PHAROS_LOG__LEVEL": "debug", "PHAROS_LOG": "{level: error, format: json}"})
    assert (config.log.level, config.log.format) == ("debug", "json")


def test_an_empty_variable_is_not_set() -> None:
    assert parse("listen: :1", {"PHAROS_LISTEN": ""}).listen == ":1"


def test_a_shared_anchor_is_not_changed_for_others_by_a_variable() -> None:
    text = f"x-k: &k {{name: a, sha256: {A}}}\nlog: &l {{level: error}}\nkeys: [*k]"
    assert parse(text, {"PHAROS_LOG__FORMAT": "json"}).log.level == "error"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PHAROS_DRAIN__TIMOUT", "5s", "PHAROS_DRAIN__TIMOUT: no such setting; did you mean PHAROS_DRAIN__TIMEOUT?"),
        ("PHAROS_DRAIN_TIMEOUT", "5s", "did you mean PHAROS_DRAIN__TIMEOUT?"),
        ("PHAROS_DRAIN__TIMEOUT_FILE", "/a", "only keys and secrets are read from files: set PHAROS_DRAIN__TIMEOUT"),
        ("PHAROS_POLICY_FILE", "/a", "only keys and secrets are read from files: set PHAROS_POLICY itself"),
        ("PHAROS_ZZZ", "5s", "PHAROS_ZZZ: no such field"),
        ("PHAROS_BACKENDS__0__URL", "http://a", "set whole, as YAML: PHAROS_BACKENDS="),
        ("PHAROS_LISTEN__HOST", "a", "set whole"),
        ("PHAROS_QUEUE__SIZE", "many", "PHAROS_QUEUE__SIZE, queue.size: expected a whole number"),
        ("PHAROS_QUEUE__SIZE", "# nothing", "PHAROS_QUEUE__SIZE: is empty"),
        ("PHAROS_BACKENDS", "[{", "PHAROS_BACKENDS: it is not YAML"),
        ("PHAROS_BACKENDS", "[{url: a}]", "PHAROS_BACKENDS, backends[0].url: 'a' has no scheme"),
        ("PHAROS_DRAIN__TIMEOUT", "5", "write 5s"),
    ],
)
def test_a_wrong_variable_is_told_by_its_name(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", {name: value})
    assert told in str(caught.value)


def test_a_wrong_file_is_not_hidden_by_a_variable() -> None:
    with pytest.raises(ConfigError, match="drain: expected named fields"):
        parse("drain: 5", {"PHAROS_DRAIN__TIMEOUT": "5s"})


def test_links_that_kubernetes_sets_for_a_service_are_ignored_with_one_line() -> None:
    links = {
        "PHAROS_PORT": "tcp://10.0.0.1:80",
        "PHAROS_SERVICE_HOST": "10.0.0.1",
        "PHAROS_SERVICE_PORT": "80",
        "PHAROS_SERVICE_PORT_HTTP": "80",
        "PHAROS_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PHAROS_PORT_80_TCP_ADDR": "10.0.0.1",
        "PHAROS_PEERS_PORT": "tcp://10.0.0.2:8081",
        "PHAROS_PEERS_SERVICE_HOST": "10.0.0.2",
    }
    assert parse("", links) == parse("", {})
    notice = env.ignored(links)
    assert notice is not None
    assert "\n" not in notice
    assert env.ignored({"PHAROS_LISTEN": ":1", "PATH": "/bin"}) is None
