"""`pharos.yaml`, environment and URLs to one checked `Config`, or to everything that is wrong with it.

Forbidden here: defaults and meanings, which are in `schema`; any network access.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import inspect

from pharos.config import checks, env, keysfile, probes, tree
from pharos.config.problems import ConfigError, Problem
from pharos.config.reader import Reader, Unusable
from pharos.config.schema import Config
from pharos.config.texts import read_text
from pharos.core.fleet.backend import BackendSpec

EMPTY_WILL_DO: Final = " (An empty file would do: every field has a default)"


class Loaded(msgspec.Struct, frozen=True):
    """A checked configuration, and where each of its fields was written."""

    config: Config
    places: Mapping[str, str]
    """Field, as in `backends[0].url`, to `line 4` or the name of a variable; what is not in it has its default."""


def load(path: str | Path, environ: Mapping[str, str]) -> Config:
    """The configuration in a file, with the environment's `PHAROS_…` over it. Raises `ConfigError`."""
    return read(path, environ).config


def read(path: str | Path, environ: Mapping[str, str], *, may_be_pipe: bool = True) -> Loaded:
    """As `load`, with where each field comes from. `may_be_pipe`: as of `read_text`."""
    text = read_text(Path(path), EMPTY_WILL_DO, may_be_pipe=may_be_pipe)
    return parse_placed(text, environ, source=str(path))


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
    return parse_placed(text, environ, source).config


def parse_placed(text: str, environ: Mapping[str, str], source: str) -> Loaded:
    """As `parse`, with where each field comes from."""
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
        listed = len(config.keys)
        config, more = keysfile.join(config, _place(reader, keysfile.FIELD))
        reader.places.update(more.places)
        problems += more.problems
        wrong = checks.check(config, listed)
        problems += [msgspec.structs.replace(found, where=_place(reader, found.path)) for found in wrong]
    if config is None or problems:
        raise ConfigError(problems, source, keys_file=config.keys_file if config is not None else None)
    return Loaded(config, reader.places)


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
