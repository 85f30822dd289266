from collections.abc import Sequence

import pytest

from pharos.control.discovery import static
from pharos.core.fleet.backend import BackendSpec

NAMES = {
    "one": ["10.0.0.1"],
    "two-stacks": ["10.0.0.1", "fd00::1"],
    "localhost": ["127.0.0.1", "::1"],
    "twice-the-same": ["10.0.0.1", "10.0.0.1"],
    "many": ["10.0.0.1", "10.0.0.2"],
    "many-v6": ["fd00::1", "fd00::2"],
}


async def lookup(host: str) -> Sequence[str]:
    if host not in NAMES:
        raise OSError("name not known")
    return NAMES[host]


def spec(host: str) -> BackendSpec:
    return BackendSpec(name="gpu", url=f"http://{host}:8080")


@pytest.mark.parametrize("host", ["one", "two-stacks", "localhost", "twice-the-same", "unheard-of"])
async def test_a_name_for_one_machine_needs_no_remark(host: str) -> None:
    assert await static.remarks([spec(host)], lookup) == []


@pytest.mark.parametrize("host", ["10.0.0.9", "[::1]", "[fe80::1%25eth0]"])
async def test_an_address_is_not_looked_up(host: str) -> None:
    async def never(host: str) -> Sequence[str]:
        raise AssertionError(host)

    assert await static.remarks([spec(host)], never) == []


@pytest.mark.parametrize("host", ["many", "many-v6"])
async def test_a_name_with_several_addresses_is_remarked_on(host: str) -> None:
    (event,) = await static.remarks([spec("one"), spec(host)], lookup)
    assert (event.level, event.outcome, event.backend) == ("warning", "", "gpu")
    assert "has 2 addresses" in event.text
    assert all(address in event.text for address in NAMES[host])


async def test_names_are_looked_up_by_the_system() -> None:
    assert set(await static.addresses_of("localhost")) <= {"127.0.0.1", "::1"}
