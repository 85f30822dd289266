"""What a control plane does to who watches it: restarts, new tokens, rights taken and given, and a thousand Pods."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from e2e.cluster import ROOT, Namespace, later, run
from e2e.outside import Account, Api, Outside, Way, api_server, outside
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

RULES = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "pharos"},
    "rules": [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "pharos"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pharos"},
    "subjects": [{"kind": "ServiceAccount", "name": "pharos"}],
}
SERVER = Path("/run/kube-cluster/kube-apiserver.pid")
"""Where hack/cluster notes it."""
ETCD = SERVER.with_name("etcd.sock")
PODS = int(os.environ.get("E2E_PODS", "1000"))
A_MINUTE = 50
CHURN_S = float(os.environ.get("E2E_CHURN_S", "300"))


@pytest.fixture
async def api(plain: Namespace) -> AsyncIterator[Api]:
    plain.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pharos"}}, RULES, BINDING)
    async with api_server() as server:
        yield server


@pytest.fixture
async def account(api: Api, plain: Namespace, tmp_path: Path) -> Account:
    folder = tmp_path / "account"
    folder.mkdir()
    made = Account(folder, api, plain.name)
    await later(made.renew)
    return made


async def routed(pharos: Outside) -> int:
    """The status of a chat."""
    body = {"model": RECORDED_MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{pharos.url}/v1/chat/completions", json=body) as reply,
    ):
        await reply.read()
        return reply.status


async def always(pharos: Outside, seen: list[int]) -> None:
    """Ask without end."""
    while True:
        seen.append(await routed(pharos))
        await asyncio.sleep(0.1)


async def said(pharos: Outside, text: str, *, beyond: int = 0) -> None:
    """Wait until it logs something."""
    async with asyncio.timeout(180):
        while text not in pharos.log[beyond:]:
            await asyncio.sleep(0.2)


def restart() -> None:
    """End the API server of hack/cluster, and start it again."""
    os.kill(int(SERVER.read_text().split()[0]), signal.SIGKILL)
    nodes = Path("/etc/kube-cluster/nodes").read_text().strip()
    run(str(ROOT / "hack" / "cluster" / "up.sh"), env={"CLUSTER_NODES": nodes})


async def compact() -> None:
    """Make etcd of hack/cluster forget every version but the last one of each object."""
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(ETCD))) as session:

        async def ask(path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
            async with session.post(f"http://etcd/v3/kv/{path}", json=body) as reply:
                told: dict[str, dict[str, str]] = await reply.json()
                assert reply.status == 200, told
                return told

        last = (await ask("range", {"key": "YQ=="}))["header"]["revision"]  # any key: each answer has the revision
        await ask("compaction", {"revision": last, "physical": True})


@pytest.mark.skipif(not SERVER.exists(), reason="only the API server of hack/cluster/up.sh can be ended here")
async def test_restarts_new_tokens_and_lost_rights_never_stop_routing(
    api: Api, account: Account, plain: Namespace, tmp_path: Path
) -> None:
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as second, FakeLlamaCpp() as third:
        await api.add_pod(plain.name, "engine", "127.0.0.1", engine.port)
        async with outside(tmp_path, account) as pharos, asyncio.TaskGroup() as group:
            await pharos.until("the Pod is a backend", {f"{plain.name}/engine"})
            seen: list[int] = []
            asking = group.create_task(always(pharos, seen))

            await later(restart)
            await api.add_pod(plain.name, "after-restart", "127.0.0.1", second.port)
            names = {f"{plain.name}/engine", f"{plain.name}/after-restart"}
            took = await pharos.until("one of after the restart is seen", names)
            print(f"the API server restarted: the next Pod was seen after {took:.1f} s")

            # The old token ends with its account, as a rotated one does in time.
            await later(plain.kubectl, "delete", "serviceaccount", "pharos")
            await later(plain.kubectl, "create", "serviceaccount", "pharos")
            await later(account.renew)
            await later(restart)
            await api.delete_pod(plain.name, "after-restart")
            took = await pharos.until("the new token is used", {f"{plain.name}/engine"})
            print(f"another token: the deleted Pod was gone after {took:.1f} s")

            await later(plain.kubectl, "delete", "rolebinding", "pharos")
            before = len(pharos.log)
            await later(restart)
            await said(pharos, 'resources: ["pods"], verbs: ["get", "list", "watch"]', beyond=before)
            assert await pharos.backends() == {f"{plain.name}/engine"}
            await api.add_pod(plain.name, "unseen", "127.0.0.1", third.port)
            assert await pharos.backends() == {f"{plain.name}/engine"}

            plain.apply(BINDING)
            names = {f"{plain.name}/engine", f"{plain.name}/unseen"}
            took = await pharos.until("the right is back", names)
            print(f"rights restored: seen after {took:.1f} s; {len(seen)} requests meanwhile")
            asking.cancel()
    assert set(seen) == {200}


@pytest.mark.skipif(not ETCD.exists(), reason="only the etcd of hack/cluster/up.sh can be told to compact here")
async def test_what_was_compacted_away_while_the_way_was_cut_is_listed_anew(
    api: Api, account: Account, plain: Namespace, tmp_path: Path
) -> None:
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as second, FakeLlamaCpp() as third, Way(api.url) as way:
        account.reach(way.url)
        await api.add_pod(plain.name, "stays", "127.0.0.1", engine.port)
        await api.add_pod(plain.name, "goes", "127.0.0.1", second.port)
        async with outside(tmp_path, account) as pharos, asyncio.TaskGroup() as group:
            before = {f"{plain.name}/stays", f"{plain.name}/goes"}
            await pharos.until("both are backends", before)
            seen: list[int] = []
            asking = group.create_task(always(pharos, seen))
            version = await api.version(plain.name)

            await way.shut()
            await api.delete_pod(plain.name, "goes")
            await api.add_pod(plain.name, "comes", "127.0.0.1", third.port)
            await compact()
            await later(restart)  # else it tells from memory what etcd has forgotten
            assert await api.is_too_old(plain.name, version)
            assert await pharos.backends() == before

            await way.open()
            took = await pharos.until("the list is right", {f"{plain.name}/stays", f"{plain.name}/comes"})
            print(f"a way that was cut, and a watch that is too old: right after {took:.1f} s, {len(seen)} requests")
            asking.cancel()
    assert set(seen) == {200}


async def test_a_thousand_pods_come_and_go(api: Api, account: Account, plain: Namespace, tmp_path: Path) -> None:
    rng = random.Random(6)
    alive = {f"pod-{number}": _address(number) for number in range(PODS)}
    gate = asyncio.Semaphore(16)

    async def add(name: str, address: str) -> None:
        async with gate:
            await api.add_pod(plain.name, name, address)

    await asyncio.gather(*(add(name, address) for name, address in alive.items()))
    async with outside(tmp_path, account) as pharos:
        took = await pharos.until("all are backends", {f"{plain.name}/{name}" for name in alive})
        first_mb = pharos.memory_mb
        print(f"{PODS} Pods: all seen {took:.1f} s after the start; {first_mb:.0f} MB")
        number, late, peaks = PODS, [], [first_mb]
        end = time.monotonic() + CHURN_S
        while time.monotonic() < end:
            began = time.monotonic()
            gone = rng.choice(sorted(alive))
            del alive[gone]
            await api.delete_pod(plain.name, gone)
            alive[f"pod-{number}"] = _address(number)
            await add(f"pod-{number}", alive[f"pod-{number}"])
            number += 1
            late.append(await pharos.until("the change is seen", {f"{plain.name}/{name}" for name in alive}))
            peaks.append(pharos.memory_mb)
            await asyncio.sleep(max(0.0, 60 / A_MINUTE - (time.monotonic() - began)))
        late.sort()
        p50, p95 = late[len(late) // 2], late[int(len(late) * 0.95)]
        print(
            f"{len(late)} came and went in {CHURN_S:.0f} s: seen p50 {p50:.2f} s, p95 {p95:.2f} s, "
            f"last {late[-1]:.2f} s; memory {peaks[0]:.0f} -> {peaks[-1]:.0f} MB, at most {max(peaks):.0f} MB"
        )
        assert max(peaks) < 150
        assert peaks[-1] < peaks[len(peaks) // 2] + 10


def _address(number: int) -> str:
    """An address of this machine that nobody listens on."""
    return f"127.7.{number // 250 % 250}.{number % 250 + 1}"
