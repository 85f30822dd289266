"""`pharos.yaml`, environment and URLs to one checked `Config`, or to everything that is wrong with it.

Forbidden here: defaults and meanings, which are in `schema`; any network access.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec import inspect

from pharos.config import checks, env, probes, tree
from pharos.config.problems import ConfigError, Problem
from pharos.config.reader import Reader, Unusable
from pharos.config.schema import Config
from pharos.core.fleet.backend import BackendSpec


def load(path: str | Path, environ: Mapping[str, str]) -> Config:
    """The configuration in a file, with the environment's `PHAROS_…` over it. Raises `ConfigError`."""
    return parse(_read(Path(path)), environ, source=str(path))


def from_urls(urls: Sequence[str], environ: Mapping[str, str]) -> Config:
    """The configuration that serves these engines, the rest from `PHAROS_…`. Raises `ConfigError`."""
    text = json.dumps({"backends": [{"url": url} for url in urls]})  # JSON is YAML
    others = {name: value for name, value in environ.items() if not (urls and name == f"{env.PREFIX}BACKENDS")}
    try:
        return parse(text, others, source="the command line")
    except ConfigError as fault:
        raise ConfigError([_as_argument(problem, urls) for problem in fault.problems], fault.source) from None


def parse(text: str, environ: Mapping[str, str], source: str = "pharos.yaml") -> Config:
    """The configuration in a text, with the environment's `PHAROS_…` over it. Raises `ConfigError`."""
    node = tree.compose(text, source)
    if node is None or tree.is_null(node):
        node = env.empty()
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            [Problem("", "expected named fields such as `listen:` and `backends:`", tree.place(node))], source
        )
    root, problems = env.overlay(node, environ)
    reader = Reader()
    config: Config | None = None
    try:
        config = reader.read(root, inspect.type_info(Config), "")
    except Unusable:
        problems += reader.problems
    else:
        problems += reader.problems
    if config is not None:
        problems += [msgspec.structs.replace(found, where=_place(reader, found.path)) for found in checks.check(config)]
    if config is None or problems:
        raise ConfigError(problems, source)
    return config


def backend_specs(config: Config) -> tuple[BackendSpec, ...]:
    """The listed backends as the fleet takes them."""
    return tuple(
        BackendSpec(
            name=checks.backend_name(backend),
            url=backend.url,
            kind=None if backend.kind == "auto" else backend.kind,
            capacity=backend.capacity,
            memory_bytes=backend.memory_bytes,
            credential=backend.credential,
            ca_file=backend.ca_file,
            headers=tuple(backend.headers.items()),
            logs=backend.logs,
            probes=probes.specs(backend.probes),
            aliases=tuple(backend.aliases.items()),
        )
        for backend in config.backends
    )


def _read(path: Path) -> str:
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(tree.MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            [
                Problem(
                    "", "there is no such file; is the path right? (An empty file would do: every field has a default)"
                )
            ],
            source,
        ) from None
    except IsADirectoryError:
        raise ConfigError([Problem("", "is a folder, not a file")], source) from None
    except OSError as fault:
        raise ConfigError([Problem("", f"cannot be read: {fault.strerror}")], source) from None
    if len(data) > tree.MAX_BYTES:
        raise ConfigError([Problem("", "is larger than 4 MiB, which no configuration is")], source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ConfigError([Problem("", "is not UTF-8 text", f"line {line}")], source) from None


def _place(reader: Reader, path: str) -> str:
    """Where a field was written, or the nearest group around it."""
    while path and path not in reader.places:
        path = path.rpartition(".")[0] if "." in path else ""
    return reader.places.get(path, "")


def _as_argument(problem: Problem, urls: Sequence[str]) -> Problem:
    """A problem with a URL of the command line, told without a field of a file."""
    for index, url in enumerate(urls):
        if problem.path.startswith(f"backends[{index}]."):
            shown = url if "@" not in url else f"URL {index + 1}"
            message = problem.message.replace("backends[", "URL [").replace(": give one of them another `name`", "")
            return Problem("", message if shown in message else f"{shown}: {message}")
    return problem
