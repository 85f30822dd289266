"""What is made of charts/pharos/files/: manifests for clusters without the chart, and the alerts of docs/metrics.md.

Forbidden here: changing a rule or a panel on the way.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = ROOT / "charts" / "pharos" / "files"
ALERTS: Final = FILES / "alerts.yaml"
DASHBOARD: Final = FILES / "dashboard.json"
MADE: Final = "# Made by `make docs` from charts/pharos/files/; do not edit."
_PLACEHOLDER: Final = re.compile(r"{{ *\$(?:labels\.)?(\w+)[^}]*}}")


def rules() -> list[dict[str, Any]]:
    """Every rule of the one group."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def queries() -> Iterator[tuple[str, str]]:
    """Title of the panel and query, for every query of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def plain() -> str:
    """The rules as a file that Prometheus reads."""
    return f"{MADE}\n{ALERTS.read_text(encoding='utf-8')}"


def prometheus_rule() -> str:
    """The rules for the Prometheus operator."""
    head = (
        f"{MADE}\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
        "metadata:\n  name: pharos\n  labels:\n    app.kubernetes.io/name: pharos\nspec:\n"
    )
    return head + _indented(ALERTS.read_text(encoding="utf-8"), 2)


def dashboard() -> str:
    """The dashboard for Grafana's sidecar, which looks for this label."""
    head = (
        f"{MADE}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pharos-dashboard\n  labels:\n"
        '    app.kubernetes.io/name: pharos\n    grafana_dashboard: "1"\ndata:\n  pharos.json: |\n'
    )
    return head + _indented(DASHBOARD.read_text(encoding="utf-8"), 4)


def table() -> list[str]:
    """The alerts as rows of a page."""
    rows = ["| alert | severity | after | what it says | what to do |", "|---|---|---|---|---|"]
    for rule in rules():
        said, todo = (_read(rule["annotations"][name]) for name in ("summary", "description"))
        rows.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', '0s')} | {said} | {todo} |")
    return rows


def _read(text: str) -> str:
    """A text of a rule for people who read it without an alert at hand."""
    return _PLACEHOLDER.sub(r"*\1*", text).replace("|", "\\|").strip()


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" if line else "\n" for line in text.splitlines())


MANIFESTS: Final = {
    "manifests/alerts.yaml": plain,
    "manifests/prometheusrule.yaml": prometheus_rule,
    "manifests/dashboard.yaml": dashboard,
}
