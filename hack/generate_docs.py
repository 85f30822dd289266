"""Writes the documents that come from code and recordings: assumptions, metrics, configuration, engines, clients.

`--check` only compares.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chart
import monitoring
import support_matrix
from clients import ran

from pharos.config.effects import when
from pharos.config.explain import json_schema
from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.decisions import DECISIONS
from pharos.obs.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
MADE = "Made by `make docs`; do not edit."


def assumptions() -> str:
    """Every number that stands in for a measurement, with its source."""
    rows = [
        f"| `{name}` | {item.value:g} {item.unit} | {item.used_by} | {item.source} |"
        for name, item in ASSUMPTIONS.items()
    ]
    return "\n".join(
        [
            "# Assumptions",
            "",
            f"Numbers that stand in for a measurement until there is one. {MADE}",
            "",
            "| name | value | used by | source |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def metrics() -> str:
    """Every metric, and the decision table."""
    made = Metrics(version="", max_models=1, max_keys=1)
    families = [
        f"| `{item.name}` | {item.kind} | {', '.join(item.labels) or '–'} | {item.meaning} |" for item in made.families
    ]
    decisions = [
        f"| `{stage}` | `{outcome}` | {meaning} |"
        for stage, table in DECISIONS.items()
        for outcome, meaning in table.items()
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            f"What `/metrics` shows. {MADE} It needs no key; `metrics_listen` gives it an address of its own.",
            "",
            "Labels are bounded: keys and models beyond `metrics.max_keys` and `metrics.max_models`, and names that",
            "no engine has, are counted together as `_other`. A value that is not known is a series left out, never 0.",
            "Each instance counts its own requests, so sums over instances are totals.",
            "",
            "| name | type | labels | meaning |",
            "|---|---|---|---|",
            *families,
            "",
            "## Decisions",
            "",
            "`pharos_decisions_total{stage,outcome}` counts what was decided for requests, and while engines are read.",
            "",
            "| stage | outcome | meaning |",
            "|---|---|---|",
            *decisions,
            "",
            "## Alerts",
            "",
            "`manifests/alerts.yaml` is a rules file for Prometheus, `manifests/prometheusrule.yaml` the same for its",
            "operator, `manifests/dashboard.yaml` a dashboard for Grafana (`charts/pharos/files/dashboard.json` to",
            "import by hand).",
            "",
            *monitoring.table(),
            "",
        ]
    )


def fields(group: dict[str, Any], path: str, schema: dict[str, Any]) -> Iterator[str]:
    """One row for each field of a group of the schema, groups within it after their own row."""
    for name, field in group["properties"].items():
        inner = f"{path}.{name}" if path else name
        default = f"`{json.dumps(field['default'], ensure_ascii=False)}`" if "default" in field else "–"
        said = field["description"].replace("|", "\\|").replace("<", "&lt;")
        yield f"| `{inner}` | {default} | {effect(inner)} | {said} |"
        for reference, suffix in references(field):
            yield from fields(schema["definitions"][reference.rpartition("/")[2]], inner + suffix, schema)


def effect(path: str) -> str:
    """When a change of a field takes effect; nothing for a group whose fields differ."""
    try:
        return when(path)
    except KeyError:
        return "–"


def references(field: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The group that a field holds, if any, with what its path gets: nothing, `[]` for lists, `.NAME` for maps."""
    for part in (field, *field.get("allOf", ()), *field.get("anyOf", ())):
        if "$ref" in part:
            yield part["$ref"], ""
    if "$ref" in field.get("items", {}):
        yield field["items"]["$ref"], "[]"
    more = field.get("additionalProperties")
    if isinstance(more, dict) and "$ref" in more:
        yield more["$ref"], ".NAME"


def configuration() -> str:
    """Every field of pharos.yaml with its default."""
    schema = json_schema()
    return "\n".join(
        [
            "# pharos.yaml",
            "",
            f"Every field, with its default. {MADE} `pharos config schema` prints the same as JSON Schema for editors.",
            "",
            "The file is looked at every 2 seconds and read again once it has changed and rests, and at SIGHUP; a pipe",
            "is read once.",
            "A change is taken at once or at a restart, as the third column says. A file that is wrong or empty, or",
            "takes the last key away, changes nothing: the log says so, as do `/status` and",
            '`pharos_decisions_total{stage="reload"}`. Every field can be set by a variable too, with two underscores',
            "for a group (`PHAROS_DRAIN__TIMEOUT=30s`), lists and maps whole, as YAML. `pharos config show` prints",
            "what is in effect and where each value comes from.",
            "",
            "| field | default | a change is taken | meaning |",
            "|---|---|---|---|",
            *fields(schema, "", schema),
            "",
        ]
    )


DOCUMENTS = {
    "docs/config.md": configuration,
    "docs/assumptions.md": assumptions,
    "docs/metrics.md": metrics,
    "docs/support.md": support_matrix.page,
    "docs/clients.md": ran.page,
    **monitoring.MANIFESTS,
    **chart.DOCUMENTS,
}


def main() -> int:
    """Write the documents, or with `--check` name those that are not current."""
    stale = []
    for name, text in DOCUMENTS.items():
        path = ROOT / name
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text(), encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text():
            stale.append(name)
    if stale:
        print(f"not current: {', '.join(stale)}: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
