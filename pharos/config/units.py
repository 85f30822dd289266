"""Durations, sizes, addresses and URLs as people write them, to numbers and plain text and back.

Forbidden here: files, the environment, defaults. Every parser raises `ValueError` with a sentence that says what to
write.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from pharos.config.meant import meant

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
"""What a duration other than 0 looks like, as in the published schema."""
_DURATION = re.compile(DURATION_PATTERN)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_LONGEST_S = 10 * 365 * 86400.0

_BYTES = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(B|[kKMGT]B|[KMGT]iB)?$"
"""What a size looks like, as in the published schema."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]*)")
_LARGEST_BYTES = 2**60

ADDRESS_PATTERN = r"^(\[[0-9a-fA-F:.]+\]|[^\[\]:\s]*):[0-9]{1,5}$"
"""What an address to listen on looks like, as in the published schema."""
_ADDRESS = re.compile(ADDRESS_PATTERN)
LAST_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}
ORIGIN_PATTERN = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+)$"
"""What the origin of a web page looks like, as in the published schema."""
_ORIGIN = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\[[^\[\]\s]*\]|[^\s/?#@:\[\]\\,;\"'<>]+)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<rest>[/?#].*)?"
)
_MISSPELT = re.compile(r"(https?)[:;]*[/\\]+(.*)", re.IGNORECASE)
"""The scheme of a URL, with something else than `://` after it."""
_PLACE_HOLDER = re.compile(r":([<{$[]*\w*port\w*[>}\]]*)(?:/|$)", re.IGNORECASE)
"""A port as an example in a text has it."""


def seconds(text: str) -> float:
    """Seconds in `5s`, `250ms`, `1h30m` or `0`."""
    text = text.strip()
    if text == "0":
        return 0.0
    if not _DURATION.match(text):
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            raise ValueError(f"{text} has no unit: write {text}s for seconds, or {text}m for minutes")
        raise ValueError(f"{text!r} is no duration: write it like 5s, 10m, 1h30m or 250ms (0 = off)")
    total = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    if total > _LONGEST_S:
        raise ValueError(f"{text} is longer than ten years: for no limit, write 0")
    return total


