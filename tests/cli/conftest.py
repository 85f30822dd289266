import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pharos.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs `pharos ARGUMENTS` in an empty folder, with `PHAROS_…` variables given by name only."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(*arguments: str, **environ: str) -> Result:
        result = CliRunner().invoke(main, list(arguments), env=dict(environ))
        assert "Traceback" not in result.output
        return result

    yield run
    for number, action in before.items():  # `serve` takes them over
        signal.signal(number, action)
