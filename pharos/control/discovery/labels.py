"""Labels of a container to one backend, or to everything that is wrong with them.

The rules for a value are those of the same field in `pharos.yaml`; only `port`, `scheme`, `path` and `drain` are none
of its fields. Forbidden here: asking anybody, and knowing where labels come from.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import yaml
from msgspec import inspect

from pharos.config import checks, env, load, tree
from pharos.config.forms import short
from pharos.config.meant import meant
from pharos.config.problems import ConfigError, Problem
from pharos.config.reader import Reader, Unusable
from pharos.config.schema import Backend, Config, Credential
from pharos.core.fleet.backend import BackendSpec

PREFIX: Final = "pharos."
FIELDS: Final = ("url", "kind", "capacity", "memory_gb", "aliases", "probes", "credential")
"""Labels that are fields of a listed backend, too; `aliases` and `probes` are YAML."""
PLACES: Final = ("port", "scheme", "path")
"""Where the engine listens, for those that have no `url`."""
KNOWN: Final = ("enable", "drain", *PLACES, *FIELDS)
LONGEST: Final = 4096
"""Characters of one value. Longer ones are no engine's, and YAML of 200 KB takes seconds to be found wrong."""
_PORTS: Final = range(1, 65536)
_DIGITS: Final = 5
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/%-]*")


class LabelsError(Exception):
    """Labels that make no backend; each text says what to do."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__("; ".join(texts))


class Marks(msgspec.Struct, frozen=True):
    """What the labels say, before it is known where the engine listens."""

    values: Mapping[str, str]
    """By name without the prefix; those of `FIELDS` are not judged yet."""
    port: int | None
    """`None`: the one that the container exposes."""
    scheme: str
    path: str
    drain: bool

    @property
    def url(self) -> str | None:
        """The whole address, when it is given."""
        return self.values.get("url")


def is_port(text: str) -> bool:
    """Whether it is the number of a port."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) in _PORTS


def marks(labels: Mapping[str, str], known: Collection[str] = KNOWN) -> Marks | None:
    """What the labels say; `None` when the container is not meant to be a backend. Raises `LabelsError`.

    `known`: the names that there are, without the prefix.
    """
    ours = {name.removeprefix(PREFIX): text for name, text in labels.items() if name.startswith(PREFIX)}
    enable = ours.get("enable")
    if enable is None or enable == "false":
        return None
    wrong = []
    if enable != "true":
        wrong.append(f'pharos.enable is {_shown(enable)}: write "true" or "false"')
    wrong += [_unknown(name, known) for name in ours if name not in known]
    wrong += [
        f"pharos.{short(name)} is {len(text)} characters long: at most {LONGEST} are read"
        for name, text in ours.items()
        if len(text) > LONGEST
    ]
    drain = ours.get("drain", "false")
    if drain not in {"true", "false"}:
        wrong.append(f'pharos.drain is {_shown(drain)}: write "true" or "false"')
    port, scheme, path = ours.get("port"), ours.get("scheme", "http"), ours.get("path", "")
    if port is not None and not is_port(port):
        wrong.append(f"pharos.port is {_shown(port)}: write a number from 1 to 65535")
    if scheme not in {"http", "https"}:
        wrong.append(f"pharos.scheme is {_shown(scheme)}: write http or https")
    if path and _PATH.fullmatch(path) is None:
        wrong.append(f"pharos.path is {_shown(path)}: write a path that begins with /, as in /engine")
    if "url" in ours and (both := [name for name in PLACES if name in ours]):
        wrong.append(f"pharos.url and pharos.{both[0]} are both given: keep one of them")
    if wrong:
        raise LabelsError(wrong)
    return Marks(ours, int(port) if port is not None else None, scheme, path, drain == "true")


def spec(name: str, url: str, given: Marks, credentials: Mapping[str, Credential], logs: str | None) -> BackendSpec:
    """The backend that the labels make. `credentials`: those of the configuration. Raises `LabelsError`."""
    kind = inspect.type_info(Backend)
    if not isinstance(kind, inspect.StructType):
        raise TypeError("a backend is a group of fields")
    types = {field.encode_name: field.type for field in kind.fields}
    root = env.empty()
    problems: list[Problem] = []
    for field, text in {**given.values, "url": url, "name": name}.items():
        if field not in (*FIELDS, "name"):
            continue
        try:
            value = env.node(text, types[field], PREFIX + field)
        except ConfigError as fault:
            problems += [Problem(field, one.message) for one in fault.problems]
            continue
        key = yaml.ScalarNode(tree.STR, field, start_mark=root.start_mark, end_mark=root.end_mark)
        root.value.append((key, value))
    reader = Reader()
    config: Config | None = None
    try:
        backend = reader.read(root, kind, "")
        config = Config(backends=(backend,), credentials=dict(credentials))
    except Unusable:
        pass
    problems += reader.problems
    if config is not None:
        problems += [one for one in checks.check(config, 0) if one.path.startswith("backends[0]")]
    if problems or config is None:
        raise LabelsError([_told(problem) for problem in problems])
    [made] = load.backend_specs(config)
    return msgspec.structs.replace(made, logs=logs, drain=given.drain)


def _told(problem: Problem) -> str:
    field = problem.path.removeprefix("backends[0].")
    if field.startswith("name"):
        return f"its name: {problem.message}"
    return f"{PREFIX}{field}: {problem.message}"


def _unknown(name: str, known: Collection[str]) -> str:
    close = meant(short(name), known)
    also = f"did you mean {PREFIX}{close}?" if close is not None else f"there are {', '.join(known)}"
    return f"{PREFIX}{short(name)} is no label of Pharos; {also}"


def _shown(text: str) -> str:
    return f"{short(text)!r}"
