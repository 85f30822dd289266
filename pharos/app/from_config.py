"""What of the configuration each plane is given, in that plane's own shape. Forbidden: checking it (config does)."""

from typing import Final

from pharos.config.schema import Config
from pharos.core.usage import quota_of
from pharos.proxy.auth import Key, Keyring
from pharos.proxy.settings import ProxySettings

NO_LIMIT_S: Final = 3600.0
"""Stands for "no limit" where a number of seconds is asked for: no system tries to connect for longer."""


def settings(config: Config) -> ProxySettings:
    """What of the configuration concerns the data plane."""
    return ProxySettings(
        body_bytes=config.limits.body_bytes,
        header_bytes=config.limits.header_bytes,
        buffered_bytes=config.limits.buffered_bytes,
        connections=config.limits.connections,
        connect_s=NO_LIMIT_S if config.deadlines.connect_s is None else config.deadlines.connect_s,
        first_byte_warm_s=config.deadlines.first_byte_warm_s,
        first_byte_cold_s=config.deadlines.first_byte_cold_s,
        reply_idle_s=config.deadlines.idle_s,
        retry_attempts=config.retry.attempts,
        retry_budget=config.retry.budget,
        rewrite_reply_model=config.rewrite_reply_model,
        show_target=config.response_headers.target,
        show_reason=config.response_headers.reason,
        cors_origins=config.cors.origins,
    )


def keyring(config: Config) -> Keyring:
    """The configured keys, by hash."""
    return Keyring(entries(config))


def entries(config: Config) -> list[tuple[str, Key]]:
    """The SHA-256 of each configured key, and whose it is."""
    return [
        (
            k.sha256,
            Key(
                k.name,
                weight=k.weight,
                admin=k.admin,
                models=k.models,
                queue_events=k.queue_events,
                quota=quota_of(k.rpm, k.tokens_per_day),
                priority=k.priority,
                salt=b"" if k.cache_salt is None else k.cache_salt.encode("utf-8", "surrogatepass"),
            ),
        )
        for k in config.keys
    ]
