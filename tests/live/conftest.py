"""Fixtures: real engines, started once for all tests that use them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pharos.demo import model
from tests.live.real import RealEngine


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model.write_tiny(path)
    return path


@pytest.fixture(scope="session")
def _pair(tiny_gguf: Path) -> Iterator[tuple[RealEngine, RealEngine]]:
    engines = RealEngine(tiny_gguf), RealEngine(tiny_gguf)
    for engine in engines:
        engine.start()
    yield engines
    for engine in engines:
        engine.kill()


@pytest.fixture
def pair(_pair: tuple[RealEngine, RealEngine]) -> tuple[RealEngine, RealEngine]:
    """Two running engines; one that a test killed is started again."""
    return _pair[0].ensure(), _pair[1].ensure()
