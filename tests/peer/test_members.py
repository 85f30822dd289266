"""Who the members are: a list, or the answers of a name server, which here is a real one on a socket."""

import asyncio

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from pharos.peer.members import LATEST_S, MOST, Listed, LookupFault, Named, endpoint, system_resolver


class NameServer(asyncio.DatagramProtocol):
    """Answers from a table of (name, type) -> (TTL, values); unknown names do not exist."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.is_failing = False
        self.asked: list[tuple[str, str]] = []
        self.port = 0
        self.transport: asyncio.DatagramTransport

    async def start(self) -> "NameServer":
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.port = self.transport.get_extra_info("sockname")[1]
        return self

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        [question] = query.question
        name, kind = str(question.name), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        reply = dns.message.make_response(query)
        known = self.table.get((name, kind))
        if self.is_failing:
            reply.set_rcode(dns.rcode.SERVFAIL)
        elif known is not None:
            reply.answer.append(dns.rrset.from_text(question.name, known[0], "IN", kind, *known[1]))
        elif not any(there == name for there, _ in self.table):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(reply.to_wire(), addr)


def named(server: NameServer, name: str, port: int = 8081) -> Named:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], server.port
    return Named(name, port, system_resolver(resolver))


@pytest.fixture
async def server():  # noqa: ANN201 - a fixture that closes what it opened
    it = await NameServer().start()
    yield it
    it.transport.close()
    await asyncio.sleep(0)


async def test_a_list_is_what_it_is_without_repetitions() -> None:
    assert await Listed(["a:1", "b:2", "a:1"]).look() == (("a:1", "b:2"), LATEST_S)


async def test_all_addresses_of_both_families_are_members_with_brackets_where_they_belong(server: NameServer) -> None:
    server.table["peers.example.", "A"] = (30, ["192.0.2.2", "192.0.2.1"])
    server.table["peers.example.", "AAAA"] = (30, ["2001:db8::8"])
    assert await named(server, "peers.example").look() == (
        ("192.0.2.1:8081", "192.0.2.2:8081", "[2001:db8::8]:8081"),
        LATEST_S,
    )
    assert await named(server, "peers.example", 99).look() == (
        ("192.0.2.1:99", "192.0.2.2:99", "[2001:db8::8]:99"),
        LATEST_S,
    )


@pytest.mark.parametrize(("ttl", "wait_s"), [(0, 1.0), (4, 4.0), (3600, 10.0)])
async def test_an_answer_is_used_as_long_as_it_says_and_ten_seconds_at_most(
    server: NameServer, ttl: int, wait_s: float
) -> None:
    server.table["peers.example.", "A"] = (ttl, ["192.0.2.1"])
    assert (await named(server, "peers.example").look())[1] == wait_s


async def test_services_tell_their_ports(server: NameServer) -> None:
    name = "_peer._tcp.pharos.example"
    server.table[name + ".", "SRV"] = (5, ["0 50 8081 a.example.", "0 50 9091 b.example.", "0 50 0 c.example."])
    server.table["a.example.", "A"] = (3, ["192.0.2.1"])
    server.table["b.example.", "AAAA"] = (9, ["2001:db8::2"])
    assert await named(server, name).look() == (("192.0.2.1:8081", "[2001:db8::2]:9091"), 3.0)


async def test_addresses_follow_the_name(server: NameServer) -> None:
    server.table["peers.example.", "A"] = (1, ["192.0.2.10"])
    members = named(server, "peers.example")
    assert (await members.look())[0] == ("192.0.2.10:8081",)
    server.table["peers.example.", "A"] = (1, ["192.0.2.11"])
    assert (await members.look())[0] == ("192.0.2.11:8081",)


async def test_a_failing_name_server_is_a_fault_and_a_name_that_is_not_there_has_no_members(server: NameServer) -> None:
    assert (await named(server, "nobody.invalid").look())[0] == ()
    server.is_failing = True
    with pytest.raises(LookupFault):
        await named(server, "peers.example").look()


async def test_a_name_of_this_machine_and_a_plain_address_need_no_server(server: NameServer) -> None:
    assert "127.0.0.1:8081" in (await named(server, "localhost").look())[0]
    assert (await named(server, "192.0.2.7").look())[0] == ("192.0.2.7:8081",)


def test_addresses_are_written_as_urls_have_them() -> None:
    assert endpoint("192.0.2.1", 8081) == "192.0.2.1:8081"
    assert endpoint("2001:db8::8", 8081) == "[2001:db8::8]:8081"


async def test_a_name_server_that_names_hosts_without_end_has_only_so_many_looked_up() -> None:
    asked: list[str] = []

    async def ask(name: str, kind: str) -> tuple[list[tuple[str, int | None]], float]:
        if kind == "SRV":
            return [(f"host-{number}.invalid", 8081) for number in range(10_000)], 5.0
        asked.append(name)
        return [(f"10.0.0.{len(asked)}", None)], 5.0

    found, _ = await Named("_peers._tcp.example", 8081, ask).look()
    assert len(asked) == 2 * MOST
    assert len(found) == MOST
