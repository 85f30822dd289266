"""The default of every field, written out once more: a change of one must be meant."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import NODEFAULT
from msgspec.inspect import StructType, Type, type_info

from pharos.config import schema
from pharos.config.env import alternatives
from pharos.config.schema import Config

MIB = 1024**2
DEFAULTS: dict[str, dict[str, object]] = {
    "Config": {
        "listen": ":8090",
        "admin_listen": "127.0.0.1:8091",
        "metrics_listen": None,
        "policy": "cost",
        "backends": (),
        "aliases": {},
        "rewrite_reply_model": False,
        "credentials": {},
        "keys": (),
        "keys_file": None,
        "peers": None,
        "state_file": None,
        "decision_log": None,
    },
    "Log": {"level": "info", "format": "text"},
    "Limits": {"body": 32 * MIB, "header": 64 * 1024, "buffered": 256 * MIB, "connections": 10_000},
    "Deadlines": {"connect": 5.0, "first_byte_warm": None, "first_byte_cold": None, "idle": None},
    "Retry": {"attempts": 1, "budget": 0.2},
    "Queue": {"size": 1000, "max_wait": None, "absent_wait": 30.0},
    "Backend": {
        "name": None,
        "kind": "auto",
        "memory_gb": None,
        "capacity": None,
        "aliases": {},
        "logs": None,
        "probes": (),
        "credential": None,
        "ca_file": None,
        "headers": {},
    },
    "PromProbe": {"path": "/metrics", "per_model": None},
    "LogProbe": {"value": None},
    "OwnProbe": {"prom": None, "log": None},
    "Credential": {"api_key_file": None, "api_key_env": None, "header": "Authorization"},
    "Key": {
        "models": (),
        "weight": 1,
        "admin": False,
        "rpm": None,
        "tokens_per_day": None,
        "priority": 0,
        "queue_events": False,
        "cache_salt": None,
    },
    "Docker": {"enabled": "auto", "socket": "/var/run/docker.sock"},
    "Kubernetes": {
        "enabled": False,
        "namespaces": (),
        "cluster_wide": False,
        "pod_logs": False,
        "allow_url": False,
        "kubeconfig": None,
        "context": None,
    },
    "Discovery": {},
    "Usage": {"timezone": None, "retention_days": 400},
    "Drain": {"grace": 5.0, "timeout": 600.0},
    "Tls": {},
    "Peers": {"listen": ":8081", "members": (), "dns": None, "tls": None},
    "DecisionLog": {"max_size": 100 * MIB, "keep": 3},
    "Cors": {"origins": ()},
    "ResponseHeaders": {"target": False, "reason": False},
    "Metrics": {"max_models": 200, "max_keys": 200},
}
"""Group -> field as it is in the file -> default. `None`: none, or off. Fields without a default are not in it."""


def groups(kind: Type) -> Iterator[StructType]:
    for inner in alternatives(kind):
        if isinstance(inner, StructType):
            yield inner
            for field in inner.fields:
                yield from groups(field.type)
        for name in ("item_type", "value_type"):
            if hasattr(inner, name):
                yield from groups(getattr(inner, name))


def stated(group: StructType) -> dict[str, object]:
    """The defaults of a group's own fields; those that are groups themselves state theirs."""
    found = {}
    for field in group.fields:
        default = field.default
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        if default is not NODEFAULT and not isinstance(default, schema.Group):
            found[field.encode_name] = default
    return found


@pytest.mark.parametrize("name", DEFAULTS)
def test_each_field_has_the_default_of_the_design(name: str) -> None:
    (kind,) = {group.cls: group for group in groups(type_info(Config)) if group.cls.__name__ == name}.values()
    assert stated(kind) == DEFAULTS[name]


def test_no_group_is_left_out() -> None:
    assert {group.cls.__name__ for group in groups(type_info(Config))} == set(DEFAULTS)


def test_groups_inside_the_whole_are_all_defaults_themselves() -> None:
    whole = Config()
    for name in whole.__struct_fields__:
        part = getattr(whole, name)
        if isinstance(part, msgspec.Struct):
            assert part == type(part)()
