"""Peers and the state file in the configuration: each mistake is named at its place, with what to write."""

import pytest

from pharos.config import load
from pharos.config.problems import ConfigError

GOOD = "secret_file: /run/secret"


def faults(text: str) -> list[tuple[str, str]]:
    try:
        load.parse(text, {})
    except ConfigError as fault:
        return [(problem.path, problem.message) for problem in fault.problems]
    return []


def test_a_list_of_members_and_a_name_are_both_ways_to_find_peers() -> None:
    text = f"peers: {{{GOOD}, members: ['pharos-a:8081', '192.0.2.1:81', '[2001:db8::8]:8081']}}\nstate_file: /var/s"
    config = load.parse(text, {})
    assert config.peers is not None
    assert config.peers.members[2] == "[2001:db8::8]:8081"
    assert config.state_file == "/var/s"
    assert faults(f"peers: {{{GOOD}, dns: pharos-peers.default.svc.cluster.local}}") == []
    assert faults(f"peers: {{{GOOD}, dns: 'pharos-peers:8081', listen: ':9'}}") == []
    assert faults(f"peers: {{{GOOD}, dns: _peer._tcp.pharos}}") == []


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ("members: []", "peers", "names no other instance"),
        ("members: ['a:1'], dns: b", "peers", "keep one"),
        ("members: ['a:1', b]", "peers.members[1]", "no port or no host"),
        ("members: ['http://a:1']", "peers.members[0]", "is a URL"),
        ("members: ['2001:db8::8:8081']", "peers.members[0]", "without brackets"),
        ("members: ['[2001::zz]:8081']", "peers.members[0]", "is no address"),
        ("members: ['a:99999']", "peers.members[0]", "no port at its end"),
        ("members: ['a:x']", "peers.members[0]", "no port at its end"),
        ("members: ['a b:1']", "peers.members[0]", "no name of a host"),
        ("members: [':8081']", "peers.members[0]", "no port or no host"),
        ("dns: 'a b'", "peers.dns", "no name of a host"),
        ("dns: 'a:0'", "peers.dns", "no port at its end"),
        ("dns: a, listen: ':8090'", "peers.listen", "another listener's"),
    ],
)
def test_what_cannot_work_is_named(fields: str, path: str, words: str) -> None:
    [(where, message)] = faults(f"peers: {{{GOOD}, {fields}}}")
    assert where == path
    assert words in message


def test_peers_without_a_secret_are_refused() -> None:
    assert any("secret_file" in path + message for path, message in faults("peers: {members: ['a:1']}"))
