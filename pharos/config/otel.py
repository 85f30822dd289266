"""Where spans of requests go, by the variables that OpenTelemetry has for that; without an endpoint, nowhere.

Forbidden here: reading the process's environment (it is an argument), sending.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_ALL: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PATH: Final = "/v1/traces"
_RATIOS: Final = ("traceidratio", "parentbased_traceidratio")
_NONE: Final = ("always_off", "parentbased_always_off")


class Collector(msgspec.Struct, frozen=True):
    """A collector of spans that speaks OTLP over HTTP in JSON, as they all do."""

    url: str
    """Whole, with its path."""
    headers: tuple[tuple[str, str], ...] = ()
    """May hold a secret."""
    service: str = "pharos"
    ratio: float = 1.0
    """Share of the requests without a trace of their client's that begin one."""

    def __repr__(self) -> str:
        """Without headers, and without a password that the address may have."""
        parts = urlsplit(self.url)
        return f"<Collector {parts.scheme}://{parts.hostname} {self.ratio:g} of requests>"


def collector(environ: Mapping[str, str]) -> Collector | None:
    """What the variables say; `None`: no spans are wanted. Raises `ValueError` with a sentence to act on."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    name, url = _TRACES, environ.get(_TRACES, "")
    if not url:
        name, base = _ALL, environ.get(_ALL, "")
        url = base.rstrip("/") + _PATH if base else ""
    if not url:
        return None
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"{name}: write http://collector:4318, with the port of OTLP over HTTP")
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return Collector(url, _headers(headers), environ.get("OTEL_SERVICE_NAME") or "pharos", _ratio(environ))


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """`name=value,other=value`, percent-encoded."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    found = tuple((name.strip(), unquote(value.strip())) for name, _, value in pairs)
    if not all(name.isascii() and name.replace("-", "").isalnum() and value.isprintable() for name, value in found):
        raise ValueError("OTEL_EXPORTER_OTLP_HEADERS: write name=value, with a comma between two of them")
    return found


def _ratio(environ: Mapping[str, str]) -> float:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    if sampler in _NONE:
        return 0.0
    if sampler not in _RATIOS:
        return 1.0
    text = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG: {text[:20]!r} is no number from 0 to 1")
    return ratio
