"""What annotations, ports and conditions of Pods and Services make: one backend, none, or a reason and what to do."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.config.schema import Credential
from pharos.control.discovery.kubernetes.annotations import KNOWN
from pharos.control.discovery.kubernetes.finding import AT_ONCE, Finder, Found, Seen, Subject
from pharos.control.discovery.kubernetes.objects import EndpointSlice, Pod, Service
from tests.fakes.kubernetes import endpoint, endpoint_slice, pod, service

ON = {"pharos.enable": "true"}
Made = dict[str, Any]


def on(**more: str) -> dict[str, str]:
    return ON | {f"pharos.{name}": text for name, text in more.items()}


def seen(pods: tuple[Made, ...] = (), services: tuple[Made, ...] = (), slices: tuple[Made, ...] = ()) -> Seen:
    def read(kind: Any, many: tuple[Made, ...]) -> dict[str, Any]:
        found = [msgspec.convert(made, kind) for made in many]
        return {one.metadata.key: one for one in found}

    return Seen(read(Pod, pods), read(Service, services), read(EndpointSlice, slices))


def find(*pods: Made, services: tuple[Made, ...] = (), slices: tuple[Made, ...] = (), **options: Any) -> Found:
    return Finder(**options).find(seen(pods, services, slices), {"engine": Credential(api_key_env="KEY")})


def told(found: Found) -> dict[str, str]:
    return {str(subject): why for subject, why in found.refused.items()}


def urls(found: Found) -> dict[str, str]:
    return {spec.name: spec.url for spec in found.specs}


def test_a_pod_is_named_by_namespace_and_name_and_reached_at_its_address() -> None:
    assert urls(find(pod("a", "10.0.0.7", annotations=ON))) == {"models/a": "http://10.0.0.7:8080"}


def test_the_switch_may_be_a_label_so_that_it_can_be_selected_by() -> None:
    assert urls(find(pod("a", labels=ON))) == {"models/a": "http://10.0.0.1:8080"}


def test_an_annotation_wins_over_a_label() -> None:
    assert urls(find(pod("a", labels=ON, annotations={"pharos.enable": "false"}))) == {}


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert urls(find(pod("a", "fd00::7", annotations=ON))) == {"models/a": "http://[fd00::7]:8080"}


@pytest.mark.parametrize(
    ("phase", "ip"),
    [("Pending", ""), ("Pending", "10.0.0.1"), ("Running", ""), ("Succeeded", "10.0.0.1"), ("Failed", "10.0.0.1")],
)
def test_a_pod_that_has_ended_has_not_begun_or_has_no_address_is_no_backend(phase: str, ip: str) -> None:
    found = find(pod("a", ip, phase=phase, annotations=ON))
    assert found.specs == []
    assert found.refused == {}
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    found = find(pod("a", ip, phase=phase), services=(SERVICE,), slices=slices)
    assert found.specs == []
    assert found.refused == {}


def test_a_pod_on_a_node_that_is_lost_keeps_its_place_without_new_requests() -> None:
    [spec] = find(pod("a", phase="Unknown", ready=False, annotations=ON)).specs
    assert spec.drain


def test_pharos_s_own_pod_is_no_backend() -> None:
    assert find(pod("a", annotations=ON), own_uid="uid-models-a").specs == []


def test_fields_are_those_of_the_configuration() -> None:
    given = on(
        kind="vllm", capacity="3", memory_gb="24", credential="engine", aliases="{m: n}", path="/v", scheme="https"
    )
    [spec] = find(pod("a", annotations=given)).specs
    assert (spec.kind, spec.capacity, spec.memory_bytes, spec.credential) == ("vllm", 3, 24 * 1024**3, "engine")
    assert spec.url == "https://10.0.0.1:8080/v"
    assert spec.aliases == (("m", "n"),)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        (on(prot="1"), "did you mean pharos.port?"),
        (on(enabel="x"), "did you mean pharos.enable?"),
        (on(capacity="many"), "pharos.capacity"),
        (on(credential="nobody"), "pharos.credential"),
        (on(port="gpu"), "the name of a port (http)"),
        (on(port="99999"), "from 1 to 65535"),
        (on(prot="x" * 200_000), "did you mean pharos.port?"),
        (on(port="000000080" + "8" * 5000), "from 1 to 65535"),
        (on(aliases="[" * 200_000), "pharos.aliases is 200000 characters long: at most 4096 are read"),
        (on(log="true"), "did you mean pharos.logs?"),
        (on(port="8080 "), "from 1 to 65535"),
        (on(kind="vlm"), "did you mean"),
        (on(aliases="- 1"), "pharos.aliases"),
        (on(probes="true"), "pharos.probes"),
        ({"pharos.enable": "True"}, 'write "true" or "false"'),
        ({"pharos.enable": "1"}, 'write "true" or "false"'),
        (on(logs="yes"), 'pharos.logs is \'yes\': write "true" or "false"'),
        (on(url="http://10.0.0.1:1"), "pharos.url is not accepted in Kubernetes"),
        ({"pharos.enable": "yes"}, 'write "true" or "false"'),
        (on(drain="1"), "pharos.drain"),
    ],
)
def test_annotations_that_make_no_backend_say_what_to_do(annotations: dict[str, str], why: str) -> None:
    found = find(pod("a", annotations=annotations))
    assert found.specs == []
    assert why in told(found)["Pod models/a"]


def test_a_whole_address_counts_where_that_was_allowed() -> None:
    found = find(pod("a", annotations=on(url="http://10.9.9.9:1")), allow_url=True)
    assert urls(found) == {"models/a": "http://10.9.9.9:1"}


def test_annotations_of_the_chart_s_own_are_none_of_ours() -> None:
    assert len(find(pod("a", annotations=ON | {"pharos.dev/restart-checksum": "x"})).specs) == 1


@pytest.mark.parametrize(
    ("ports", "asked", "url"),
    [
        ((("http", 9000), ("metrics", 9001)), None, "http://10.0.0.1:9000"),
        ((("api", 8000), ("metrics", 9001)), None, "http://10.0.0.1:8000"),
        ((("api", 9000), ("metrics", 9001)), "api", "http://10.0.0.1:9000"),
        ((("api", 9000),), "1234", "http://10.0.0.1:1234"),
        ((), "1234", "http://10.0.0.1:1234"),
    ],
)
def test_the_port_is_the_one_asked_for_or_the_only_one_that_can_be_meant(
    ports: tuple[tuple[str, int], ...], asked: str | None, url: str
) -> None:
    given = ON if asked is None else on(port=asked)
    assert urls(find(pod("a", ports=ports, annotations=given))) == {"models/a": url}


def test_two_ports_of_which_either_could_be_meant_are_named() -> None:
    found = find(pod("a", ports=(("one", 9000), ("two", 9001)), annotations=ON))
    assert told(found) == {
        "Pod models/a": "it declares several ports (9000 (one), 9001 (two)): annotate pharos.port with its engine's"
    }


def test_a_pod_without_ports_must_say_one() -> None:
    assert "no container declares a port" in told(find(pod("a", ports=(), annotations=ON)))["Pod models/a"]


def test_ports_of_a_mesh_s_sidecar_are_none_of_the_engine_s() -> None:
    found = find(pod("a", ports=(("http-envoy", 15090),), container="istio-proxy", annotations=ON))
    assert "no container declares a port" in told(found)["Pod models/a"]


SERVICE = service("llm", annotations=ON)


def test_a_service_is_its_endpoints_and_never_its_own_address() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")),)
    found = find(pod("a"), pod("b", "10.0.0.2"), services=(SERVICE,), slices=slices)
    assert urls(found) == {"models/a": "http://10.0.0.1:8080", "models/b": "http://10.0.0.2:8080"}


def test_a_pod_wins_over_its_service_field_by_field() -> None:
    front = service("llm", annotations=on(kind="vllm", capacity="3"))
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    [spec] = find(pod("a", annotations={"pharos.capacity": "8"}), services=(front,), slices=slices).specs
    assert (spec.kind, spec.capacity) == ("vllm", 8)


def test_a_pod_may_stay_out_of_its_service() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    found = find(pod("a", annotations={"pharos.enable": "false"}), services=(SERVICE,), slices=slices)
    assert found.specs == []


def test_a_pod_that_is_annotated_and_in_an_annotated_service_counts_once() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    assert len(find(pod("a", annotations=ON), services=(SERVICE,), slices=slices).specs) == 1


def test_a_pod_of_two_services_counts_once_and_that_is_said() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")), endpoint_slice("other", endpoint("10.0.0.1", "a")))
    found = find(pod("a"), services=(SERVICE, service("other", annotations=ON)), slices=slices)
    assert len(found.specs) == 1
    assert {str(subject): text for subject, text in found.notes.items()} == {
        "Service models/other": (
            "Service models/llm has some of its Pods already; each counts once, as Service models/llm says"
        )
    }


def test_two_families_of_one_pod_are_one_backend() -> None:
    slices = (
        endpoint_slice("llm", endpoint("fd00::1", "a"), family="IPv6"),
        endpoint_slice("llm", endpoint("10.0.0.1", "a")),
    )
    assert urls(find(pod("a"), services=(SERVICE,), slices=slices)) == {"models/a": "http://10.0.0.1:8080"}


def test_a_cluster_of_ipv6_alone_is_reached() -> None:
    slices = (endpoint_slice("llm", endpoint("fd00::1", "a"), family="IPv6"),)
    assert urls(find(pod("a", "fd00::1"), services=(SERVICE,), slices=slices)) == {"models/a": "http://[fd00::1]:8080"}


def test_names_of_endpoints_are_not_followed() -> None:
    slices = (endpoint_slice("llm", endpoint("engine.example", None), family="FQDN"),)
    assert find(services=(SERVICE,), slices=slices).specs == []


def test_an_endpoint_without_a_pod_is_named_by_its_service_and_address() -> None:
    slices = (endpoint_slice("llm", endpoint("10.1.1.1")),)
    assert urls(find(services=(SERVICE,), slices=slices)) == {"models/llm/10.1.1.1": "http://10.1.1.1:8080"}


@pytest.mark.parametrize("conditions", [{"ready": False}, {"ready": True, "terminating": True}])
def test_an_endpoint_that_may_not_serve_gets_no_new_request(conditions: dict[str, bool]) -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a", **conditions)),)
    [spec] = find(pod("a"), services=(SERVICE,), slices=slices).specs
    assert spec.drain


def test_a_pod_that_is_not_ready_gets_none_though_its_service_publishes_it() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a", ready=True)),)
    [spec] = find(pod("a", ready=False), services=(SERVICE,), slices=slices).specs
    assert spec.drain


def test_drain_is_no_other_backend() -> None:
    [before] = find(pod("a", annotations=ON)).specs
    [after] = find(pod("a", annotations=on(drain="true"))).specs
    assert after.drain
    assert after.undrained() == before


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        ("grpc", "http://10.0.0.1:9001"),
        ("81", "http://10.0.0.1:9001"),
        ("9001", "http://10.0.0.1:9001"),
        ("7777", "http://10.0.0.1:7777"),
    ],
)
def test_a_port_of_a_service_is_named_by_name_by_its_number_or_by_its_target_s(asked: str, url: str) -> None:
    ports = (("web", 80), ("grpc", 81))
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), ports=(("web", 9000), ("grpc", 9001))),)
    front = service("llm", ports, annotations=on(port=asked))
    assert urls(find(pod("a"), services=(front,), slices=slices)) == {"models/a": url}


def test_several_ports_of_a_service_are_named() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), ports=(("web", 9000), ("grpc", 9001))),)
    found = find(pod("a"), services=(SERVICE,), slices=slices)
    assert "it has several ports (9000 (web), 9001 (grpc))" in told(found)["Service models/llm"]


def test_a_service_without_a_port_must_say_one() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), ports=()),)
    assert "its Service has no port" in told(find(pod("a"), services=(SERVICE,), slices=slices))["Service models/llm"]


def test_an_external_name_is_refused_with_the_way_to_do_it() -> None:
    found = find(services=(service("llm", annotations=ON, kind="ExternalName"),))
    assert "list the engine under `backends`" in told(found)["Service models/llm"]


def test_bad_annotations_are_blamed_on_the_object_that_has_them() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")),)
    bad = service("llm", annotations=on(capacity="x"))
    assert list(told(find(pod("a"), pod("b", "10.0.0.2"), services=(bad,), slices=slices))) == ["Service models/llm"]
    found = find(
        pod("a", annotations={"pharos.capacity": "x"}), pod("b", "10.0.0.2"), services=(SERVICE,), slices=slices
    )
    assert list(told(found)) == ["Pod models/a"]
    assert urls(found) == {"models/b": "http://10.0.0.2:8080"}


def test_logs_are_read_where_that_is_allowed_and_not_refused() -> None:
    [spec] = find(pod("a", annotations=ON), pod_logs=True).specs
    assert spec.logs == "kubernetes://models/a/engine"
    [spec] = find(pod("a", annotations=on(logs="false")), pod_logs=True).specs
    assert spec.logs is None
    [spec] = find(pod("a", annotations=ON)).specs
    assert spec.logs is None


def test_a_new_credential_of_the_configuration_lets_a_refused_backend_in() -> None:
    finder = Finder()
    everything = seen((pod("a", annotations=on(credential="later")),))
    assert finder.find(everything, {}).specs == []
    assert len(finder.find(everything, {"later": Credential(api_key_env="K")}).specs) == 1


def test_two_pods_in_their_host_s_network_at_one_address_count_once_and_that_is_said() -> None:
    found = find(pod("a", "192.168.0.1", annotations=ON), pod("b", "192.168.0.1", annotations=ON))
    assert urls(found) == {"models/a": "http://192.168.0.1:8080"}
    assert {str(subject): text for subject, text in found.notes.items()} == {
        "Pod models/b": "http://192.168.0.1:8080 is Pod models/a's too: it counts once, as Pod models/a"
    }


def test_of_two_pods_at_one_address_the_ready_one_counts() -> None:
    found = find(pod("a", annotations=ON, ending=True), pod("b", annotations=ON))
    [spec] = found.specs
    assert (spec.name, spec.drain) == ("models/b", False)
    assert [str(subject) for subject in found.notes] == ["Pod models/a"]


def test_a_service_without_selector_takes_the_addresses_that_somebody_gave_it() -> None:
    front = service("llm", annotations=ON, selector=None)
    slices = (endpoint_slice("llm", endpoint("10.1.1.1")),)
    assert urls(find(services=(front,), slices=slices)) == {"models/llm/10.1.1.1": "http://10.1.1.1:8080"}
    found = find(services=(front,))
    assert "it has no selector and no EndpointSlice" in found.notes[Subject("Service", "models", "llm", front_uid())]
    assert find(services=(SERVICE,)).notes == {}


def test_endpoints_that_are_names_are_said_not_to_be_followed() -> None:
    slices = (endpoint_slice("llm", endpoint("engine.example"), family="FQDN"),)
    assert (
        "names (FQDN)"
        in find(services=(SERVICE,), slices=slices).notes[Subject("Service", "models", "llm", front_uid())]
    )


def front_uid() -> str:
    return "uid-models-llm"


def test_an_endpoint_of_a_pod_that_is_gone_is_none_and_of_one_that_cannot_be_read_has_its_name() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    assert urls(find(services=(SERVICE,), slices=slices)) == {}
    everything = seen(services=(SERVICE,), slices=slices)
    for blind in ("models", None):
        found = Finder().find(msgspec.structs.replace(everything, blind=frozenset({blind})), {})
        assert urls(found) == {"models/a": "http://10.0.0.1:8080"}


def test_an_endpoint_of_another_pod_of_the_same_name_is_none() -> None:
    old = endpoint("10.0.0.1", "a")
    old["targetRef"]["uid"] = "uid-of-before"
    assert urls(find(pod("a", "10.0.0.2"), services=(SERVICE,), slices=(endpoint_slice("llm", old),))) == {}


def test_pharos_s_own_pod_is_none_behind_a_service_either() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    assert find(pod("a"), services=(SERVICE,), slices=slices, own_uid="uid-models-a").specs == []


def test_the_fault_of_a_service_is_not_blamed_on_a_pod_that_has_annotations_too() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a")),)
    bad = service("llm", annotations=on(prot="1"))
    found = find(pod("a", annotations={"pharos.capacity": "3"}), services=(bad,), slices=slices)
    assert list(told(found)) == ["Service models/llm"]


def test_a_pod_that_asks_for_itself_counts_though_its_service_is_refused() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")),)
    bad = service("llm", annotations=on(prot="1"))
    found = find(pod("a", annotations=ON), pod("b", "10.0.0.2"), services=(bad,), slices=slices)
    assert urls(found) == {"models/a": "http://10.0.0.1:8080"}
    assert list(told(found)) == ["Service models/llm"]


def test_a_pod_s_own_port_is_one_of_its_own_and_not_of_its_service_s() -> None:
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), ports=(("web", 9000),)),)
    own = pod("a", ports=(("metrics", 9000), ("api", 9001)), annotations={"pharos.port": "api"})
    assert urls(find(own, services=(SERVICE,), slices=slices)) == {"models/a": "http://10.0.0.1:9001"}


def test_a_whole_address_needs_no_port() -> None:
    found = find(pod("a", ports=(), annotations=on(url="http://10.9.9.9:1")), allow_url=True)
    assert urls(found) == {"models/a": "http://10.9.9.9:1"}


def test_the_log_is_that_of_the_container_with_the_port() -> None:
    two = pod("a", ports=(), annotations=on(port="api"), container="helper")
    two["spec"]["containers"].append({"name": "engine", "ports": [{"name": "api", "containerPort": 9000}]})
    [spec] = find(two, pod_logs=True).specs
    assert spec.logs == "kubernetes://models/a/engine"


def test_what_others_write_into_annotations_is_not_kept() -> None:
    [one] = seen(
        (pod("a", annotations={**ON, "kubectl.kubernetes.io/last-applied-configuration": "x" * 9}),)
    ).pods.values()
    assert one.metadata.annotations == ON


def test_fields_that_are_null_are_as_good_as_absent() -> None:
    bare = pod("a", annotations=ON)
    bare["spec"]["containers"] = None
    bare["status"]["conditions"] = None
    assert "no container declares a port" in told(find(bare))["Pod models/a"]
    part = endpoint_slice("llm", {"addresses": None, "conditions": {"ready": None}})
    assert find(services=(SERVICE,), slices=(part,)).specs == []


def test_equal_annotations_are_read_once_and_nothing_is_judged_twice() -> None:
    finder = Finder()
    everything = seen(
        tuple(pod(f"p{number}", f"10.0.0.{number}", annotations=on(kind="vllm")) for number in range(1, 9))
    )
    first = finder.find(everything, {}).specs
    again = finder.find(everything, {}).specs
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert {spec.kind for spec in first} == {"vllm"}
    assert len({spec.url for spec in first}) == 8


def test_objects_with_annotations_of_their_own_are_judged_a_few_at_a_time_and_found_together() -> None:
    many = 3 * AT_ONCE
    pods = [pod(f"p{n:02}", f"10.0.0.{n}", annotations=on(capacity=str(n))) for n in range(1, many + 1)]
    slice_ = endpoint_slice("s", *(endpoint(f"10.0.1.{n}", f"q{n:02}") for n in range(1, many + 1)))
    behind = [pod(f"q{n:02}", f"10.0.1.{n}", annotations=on(capacity=str(n))) for n in range(1, many + 1)]
    finder = Finder()
    everything = seen((*pods, *behind), (service("s", annotations=ON),), (slice_,))
    *pauses, found = finder.steps(everything, {})
    assert pauses == [None] * (2 * many // AT_ONCE)
    assert found is not None
    assert len(found.specs) == 2 * many
    assert [found] == list(finder.steps(everything, {})), "what is known needs no pause"


WORDS = st.sampled_from(
    ["true", "false", "", "~", "{", "[1", "{a: b}", "&x {a: *x}", "!!set {}", "1e400", "-1", "8080", "9" * 5000, "/a"]
) | st.text(max_size=20)  # fmt: skip
NAMES = st.sampled_from([*KNOWN, "url", "prot", "", "enable/x"])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, WORDS, max_size=5), st.dictionaries(NAMES, WORDS, max_size=3), st.booleans())
def test_no_annotation_harms_any_other_object(
    of_pod: dict[str, str],
    of_service: dict[str, str],
    allow_url: bool,  # noqa: FBT001 (hypothesis gives them)
) -> None:
    given_pod = {f"pharos.{name}": text for name, text in of_pod.items()}
    given_service = ON | {f"pharos.{name}": text for name, text in of_service.items()}
    slices = (endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")),)
    found = find(
        pod("a", annotations=given_pod), pod("b", "10.0.0.2"), pod("good", "10.0.0.3", annotations=ON),
        services=(service("llm", annotations=given_service),), slices=slices, allow_url=allow_url,
    )  # fmt: skip
    assert urls(found)["models/good"] == "http://10.0.0.3:8080"
    assert all(len(why) < 1000 for why in told(found).values())
    if not allow_url:
        assert all(spec.url.split("/")[2].startswith("10.0.0.") for spec in found.specs)
