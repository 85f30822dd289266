"""The Prometheus text format 0.0.4: a strict reader.

# ops: parse · goal: as little Python per line as can be, since every scrape of most engines comes this way
# plan: one pattern checks the whole body; samples are taken apart only for the metrics that somebody asks for
# warning: a body that the pattern refuses is read line by line, to name the line

Forbidden here: leniency. One line that is no exposition line makes the whole body unreadable, since nothing tells which
series that line held.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from pharos.core.engine.probe import DropReason, Page, ProbeError
from pharos.core.engine.values import decoded, quoted

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_LABEL_VALUE = r'(?:[^"\\\n]++|\\[\\"n])*+'
_LABELS = rf'[ \t]*+(?:{_LABEL_NAME}[ \t]*+=[ \t]*+"{_LABEL_VALUE}"[ \t]*+(?:,[ \t]*+|(?=\}})))*+'
_NUMBER = r"(?:[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|NaN|[+-]?Inf)"
_AFTER_NAME = rf"(?:[ \t]*+\{{({_LABELS})\}})?[ \t]++({_NUMBER})(?:[ \t]++(-?[0-9]++))?+[ \t]*+"
_ANY_SAMPLE = f"{_NAME}{_AFTER_NAME}".replace(f"({_LABELS})", _LABELS).replace(f"({_NUMBER})", _NUMBER)
_TYPE = rf"#[ \t]+TYPE[ \t]+({_NAME})[ \t]+([a-z]++)[ \t]*+"
_COMMENT = r"#(?![ \t]+TYPE\b)[^\n]*+"
_BODY = re.compile(rf"(?:(?:{_ANY_SAMPLE}|{_COMMENT}|{_TYPE}|)\n)*+")
_LINE = re.compile(rf"{_ANY_SAMPLE}|{_COMMENT}|{_TYPE}|")
_TYPES = re.compile(rf"\n{_TYPE}")
_NAMES = re.compile(rf"\n({_NAME})")
_START = re.compile(_NAME)
_REST = re.compile(_AFTER_NAME)
_ONE_LABEL = re.compile(rf'({_LABEL_NAME})[ \t]*=[ \t]*"({_LABEL_VALUE})"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE = re.compile(r'\\[\\"n]')

MOST_LABELS = 64
"""Labels of one sample."""


class Series(msgspec.Struct, frozen=True, gc=False):
    """One sample line."""

    label_text: str
    """What stands between the braces; read by `labels_of` only for the metrics that a probe wants."""
    value: float
    has_timestamp: bool


class SeriesByName(Mapping[str, list[Series]]):
    """The samples of a body that was found right, by metric: taken apart when they are asked for."""

    def __init__(self, text: str) -> None:
        self._text = f"\n{text}"
        self._read: dict[str, list[Series]] = {}

    def __getitem__(self, metric: str) -> list[Series]:
        found = self._read.get(metric)
        if found is None:
            found = self._read[metric] = list(self._samples(metric))
        if not found:
            raise KeyError(metric)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(_NAMES.findall(self._text)))

    def __len__(self) -> int:
        return len(set(_NAMES.findall(self._text)))

    def _samples(self, metric: str) -> Iterator[Series]:
        start = f"\n{metric}"
        at = self._text.find(start)
        while at >= 0:
            one = _REST.match(self._text, at + len(start))
            if one is not None:  # else the metric's name is longer
                labels = one[1] if one[1] is not None else ""
                yield Series(label_text=labels, value=float(one[2]), has_timestamp=one[3] is not None)
            at = self._text.find(start, at + 1)


class Exposition(msgspec.Struct, frozen=True):
    """A whole body."""

    series: Mapping[str, list[Series]]
    types: Mapping[str, str]
    last: str
    """Name of the last sample: its family may go on behind a cut that left whole lines. Empty without any."""


def parse(text: str) -> Exposition:
    """Read a body. Raises `ProbeError` (cannot be read) unless every line is in the format, whole."""
    if text and not text.endswith("\n"):
        raise ProbeError(DropReason.PARSE_ERROR, "the last line is cut")
    if not _BODY.fullmatch(text):
        raise ProbeError(DropReason.PARSE_ERROR, _what_is_wrong(text))
    types: dict[str, str] = {}
    for metric, declared in _TYPES.findall(f"\n{text}"):
        if types.setdefault(metric, declared) != declared:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(metric)} is declared with two types")
    return Exposition(series=SeriesByName(text), types=types, last=_last_of(text))


def _last_of(text: str) -> str:
    """Name of the last sample; empty without any."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end - 1) + 1
        name = _START.match(text, start, end)
        if name is not None:
            return name[0]
        end = start
    return ""


def labels_of(text: str) -> dict[str, str]:
    """Read the labels of a sample; an empty label is an absent one.

    Raises `ProbeError` when one comes twice, or there are more than any engine has.
    """
    labels: dict[str, str] = {}
    for one in _ONE_LABEL.finditer(text):
        if len(labels) == MOST_LABELS:
            raise ProbeError(DropReason.PARSE_ERROR, f"more than {MOST_LABELS} labels")
        if one[1] in labels:
            raise ProbeError(DropReason.PARSE_ERROR, f"label {quoted(one[1])} comes twice")
        labels[one[1]] = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], one[2])
    return {label: value for label, value in labels.items() if value}


def exposition_of(page: Page) -> Exposition:
    """Parse a page's body once, however many probes read it. Raises `ProbeError`."""
    found = page.parsed.get("prometheus")
    if found is None:
        try:
            found = parse(decoded(page.body))
        except ProbeError as error:
            found = error
        page.parsed["prometheus"] = found
    if isinstance(found, ProbeError):
        raise ProbeError(found.reason, found.detail)
    read: Exposition = found
    return read


def _what_is_wrong(text: str) -> str:
    """Name the first line that is not in the format."""
    lines = enumerate(text.split("\n"), 1)
    index, line = next((index, line) for index, line in lines if not _LINE.fullmatch(line))
    return f"line {index} declares no type" if line.startswith("#") else f"line {index} is no sample"
