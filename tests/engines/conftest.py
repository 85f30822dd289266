"""One engine after the other, what was verified on it, a line for each and a summary. Runs only under `make live`."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines import registry
from tests.engines.ledger import Ledger
from tests.engines.recording import Recordings
from tests.engines.stand import ROOT, Stand

IS_LIVE = bool(os.environ.get("PHAROS_LIVE"))
collect_ignore_glob = [] if IS_LIVE else ["*"]

TESTDATA = ROOT / "testdata"


LEDGER_ONLY = "verified"


def record_root() -> Path | None:
    """Where this run records to: RECORD=1 is testdata/, another word a folder; `None`: nowhere."""
    word = os.environ.get("PHAROS_LIVE_RECORD", "")
    if word in ("", "0", LEDGER_ONLY):
        return None
    return TESTDATA if word == "1" else Path(word).absolute()


def is_noted() -> bool:
    """Whether what this run verifies is written down."""
    return os.environ.get("PHAROS_LIVE_RECORD", "") not in ("", "0")


class Row:
    """What became of one engine."""

    def __init__(self) -> None:
        self.version = ""
        self.checks = 0
        self.failed = 0
        self.known = 0
        """Checks that are expected to fail."""
        self.began = time.monotonic()
        self.seconds = 0.0
        self.skipped: str | None = None


ROWS = pytest.StashKey[dict[str, Row]]()
LEDGER = pytest.StashKey[Ledger]()
NAME = "stand"


def pytest_configure(config: pytest.Config) -> None:
    try:
        registry.chosen()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    root = record_root()
    config.stash[ROWS] = {}
    config.stash[LEDGER] = Ledger((root if root is not None else TESTDATA) / "verified.yaml")


def _stand_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    told = callspec.params.get(NAME) if callspec is not None else None
    return told if isinstance(told, str) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the checks of the chosen engines, engine by engine."""
    if not IS_LIVE:
        return
    chosen = set(registry.names())
    mine = [item for item in items if _stand_of(item) in chosen]
    mine.sort(key=lambda item: registry.ORDER[str(_stand_of(item))])
    for item in mine:
        item.user_properties.append((NAME, _stand_of(item)))
    items[:] = [item for item in items if NAME not in getattr(item, "fixturenames", ())] + mine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Say how an engine did as soon as its last check is over."""
    rows = item.config.stash[ROWS]
    name = _stand_of(item)
    if name is not None and name not in rows:
        rows[name] = Row()
    result = yield
    if name is not None and (nextitem is None or _stand_of(nextitem) != name):
        row = rows[name]
        row.seconds = time.monotonic() - row.began
        reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(f"  {line(name, row)}")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    row = item.config.stash[ROWS].get(_stand_of(item) or "")
    if row is not None:
        is_known = hasattr(report, "wasxfail")
        if report.when == "call" and (is_known or report.outcome != "skipped"):
            row.checks += 1
        row.known += is_known
        row.failed += report.failed
        if report.skipped and not is_known and not row.checks:
            row.skipped = report.longrepr[2].removeprefix("Skipped: ")
    return report


def line(name: str, row: Row) -> str:
    """One engine for people."""
    if row.skipped is not None and not row.checks:
        return f"{name:<22} skipped: {row.skipped}"
    state = "ok" if not row.failed else f"{row.failed} FAILED"
    state += f", {row.known} known to fail" if row.known else ""
    return f"{name:<22} {row.version:<18} {row.checks:>3} checks {row.seconds:>5.0f} s  {state}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows, ledger = config.stash[ROWS], config.stash[LEDGER]
    if not rows:
        return
    terminalreporter.section("engines")
    for name, row in rows.items():
        terminalreporter.write_line(line(name, row))
    new = ledger.new()
    if is_noted():
        ledger.save()
        terminalreporter.write_line(f"{len(new)} new lines in {ledger.path.name}")
        return
    for one in new:
        terminalreporter.write_line(f"verified for the first time (RECORD=1 notes it): {one}")


@pytest.fixture(scope="session")
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A real engine. It runs when a check begins, and ends with the last of its checks."""
    made = registry.BY_NAME[request.param](tmp_path_factory.mktemp(request.param))
    missing = made.missing()
    if missing is not None:
        pytest.skip(missing)
    try:
        made.ensure()
        request.config.stash[ROWS][made.name].version = made.version
        yield made
    finally:
        made.kill()


@pytest.fixture(autouse=True)
def _running(request: pytest.FixtureRequest) -> None:
    """Start the engine again when the last check killed it."""
    if NAME in request.fixturenames:
        request.getfixturevalue(NAME).ensure()


@pytest.fixture(scope="session")
def ledger(pytestconfig: pytest.Config) -> Ledger:
    return pytestconfig.stash[LEDGER]


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    return Recordings(record_root())
