"""The examples are configurations that Pharos takes."""

from pathlib import Path

import yaml

from pharos.config.load import parse
from pharos.control.discovery import labels

COMPOSE = Path(__file__).resolve().parents[2] / "examples" / "compose.yaml"


def test_the_two_instances_of_the_compose_file_have_a_configuration_that_is_taken_and_know_each_other() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    for name in ("pharos-1", "pharos-2"):
        config = parse("", services[name]["environment"])
        assert config.discovery.docker.enabled is True
        assert config.peers is not None
        assert [member.partition(":")[0] for member in config.peers.members] == ["pharos-1", "pharos-2"]
        assert services[name]["stop_grace_period"] == "11m"
        assert config.drain.grace_s + config.drain.timeout_s < 11 * 60


def test_the_labels_of_the_compose_file_are_labels() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    engines = {name: labels.marks(service["labels"]) for name, service in services.items() if "labels" in service}
    assert sorted(engines) == ["llama", "ollama"]
    assert all(marks is not None for marks in engines.values())
