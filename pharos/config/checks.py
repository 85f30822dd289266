"""What no type can say about a configuration: unique names, known engine kinds, one limit beside another.

Forbidden here: changing a value.
"""

from collections.abc import Iterator, Sequence

from pharos.config import access, aliases, cluster, keysfile, peering, probes, units, zone
from pharos.config.meant import meant
from pharos.config.problems import Problem
from pharos.config.schema import Backend, Config, Key
from pharos.core.engine import recipes


def check(config: Config, listed: int) -> list[Problem]:
    """Everything wrong with a configuration whose fields are each right.

    `listed`: how many of its keys stand under `keys`; the others are of its `keys_file`.
    """
    return [
        *_backends(config.backends),
        *access.check(config.backends, config.credentials),
        *probes.check(config.backends),
        *aliases.check(config),
        *_keys(config.keys, listed),
        *_limits(config),
        *_usage(config),
        *_listeners(config),
        *_admin(config),
        *peering.check(config),
        *cluster.check(config),
    ]


def backend_name(backend: Backend) -> str:
    """The name of a backend: its own, else host and port of its URL."""
    return backend.name if backend.name is not None else units.default_name(backend.url)


def _backends(backends: Sequence[Backend]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, backend in enumerate(backends):
        path = f"backends[{index}]"
        name = backend_name(backend)
        if name in first:
            field = "name" if backend.name is not None else "url"
            yield Problem(
                f"{path}.{field}", f"{name} is the name of backends[{first[name]}] too: give one of them another `name`"
            )
        first.setdefault(name, index)
        unknown = _unknown_kind(backend.kind)
        if unknown is not None:
            yield Problem(f"{path}.kind", unknown)


def _unknown_kind(kind: str) -> str | None:
    known = ["auto", *recipes.RECIPES]
    if kind in known:
        return None
    close = meant(kind.lower(), known)
    return (
        f"no such kind; did you mean {close}?" if close is not None else f"no such kind; there are {', '.join(known)}"
    )


def _keys(keys: Sequence[Key], listed: int) -> Iterator[Problem]:
    names: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for index, key in enumerate(keys):
        entry = f"keys[{index}]" if index < listed else f"{keysfile.FIELD}[{index - listed}]"
        if key.name in names:
            yield Problem(f"{entry}.name", f"{key.name} is the name of {names[key.name]} too: names are unique")
        if key.sha256 in hashes:
            yield Problem(
                f"{entry}.sha256",
                f"is the same key as {hashes[key.sha256]}: make one for each with `pharos keys new`",
            )
        names.setdefault(key.name, entry)
        hashes.setdefault(key.sha256, entry)


def _usage(config: Config) -> Iterator[Problem]:
    if config.usage.timezone is not None:
        try:
            zone.named(config.usage.timezone)
        except ValueError as fault:
            yield Problem("usage.timezone", str(fault))


def _admin(config: Config) -> Iterator[Problem]:
    host, port = units.split_address(config.admin_listen)
    if host is None or not units.is_loopback(host):
        yield Problem(
            "admin_listen",
            f"{config.admin_listen} can be reached from other machines, and who reaches it needs no key: write "
            f"127.0.0.1:{port}. /status on `listen` is for keys with `admin: true`",
        )


def _limits(config: Config) -> Iterator[Problem]:
    limits = config.limits
    if limits.buffered_bytes < limits.body_bytes:
        body, buffered = units.show_bytes(limits.body_bytes), units.show_bytes(limits.buffered_bytes)
        yield Problem(
            "limits.buffered", f"{buffered} is below limits.body ({body}): the largest request could never be taken"
        )


def _listeners(config: Config) -> Iterator[Problem]:
    """A port can be listened on once."""
    ours = config.metrics_listen
    if ours is None or ours.endswith(":0"):
        return
    others = {"listen": config.listen, "admin_listen": config.admin_listen}
    if config.peers is not None:
        others["peers.listen"] = config.peers.listen
    for field, other in others.items():
        (host, _, port), (other_host, _, other_port) = ours.rpartition(":"), other.rpartition(":")
        if port == other_port and (host == other_host or not host or not other_host):
            yield Problem("metrics_listen", f"{ours} is taken by {field} ({other}): give it a port of its own")
