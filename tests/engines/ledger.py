"""What was verified on real engines: engine -> version -> signal -> probe, in `testdata/verified.yaml`.

A signal in it was read, by that probe, and equalled the truth. On the same version it may not be unknown again. A run
with RECORD=1 adds what it verified; a run without only looks.
"""

from pathlib import Path

import yaml

from tests.engines.stand import Stand

Entries = dict[str, dict[str, dict[str, str]]]
HEAD = """\
# What `make live` verified on real engines: engine -> version -> signal -> the probe that read it rightly. Signals that
# begin with reply_ are read from replies. A signal that stands here may not be unknown on that version again.
# Written by `make live RECORD=1`; a line is taken out by hand only.
"""


class Ledger:
    """The entries, those of this run among them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        told = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
        self._before: Entries = told if isinstance(told, dict) else {}
        self.seen: Entries = {}
        """What this run verified."""

    def judge(self, stand: Stand, signal: str, probe: str | None) -> None:
        """Note that a signal was read rightly by a probe, or (`None`) that it is unknown, which it may not be again."""
        if probe is not None:
            self.seen.setdefault(stand.folder, {}).setdefault(stand.version, {})[signal] = probe
            return
        once = self._before.get(stand.folder, {}).get(stand.version, {}).get(signal)
        assert once is None, (
            f"{stand.name} {stand.version}: {signal} is unknown, and was read by {once} when this version was verified"
        )

    def new(self) -> list[str]:
        """What this run verified and the file does not have, for people."""
        return [
            f"{engine} {version}: {signal} by {probe}"
            for engine, versions in self.seen.items()
            for version, signals in versions.items()
            for signal, probe in signals.items()
            if self._before.get(engine, {}).get(version, {}).get(signal) != probe
        ]

    def save(self) -> None:
        """Write the file with what this run verified."""
        for engine, versions in self.seen.items():
            for version, signals in versions.items():
                self._before.setdefault(engine, {}).setdefault(version, {}).update(signals)
        text = yaml.safe_dump(self._before, sort_keys=True, allow_unicode=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(HEAD + text, encoding="utf-8")
