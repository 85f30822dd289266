"""What docs/threat-model.md promises of a whole Pharos and no other test shows: which door opens to whom."""

import asyncio
import hashlib
import json
import logging
from pathlib import Path

import pytest

from tests.app.running import AUTH, KEYS, Running, pharos
from tests.app.test_discovering import container, discovery
from tests.fakes.docker import FakeDocker
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.fakes.ports import free_port

PROMPT = "xyzzy plugh"
"""Words that no engine says and nobody else."""
SECRET = "a secret that instances share"
OPERATORS = [
    ("GET", "/config"),
    ("GET", "/doctor"),
    ("GET", "/backends"),
    ("GET", "/explain/x"),
    ("POST", "/backend/gpu/drain"),
    ("POST", "/backend/gpu/undrain"),
    ("POST", "/peer/delta"),
    ("GET", "/peer/snapshot"),
]
ADMIN = [{**KEYS[0], "admin": True}]


@pytest.mark.parametrize(("method", "path"), OPERATORS)
async def test_no_key_opens_what_is_for_operators_or_peers_on_the_clients_address(method: str, path: str) -> None:
    async with (
        pharos(keys=ADMIN) as running,
        running.http.request(method, running.url + path, headers=AUTH) as response,
    ):
        assert response.status == 404


async def test_the_secret_of_peers_is_no_key_and_a_key_is_no_secret_of_peers(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    listen = f"127.0.0.1:{free_port()}"
    peers = {"listen": listen, "secret_file": str(secret), "members": [listen]}
    async with pharos(keys=ADMIN, peers=peers) as running:
        with_secret = {"Authorization": f"Bearer {SECRET}"}
        async with running.http.get(running.url + "/v1/models", headers=with_secret) as response:
            assert response.status == 401
        url = f"http://{listen}/peer/snapshot"
        for headers, status in ((AUTH, 401), ({}, 401), (with_secret, 200)):
            async with running.http.get(url, headers=headers) as response:
                assert response.status == status
                await response.read()


async def _ask(running: Running) -> str:
    """One streamed chat; the first word that the engine said."""
    body = {"model": RECORDED_MODEL, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    async with running.http.post(running.url + "/v1/chat/completions", json=body, headers=AUTH) as response:
        lines = (await response.text()).splitlines()
    said = [json.loads(line[6:])["choices"] for line in lines if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for choices in said for choice in choices)
    assert len(text) > 10
    return text


async def test_no_prompt_reply_or_key_is_kept_logged_or_shown_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pharos")
    config = {
        "keys": ADMIN,
        "state_file": str(tmp_path / "state"),
        "decision_log": {"path": str(tmp_path / "decisions.jsonl")},
        "log": {"level": "debug"},
    }
    async with FakeLlamaCpp() as engine, pharos(engine, **config) as running:
        replied = await _ask(running)
        await running.until(lambda: list(running.app.reporting.recent))
        pages = [await running.get("/metrics")]
        for path in ("/status", "/status?format=json", "/usage"):
            async with running.http.get(running.url + path, headers=AUTH) as response:
                pages.append((response.status, await response.text()))
    assert {status for status, _ in pages} == {200}
    kept = await asyncio.to_thread(lambda: [path.read_bytes() for path in tmp_path.iterdir()])
    assert len(kept) == 2
    everything = "".join([caplog.text, *(page for _, page in pages), *(data.decode("latin-1") for data in kept)])
    assert RECORDED_MODEL in everything
    for text in (PROMPT, replied, "pk-test"):
        assert text not in everything


async def test_metrics_tell_neither_an_engines_address_nor_a_hash_of_a_key() -> None:
    async with FakeLlamaCpp() as engine, pharos(keys=KEYS, backends=[{"url": engine.url, "name": "gpu"}]) as running:
        await _ask(running)
        _, page = await running.get("/metrics")
    assert 'backend="gpu"' in page
    for text in (str(engine.port), "127.0.0.1", hashlib.sha256(b"pk-test").hexdigest()[:12]):
        assert text not in page


async def test_docker_is_only_ever_asked_to_tell(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as engine, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["gpu"] = container(engine)
        async with pharos(discovery=discovery(docker)) as running:
            async with running.chat() as response:
                assert response.status == 200
            del docker.containers["gpu"]
            await docker.happen()
            await running.until(lambda: not running.app.fleet.backends)
        asked = {(seen.method, seen.path.partition("?")[0]) for seen in docker.seen}
    own = {(method, path) for method, path in asked if path.endswith("/json") and path != "/containers/json"}
    assert asked - own <= {("GET", "/events"), ("GET", "/containers/json"), ("GET", "/containers/gpu/logs")}
    assert {method for method, _ in own} <= {"GET"}


@pytest.mark.parametrize("label", ["logs", "ca_file", "headers", "api_key_file", "name"])
async def test_a_label_names_no_file_and_no_header(tmp_path: Path, label: str) -> None:
    async with FakeLlamaCpp() as engine, FakeDocker(tmp_path / "d.sock") as docker:
        docker.containers["gpu"] = container(engine, **{label: "file:///etc/passwd"})
        async with pharos(discovery=discovery(docker)) as running:
            assert not running.app.fleet.backends
