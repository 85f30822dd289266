"""The alert rules and the dashboard, by Prometheus's own tool; `hack/setup-prometheus` installs it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pharos.core.decisions import DECISIONS
from pharos.obs.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "charts" / "pharos" / "files"
ALERTS = FILES / "alerts.yaml"
UNIT_TESTS = Path(__file__).with_name("alerts_test.yaml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: hack/setup-prometheus installs it")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Every query of the dashboard and every alert's expression, by where it is."""
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    found = {
        f"{panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel.get("targets", ())
    }
    return found | {rule["alert"]: rule["expr"] for rule in rules()}


def promtool(*arguments: str, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
@pytest.mark.parametrize("name", ["charts/pharos/files/alerts.yaml", "manifests/alerts.yaml"])
def test_the_rules_are_rules(name: str) -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", name)


@needs_promtool
def test_each_alert_fires_on_what_it_is_for_and_on_nothing_near_it(tmp_path: Path) -> None:
    bare = [{name: part for name, part in rule.items() if name != "annotations"} for rule in rules()]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "pharos", "rules": bare}]}))
    shutil.copy(UNIT_TESTS, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", UNIT_TESTS.name, cwd=tmp_path)


def test_each_alert_has_both_its_tests() -> None:
    named = [one["name"] for one in yaml.safe_load(UNIT_TESTS.read_text())["tests"]]
    alerts = [rule["alert"] for rule in rules()]
    assert sorted(named) == sorted(alerts + [f"{alert} stays quiet" for alert in alerts])


def test_the_alerts_that_were_promised_by_name_are_there_each_with_what_to_do() -> None:
    by_name = {rule["alert"]: rule for rule in rules()}
    promised = {"PeerSilent", "PeerConfigDiffers", "PeerProtocolDiffers", "BackendsEjected", "OverBudget"}
    assert {f"Pharos{name}" for name in promised} <= set(by_name)
    for rule in by_name.values():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert {"summary", "description"} == set(rule["annotations"])


def test_whatever_a_rule_or_a_panel_asks_for_exists() -> None:
    known = set()
    for family in Metrics(version="", max_models=1, max_keys=1).families:
        ends = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        known |= {family.name + end for end in ends}
    decisions = {outcome for outcomes in DECISIONS.values() for outcome in outcomes}
    for where, expression in expressions().items():
        words = _words(expression)
        asked = {word for word in words if word.startswith(("pharos_", "process_", "python_"))}
        assert asked, where
        assert asked <= known, where
        for stage, outcomes in _decided(expression):
            assert stage in DECISIONS, where
            assert outcomes <= decisions, where


def _words(expression: str) -> set[str]:
    return set("".join(one if one.isalnum() or one == "_" else " " for one in expression).split())


def _decided(expression: str) -> list[tuple[str, set[str]]]:
    """Stage and outcomes of every selector of decisions."""
    found = []
    for piece in expression.split("pharos_decisions_total{")[1:]:
        inside = piece.partition("}")[0]
        stage = inside.partition('stage="')[2].partition('"')[0]
        outcomes = inside.partition("outcome")[2].partition('"')[2].partition('"')[0]
        found.append((stage, set(outcomes.split("|")) if outcomes else set()))
    return found


def test_the_panels_of_the_dashboard_stand_side_by_side_and_know_where_to_ask() -> None:
    board = json.loads((FILES / "dashboard.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], "two panels in one place"
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"], "each panel says what it shows"
            assert all("$instance" in one["expr"] for one in panel["targets"])
    assert {"datasource", "instance", "model"} == {one["name"] for one in board["templating"]["list"]}