def show_seconds(value: float) -> str:
    """The shortest usual writing of a duration: 90.0 is `1m30s`."""
    milliseconds = round(value * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def size_bytes(text: str) -> int:
    """Bytes in `32MiB`, `1.5GB` or `65536`."""
    text = text.strip()
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size: write it like 32MiB, 64KiB or 65536 (bytes)")
    number, unit = match.groups()
    factor = _BYTES.get(unit)
    if factor is None:
        meant = next((known for known in _BYTES if known.lower() == unit.lower()), None)
        raise ValueError(f"{unit!r} is no unit of size: write {number}{meant or 'MiB'}")
    total = round(float(number) * factor) if "." in number else int(number[:20]) * factor
    if total > _LARGEST_BYTES:
        raise ValueError(f"{text} is larger than any memory: write a size below 1024PiB")
    return total


def show_bytes(value: int) -> str:
    """The shortest exact writing of a size: 33554432 is `32MiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if value and value % _BYTES[unit] == 0:
            return f"{value // _BYTES[unit]}{unit}"
    return str(value)


def split_address(text: str) -> tuple[str | None, int]:
    """Host and port of an address to listen on; no host (`:8090`) is every interface, port 0 any free one."""
    text = text.strip()
    if not _ADDRESS.match(text):
        if text.isdecimal():
            raise ValueError(
                f"{text} is no address: write :{text} for every interface, or 127.0.0.1:{text} for this machine only"
            )
        if "://" in text:
            raise ValueError(f"{text!r} is a URL, not an address: write it like :8090 or 127.0.0.1:8090")
        raise ValueError(f"{text!r} is no address: write it like :8090, 127.0.0.1:8090 or [::1]:8090")
    host, _, port = text.rpartition(":")
    if int(port) > LAST_PORT:
        raise ValueError(f"{port} is no port: it must be at most {LAST_PORT}")
    if host.startswith("["):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"[{host}] is no IPv6 address") from None
    return host or None, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and cannot be reached from another one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def base_url(text: str) -> str:
    """The URL of an engine, without a slash at its end; refused where a part of it could not be kept."""
    text = text.strip()
    url, _ = _split_url(text)
    if url.query or url.fragment or "?" in text or "#" in text:
        raise ValueError("a base URL has no ? or # part")
    path = url.path.rstrip("/")
    if path == "/v1" or path.endswith("/v1"):
        raise ValueError(f"give the base URL, without /v1: {text.rstrip('/').removesuffix('/v1')}")
    return f"{url.scheme}://{url.netloc}{path}"


def origin(text: str) -> str:
    """The origin of web pages as browsers write it: in lower case, without a port that its scheme implies; or `*`."""
    text = text.strip()
    if text == "*":
        return text
    if text.lower() == "null":
        raise ValueError("null is what every sandboxed page and local file calls itself: it tells nobody apart")
    if "*" in text:
        raise ValueError(f"{text!r} is a pattern, and there are none: name each origin, or write '*' for every page")
    found = _ORIGIN.fullmatch(text)
    if found is None:
        if "://" not in text:
            raise ValueError(f"{text!r} has no scheme: write https://{text or 'chat.example.org'}")
        raise ValueError(f"{text!r} is no origin: write it like https://chat.example.org or http://localhost:3000")
    scheme, host, port, rest = found["scheme"].lower(), found["host"], found["port"], found["rest"]
    if rest:
        raise ValueError(f"an origin has no path, and no slash at its end: write {text.removesuffix(rest)}")
    if port is not None and int(port) > LAST_PORT:
        raise ValueError(f"{port} is no port: it must be at most {LAST_PORT}")
    kept = "" if port is None or int(port) == _DEFAULT_PORTS.get(scheme) else f":{int(port)}"
    return f"{scheme}://{_origin_host(host)}{kept}"


def _origin_host(host: str) -> str:
    if host.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
        except ValueError:
            raise ValueError(f"{host} is no IPv6 address") from None
    if host.isascii():
        return host.lower()
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{host!r} is no name of a host") from None


def as_typed(text: str) -> str:
    """A URL as people type it on a command line, where `gpu-box:8000` means http."""
    return text if "://" in text or _MISSPELT.match(text) else f"http://{text}"


def default_name(url: str) -> str:
    """The name of a backend that was given none: host and port of its URL."""
    parts, port = _split_url(url)
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_url(text: str) -> tuple[SplitResult, int]:
    """A URL's parts and its port."""
    if "@" in text:  # first: no later message may repeat a password
        raise ValueError("a URL must not carry a user name or password: it would be shown in logs and pages")
    misspelt = _MISSPELT.match(text) if "://" not in text else None
    if misspelt is not None:
        raise ValueError(f"{text!r} is misspelt: write {misspelt[1].lower()}://{misspelt[2]}")
    if "://" not in text:
        raise ValueError(f"{text!r} has no scheme: write http://{text or 'host:port'}")
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        raise ValueError(f"{text!r} has a blank in it")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as fault:
        example = _PLACE_HOLDER.search(text)
        if example is not None:
            raise ValueError(f"{text!r}: {example[1]} is a place-holder: put the port's number there") from None
        raise ValueError(f"{text!r} is no URL: {fault}") from None
    if url.scheme not in _DEFAULT_PORTS:
        scheme = text.partition("://")[0]
        close = meant(scheme.lower(), _DEFAULT_PORTS, cutoff=0.7)
        other = f"; did you mean {close}://?" if close is not None else ""
        raise ValueError(f"{scheme}:// is not spoken: a URL starts with http:// or https://{other}")
    if not url.hostname:
        raise ValueError(f"{text!r} names no host: write it like http://gpu-box:8000")
    return url, port if port is not None else _DEFAULT_PORTS[url.scheme]
