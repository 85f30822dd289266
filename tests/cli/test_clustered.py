"""What people read of a cluster in the report of a running instance."""

from typing import Any

from pharos.cli.clustered import MOST, exit_code, lines

FINE: dict[str, Any] = {
    "account": "the Pod's service account",
    "namespaces": ["models"],
    "objects": {"pods": 3, "services": 1, "endpointslices": 1},
    "accepted": [{"backend": "models/a", "ready": True, "up": True}],
    "refused": [],
    "notes": [],
    "troubles": [],
    "rights": [{"allowed": True}],
    "remarks": [],
}


def test_a_cluster_without_a_fault_is_one_line() -> None:
    assert list(lines(FINE)) == [
        "Kubernetes, namespace models: 3 Pods, 1 Service and 1 EndpointSlice seen, 1 backend among them"
    ]
    assert exit_code(FINE) == 0


def test_what_is_refused_is_told_with_its_reason_and_a_mistake_on_every_pod_is_counted() -> None:
    refused = [{"object": f"Pod models/{number}", "why": "pharos.prot is no label\n"} for number in range(MOST + 3)]
    told = list(lines(FINE | {"refused": refused, "namespaces": None}))
    assert told[0].startswith("Kubernetes, all namespaces")
    assert told[1] == "   Pod models/0 is left out: pharos.prot is no label\\n"
    assert told[-1] == "   and 3 more"
    assert exit_code(FINE | {"refused": refused}) == 1


def test_a_missing_right_is_told_once_with_the_rule() -> None:
    trouble = {
        "resource": "pods in namespace models",
        "text": "no right to list pods in namespace models",
        "fix": "a Role",
    }
    remark = {"text": trouble["text"], "fix": "the same", "is_wrong": True}
    told = list(lines(FINE | {"troubles": [trouble], "remarks": [remark]}))
    assert told[1:] == [
        "   no right to list pods in namespace models; what was seen before stays", "      it needs a Role",
    ]  # fmt: skip
    assert exit_code(FINE | {"troubles": [trouble]}) == 1


def test_a_remark_has_its_fix_and_only_what_is_wrong_counts() -> None:
    remark = {"text": "models/a has no preStop", "fix": "give it one", "is_wrong": False}
    assert list(lines(FINE | {"remarks": [remark]}))[1:] == ["   models/a has no preStop", "      give it one"]
    assert exit_code(FINE | {"remarks": [remark]}) == 0
    assert exit_code(FINE | {"remarks": [remark | {"is_wrong": True}]}) == 1


def test_rights_that_nobody_told_are_said_not_to_be_known() -> None:
    assert list(lines(FINE | {"rights": [{"allowed": None}]}))[-1].endswith("the API server did not say.")
