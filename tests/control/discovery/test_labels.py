"""Labels to backends: what they mean, and what is said of those that make none."""

import pytest

from pharos.config.schema import Credential
from pharos.control.discovery.containers import Container, Found, HostConfig, Network, Networks, Place, Port, backends
from pharos.core.fleet.backend import BackendSpec

ON = {"pharos.enable": "true"}
CREDENTIALS = {"gpu": Credential(api_key_env="K")}


def container(name: str = "ollama", labels: dict[str, str] | None = None, **more: object) -> Container:
    networks = more.pop("networks", {"bridge": "172.17.0.2"})
    ports = more.pop("ports", (11434,))
    mode = more.pop("mode", "default")
    assert isinstance(networks, dict)
    assert isinstance(ports, tuple)
    return Container(
        id="4c01db0b339c" * 5,
        names=(f"/{name}",),
        labels=ON if labels is None else ON | labels,
        ports=tuple(Port(port, "tcp") for port in ports),
        network_settings=Networks(
            {
                network: Network(ip6_address=address) if ":" in address else Network(ip_address=address)
                for network, address in networks.items()
            }
        ),
        host_config=HostConfig(str(mode)),
    )


def place(*networks: str, mode: str = "default") -> Place:
    return Place(Networks({name: Network(ip_address="10.0.0.9") for name in networks}), HostConfig(mode))


def found(*containers: Container, own: Place | None = None) -> Found:
    return backends(containers, own, CREDENTIALS)


def only(*containers: Container, own: Place | None = None) -> BackendSpec:
    made = found(*containers, own=own)
    assert made.refused == {}
    [spec] = made.specs
    return spec


def test_enable_alone_makes_a_backend_at_the_one_exposed_port_with_its_log() -> None:
    spec = only(container())
    assert (spec.name, spec.url, spec.kind, spec.logs) == (
        "ollama", "http://172.17.0.2:11434", None, "docker://ollama",
    )  # fmt: skip


def test_every_label_has_its_place_in_the_backend() -> None:
    spec = only(
        container(
            labels={
                "pharos.port": "8000",
                "pharos.scheme": "https",
                "pharos.path": "/engine/",
                "pharos.kind": "vllm",
                "pharos.memory_gb": "24",
                "pharos.capacity": "4",
                "pharos.credential": "gpu",
                "pharos.aliases": "{meta/llama: llama}",
                "pharos.probes": "[{name: mine, signal: running, prom: {metric: m}}]",
                "pharos.drain": "true",
                "com.docker.compose.project": "x",
            }
        )
    )
    assert (spec.url, spec.kind, spec.capacity, spec.memory_bytes) == (
        "https://172.17.0.2:8000/engine", "vllm", 4, 24 * 1024**3,
    )  # fmt: skip
    assert (spec.credential, spec.aliases, spec.drain) == ("gpu", (("meta/llama", "llama"),), True)
    assert [probe.name for probe in spec.probes] == ["mine"]


def test_a_given_url_needs_neither_port_nor_network() -> None:
    assert only(container(labels={"pharos.url": "http://gpu:1/x"}, networks={}, ports=())).url == "http://gpu:1/x"


def test_what_is_not_enabled_is_no_backend_and_nothing_is_said_of_it() -> None:
    made = found(Container(names=("/a",)), container("b", {"pharos.enable": "false", "pharos.port": "x"}))
    assert (made.specs, made.refused) == ([], {})


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"pharos.enable": "yes"}, 'pharos.enable is \'yes\': write "true" or "false"'),
        ({"pharos.capcity": "4"}, "pharos.capcity is no label of Pharos; did you mean pharos.capacity?"),
        ({"pharos.zzz": "4"}, "pharos.zzz is no label of Pharos; there are enable, drain, port"),
        ({"pharos.capacity": "many"}, "pharos.capacity: expected a whole number"),
        ({"pharos.capacity": "0"}, "pharos.capacity: must be"),
        ({"pharos.memory_gb": "24GB"}, "pharos.memory_gb: expected a number"),
        ({"pharos.memory_gb": "1e308"}, "pharos.memory_gb: must be from 0.01 to 100000"),
        ({"pharos.kind": "olama"}, "pharos.kind: no such kind; did you mean ollama?"),
        ({"pharos.credential": "cpu"}, "pharos.credential: no such credential; did you mean gpu?"),
        ({"pharos.port": "http"}, "pharos.port is 'http': write a number from 1 to 65535"),
        ({"pharos.port": "65536"}, "pharos.port is '65536'"),
        ({"pharos.port": "9" * 5000}, "pharos.port is "),
        ({"pharos.scheme": "ftp"}, "pharos.scheme is 'ftp': write http or https"),
        ({"pharos.path": "v1"}, "pharos.path is 'v1': write a path that begins with /"),
        ({"pharos.drain": "1"}, 'pharos.drain is \'1\': write "true" or "false"'),
        ({"pharos.url": "gpu:8000"}, "pharos.url: "),
        ({"pharos.url": "http://a", "pharos.port": "1"}, "pharos.url and pharos.port are both given: keep one"),
        ({"pharos.aliases": "{a: "}, "pharos.aliases: it is not YAML"),
        ({"pharos.aliases": "[" * 41 + "]" * 41}, "pharos.aliases: it is nested too deeply"),
        ({"pharos.aliases": "[a]"}, "pharos.aliases: expected names with values"),
        ({"pharos.probes": "[{name: mine}]"}, "pharos.probes[0]"),
        ({"pharos.aliases": ""}, "pharos.aliases: is empty"),
    ],
)
def test_labels_that_make_no_backend_are_told_with_what_to_do(labels: dict[str, str], told: str) -> None:
    made = found(container(labels=labels), container("other", networks={"bridge": "172.17.0.3"}))
    assert told in made.refused["ollama"]
    assert [spec.name for spec in made.specs] == ["other"]


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ((), "it exposes no port: add the label pharos.port"),
        ((9000, 80), "it exposes several ports (80, 9000): add the label pharos.port"),
    ],
)
def test_a_port_that_cannot_be_told_is_asked_for(ports: tuple[int, ...], told: str) -> None:
    assert told in found(container(ports=ports)).refused["ollama"]
    assert only(container(labels={"pharos.port": "80"}, ports=ports)).url == "http://172.17.0.2:80"


