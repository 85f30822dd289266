"""Who Pharos is to an engine: its key and nobody else's, its headers, its certificates, and what follows a change."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pharos.config.credentials import Credentials
from pharos.config.schema import Credential
from pharos.core.fleet import BackendSpec
from pharos.proxy import head
from pharos.proxy.auth import Key
from pharos.proxy.dial import DialError, dial
from pharos.proxy.identity import MAX_READY, Nobody, Ways
from tests.fakes.tls import make_authority
from tests.proxy.engine_script import Script, ScriptedEngine, Turn
from tests.proxy.harness import DONE, Front, chat, event, front

CLIENT = "pk-client"
ASK = f"Authorization: Bearer {CLIENT}\r\n"


def demanding(key: str) -> Script:
    """An engine that answers nobody without this bearer key."""

    async def play(turn: Turn) -> None:
        if turn.header("authorization") == [f"Bearer {key}"]:
            await turn.reply(200, b'{"choices":[]}')
        else:
            await turn.reply(401, b'{"error":"who are you?"}')

    return play


async def ok(turn: Turn) -> None:
    await turn.reply(200, b'{"choices":[]}')


async def stream(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    await turn.chunk(DONE)
    await turn.write(b"0\r\n\r\n")


class Rig:
    """Credentials over files, and a clock of their own."""

    def __init__(self, folder: Path, **keys: str) -> None:
        self.now = 0.0
        self.folder = folder
        for name, key in keys.items():
            self.put(name, key)
        named = {name: Credential(api_key_file=str(folder / name)) for name in keys}
        named["gate"] = Credential(api_key_env="GATE", header="X-Gate")
        self.it = Credentials(named, {"GATE": "sk-gate"}, clock=lambda: self.now)

    def put(self, name: str, content: str | bytes) -> Path:
        fresh = self.folder / "fresh"
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        return fresh.replace(self.folder / name)


async def answered(pharos: Front, model: str = "m", headers: str = ASK) -> int:
    return (await pharos.ask(chat(model, stream=False), headers)).status


@pytest.mark.parametrize("presented", ["Authorization: Bearer", "x-api-key:", "api-key:"])
async def test_an_engine_gets_its_own_key_and_never_a_client_s(tmp_path: Path, presented: str) -> None:
    rig = Rig(tmp_path, gpu="sk-engine")
    keys = {CLIENT: Key("alice")}
    described = [{"credential": "gpu"}]
    async with front(demanding("sk-engine"), identity=rig.it, described=described, keys=keys) as (pharos, engine):
        assert await answered(pharos, headers=f"{presented} {CLIENT}\r\n") == 200
        assert CLIENT.encode() not in engine.turns[0].head
        assert engine.turns[0].header("authorization") == ["Bearer sk-engine"]
        assert await answered(pharos, headers="Authorization: Bearer sk-engine\r\n") == 401, "it opens nothing here"


async def test_an_engine_without_a_credential_gets_none() -> None:
    async with front(ok) as (pharos, engine):
        assert await answered(pharos) == 200
        assert engine.turns[0].header("authorization") == []
        assert CLIENT.encode() not in engine.turns[0].head


async def test_a_backend_s_headers_take_the_place_of_a_client_s_and_reach_no_other_engine(tmp_path: Path) -> None:
    described = [{"headers": (("X-Team", "ours"), ("User-Agent", "gateway")), "credential": "gate"}]
    sent = "x-team: theirs\r\nX-TEAM: again\r\nX-Gate: guess\r\nUser-Agent: curl\r\nX-Other: kept\r\n"
    async with front(ok, ok, identity=Rig(tmp_path).it, described=described) as (pharos, a, b):
        pharos.bring_up("a", ("n",))
        for model in ("n", "m"):
            assert await answered(pharos, model, sent) == 200
        (first,), (second,) = a.turns, b.turns
        assert (first.header("x-team"), first.header("user-agent")) == (["ours"], ["gateway"])
        assert (first.header("x-gate"), first.header("x-other")) == (["sk-gate"], ["kept"])
        assert (second.header("x-team"), second.header("x-gate")) == (["theirs", "again"], ["guess"])


async def test_a_retry_shows_the_next_engine_its_own_key(tmp_path: Path) -> None:
    async def busy(turn: Turn) -> None:
        await turn.reply(503, b"{}")

    rig = Rig(tmp_path, one="sk-one", two="sk-two")
    described = [{"credential": "one"}, {"credential": "two"}]
    async with front(busy, demanding("sk-two"), identity=rig.it, described=described) as (pharos, a, b):
        for _ in range(2):
            assert await answered(pharos) == 200
        assert {key for turn in a.turns for key in turn.header("authorization")} == {"Bearer sk-one"}
        assert {key for turn in b.turns for key in turn.header("authorization")} == {"Bearer sk-two"}


async def test_a_key_that_is_replaced_is_used_without_a_restart_on_the_connections_that_are_open(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, gpu="sk-old")
    async with front(ok, identity=rig.it, described=[{"credential": "gpu"}]) as (pharos, engine):
        assert await answered(pharos) == 200
        rig.put("gpu", "sk-new")
        rig.now += 1.0
        assert await answered(pharos) == 200
        assert [turn.header("authorization") for turn in engine.turns] == [["Bearer sk-old"], ["Bearer sk-new"]]
        assert engine.connections == 1


async def test_two_backends_at_one_address_keep_their_keys_and_connections_apart(tmp_path: Path) -> None:
    rig, engine = Rig(tmp_path, one="sk-one", two="sk-two"), ScriptedEngine(ok)
    await engine.start()
    specs = [BackendSpec(name=name, url=engine.url, credential=name) for name in ("one", "two")]
    pharos = Front(specs, identity=rig.it, models=("none",))
    await pharos.proxy.start("127.0.0.1:0")
    try:
        for name in ("one", "two"):
            pharos.bring_up(name, (f"of-{name}",))
        for name in ("one", "two", "one"):
            assert await answered(pharos, f"of-{name}") == 200
        assert [turn.header("authorization")[0] for turn in engine.turns] == [
            "Bearer sk-one", "Bearer sk-two", "Bearer sk-one",
        ]  # fmt: skip
        assert [turn.connection for turn in engine.turns] == [1, 2, 1]
    finally:
        await pharos.stop()
        await engine.stop()


# --- certificates


async def test_an_engine_with_a_certificate_of_a_private_authority_is_served(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ours")
    described = [{"ca_file": str(authority.file)}]
    async with front(stream, tls=authority.engine(), identity=Rig(tmp_path).it, described=described) as (
        pharos,
        engine,
    ):
        for _ in range(2):
            reply = await pharos.ask(chat())
            assert (reply.status, reply.body) == (200, event() + DONE)
        assert engine.connections == 1


@pytest.mark.parametrize("trusts", ["another authority", "nothing", "the system's"])
async def test_an_engine_whose_certificate_is_not_trusted_gets_nothing_and_that_is_said(
    tmp_path: Path, trusts: str
) -> None:
    authority = make_authority(tmp_path, "ours")
    files = {"another authority": make_authority(tmp_path, "theirs").file, "nothing": tmp_path / "missing"}
    described: list[dict[str, Any]] = [{"ca_file": str(files[trusts])} if trusts in files else {}]
    described[0]["credential"] = "gpu"
    rig = Rig(tmp_path, gpu="sk-engine")
    more: dict[str, Any] = {"identity": rig.it, "described": described, "absent_wait_s": 0.0}
    async with front(ok, tls=authority.engine(), **more) as (pharos, engine):
        reply = await pharos.ask(chat())
        assert reply.status in (502, 503)
        assert engine.turns == []
        (said,) = [one.text for one in pharos.events]
        assert "its certificate is not trusted (it is of no authority that is known here)" in said


async def test_a_certificate_for_another_name_is_not_trusted_and_no_address_is_told(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ours", host="DNS:engine.example")
    engine = ScriptedEngine(ok, authority.engine())
    await engine.start()
    context = Credentials().tls_for(BackendSpec("a", engine.url, ca_file=str(authority.file)))
    with pytest.raises(DialError, match=r"^its certificate is not trusted \(it is for another name\)$"):
        await dial(engine.url, asyncio.Protocol, 5.0, context)
    await engine.stop()


async def test_kept_connections_end_when_the_certificates_that_they_were_checked_against_change(tmp_path: Path) -> None:
    authority, rig = make_authority(tmp_path, "ours"), Rig(tmp_path)
    file = rig.put("ca.pem", authority.certificate)
    more: dict[str, Any] = {"identity": rig.it, "described": [{"ca_file": str(file)}], "absent_wait_s": 0.0}
    async with front(ok, tls=authority.engine(), **more) as (pharos, engine):
        assert await answered(pharos) == 200
        rig.put("ca.pem", make_authority(tmp_path, "theirs").certificate)
        rig.now += 1.0
        assert await answered(pharos) in (502, 503)
        assert len(engine.turns) == 1


# --- what is kept ready


def test_the_way_to_a_backend_is_made_once_and_anew_for_another_description() -> None:
    ways = Ways(Nobody(), drop=pytest.fail)
    plain = BackendSpec("a", "http://e/x/")
    way = ways.to(plain)
    assert ways.to(plain) is way
    assert (way.key, way.own, way.tls, way.where.path) == ("http://e/x/", head.PLAIN, None, b"/x")
    other = BackendSpec("a", "http://e/x/", headers=(("X-A", "b"),))
    assert ways.to(other) is ways.to(other)
    assert ways.to(other).own.lines == b"X-A: b\r\nX-Request-Id: "
    assert ways.to(other).key != way.key
    assert ways.to(plain) is not way
    assert ways.to(plain).key == way.key


def test_ways_to_backends_long_gone_are_not_kept_for_good() -> None:
    ways = Ways(Nobody(), drop=pytest.fail)
    for number in range(MAX_READY + 2):
        ways.to(BackendSpec(f"pod-{number}", "http://e"))
    assert repr(ways) == "<Ways 2 ready>"


def test_no_representation_holds_a_key(tmp_path: Path) -> None:
    ways = Ways(Rig(tmp_path, gpu="sk-engine").it, drop=pytest.fail)
    way = ways.to(BackendSpec("a", "http://e", credential="gpu"))
    assert b"sk-engine" in way.own.lines
    assert "sk-engine" not in f"{ways!r} {way!r} {way.own!r} {way.key}"
