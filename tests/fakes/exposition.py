"""Puts numbers into a recorded Prometheus text; all else stays byte for byte."""

import re
from collections.abc import Callable, Mapping


def put(text: bytes, series: str, value: float | str, labels: Mapping[str, str] | None = None) -> bytes:
    """Give every sample of a series that has these labels another value."""
    return _changed(text, series, labels or {}, lambda _: f"{value}".encode())


def add(text: bytes, series: str, number: float, labels: Mapping[str, str] | None = None) -> bytes:
    """Add to every sample of a series that has these labels; nothing changes when there is nothing to add."""
    if number == 0:
        return text
    return _changed(text, series, labels or {}, lambda told: f"{float(told) + number}".encode())


def _changed(text: bytes, series: str, labels: Mapping[str, str], change: Callable[[bytes], bytes]) -> bytes:
    wanted = [f'{name}="{value}"'.encode() for name, value in labels.items()]

    def line(match: re.Match[bytes]) -> bytes:
        if not all(one in match[1] for one in wanted):
            return match[0]
        return match[1] + b" " + change(match[2])

    return re.sub(rb"(?m)^(%s(?:\{[^\n]*\})?) ([^\n ]+)$" % re.escape(series.encode()), line, text)