def test_an_address_of_ipv6_has_brackets_and_one_of_ipv4_goes_first() -> None:
    assert only(container(networks={"six": "2001:db8::7"})).url == "http://[2001:db8::7]:11434"
    both = Container(
        names=("/a",), labels=ON, ports=(Port(1, "tcp"),),
        network_settings=Networks({"n": Network("10.0.0.2", "2001:db8::7")}),
    )  # fmt: skip
    assert only(both).url == "http://10.0.0.2:1"


@pytest.mark.parametrize("order", [("db-net", "llm-net"), ("llm-net", "db-net")])
def test_the_network_that_pharos_shares_is_chosen_whatever_their_order(order: tuple[str, str]) -> None:
    addresses = {"db-net": "192.0.2.5", "llm-net": "198.51.100.5"}
    two = container(networks={name: addresses[name] for name in order})
    assert only(two, own=place("llm-net")).url == "http://198.51.100.5:11434"
    assert only(two).url == "http://192.0.2.5:11434"
    assert found(two, own=place("llm-net")).doubts == {}


def test_a_container_in_none_of_pharoses_networks_is_a_backend_with_a_warning() -> None:
    made = found(container(networks={"db-net": "192.0.2.5"}), own=place("llm-net"))
    assert [spec.url for spec in made.specs] == ["http://192.0.2.5:11434"]
    assert made.doubts["ollama"] == (
        "ollama is in none of Pharos's networks (llm-net), only in db-net: it may be out of reach; put both into one "
        "network, or add the label pharos.url"
    )


def test_a_container_that_has_no_address_yet_is_looked_at_again_and_not_refused() -> None:
    made = found(container(networks={"bridge": ""}))
    assert (made.specs, made.refused, made.unaddressed) == ([], {}, ["ollama"])


def test_a_container_without_any_network_is_asked_for_one() -> None:
    assert "it is in no network" in found(container(networks={})).refused["ollama"]


def test_an_engine_that_two_containers_claim_counts_once_and_the_other_one_is_told_why() -> None:
    given = {"pharos.port": "80"}
    made = found(*(container(name, given, networks={"host": ""}, ports=(), mode="host") for name in ("b", "a", "c")))
    assert [spec.name for spec in made.specs] == ["a"]
    why = "http://127.0.0.1:80 is a's too, and counts once: give each its own port"
    assert made.refused == {"b": why, "c": why}


def test_on_the_hosts_network_an_engine_is_reached_from_there_only() -> None:
    engine = container(labels={"pharos.port": "80"}, networks={"host": ""}, ports=(), mode="host")
    assert only(engine).url == "http://127.0.0.1:80"
    assert only(engine, own=place("host", mode="host")).url == "http://127.0.0.1:80"
    assert "add the label pharos.url" in found(engine, own=place("llm-net")).refused["ollama"]


def test_the_own_name_of_a_container_goes_before_links_to_it() -> None:
    linked = Container(names=("/web/db", "/ollama"), labels=ON, ports=(Port(1, "tcp"),), id="4c01db0b339c")
    assert linked.name == "ollama"
    assert Container(id="4c01db0b339c99").name == "4c01db0b339c"
