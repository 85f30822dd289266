"""What is kept of clients' requests, and that the page and the recordings belong together."""

import asyncio
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.clients.requests import CLIENTS, files, name_of, read
from tests.fakes.http import HttpDouble, Reply, Seen

HACK = Path(__file__).resolve().parents[2] / "hack"
SECRET, WRONG = "pk-right", "pk-wrong"
PARTS = ("recording", "ran", "catalogue", "tap")


@pytest.fixture(scope="module")
def parts() -> Iterator[Any]:
    """The modules of `hack/clients`, as attributes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HACK))
        yield {name: importlib.import_module(f"clients.{name}") for name in PARTS}


def seen(body: dict[str, Any], **headers: str) -> Seen:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return Seen(0.0, "POST", "/v1/messages", told, json.dumps(body).encode())


def recording(parts: Any, *, is_foreign: bool = False) -> Any:
    keys = {SECRET: "<key>", WRONG: "<wrong key>"}
    return parts["recording"].Recording(keys, ["tiny", "other"], is_foreign=is_foreign)


def test_a_recording_masks_keys_ids_and_the_machine(parts: Any) -> None:
    kept = recording(parts)
    kept.add(
        "chat (ollama)",
        seen(
            {"model": "tiny"},
            host="127.0.0.1:4711",
            authorization=f"Bearer {SECRET}",
            x_api_key=WRONG,
            x_stainless_arch="x64",
            user_agent="ollama/0.17.4 (amd64 linux) Go/go1.24.1",
            session="0b9ad5c1-1111-4222-8333-123456789abc",
        ),
    )
    (one,) = kept.requests
    assert one.step == "chat"
    assert one.headers == [
        "host: pharos.example",
        "authorization: Bearer <key>",
        "x-api-key: <wrong key>",
        "x-stainless-arch: masked",
        "user-agent: ollama/0.17.4 masked Go/masked",
        "session: 00000000-0000-0000-0000-000000000000",
    ]


def test_what_differs_in_the_model_s_name_only_is_kept_once(parts: Any) -> None:
    kept = recording(parts)
    for model, limit in (("tiny", 1), ("other", 1), ("tiny", 2), ("elsewhere", 1)):
        kept.add("chat", seen({"model": model, "max_tokens": limit}))
    assert [json.loads(one.body)["model"] for one in kept.requests] == ["tiny", "tiny", "elsewhere"]


def shape(told: Any) -> Any:
    """All of a document but what its texts say."""
    if isinstance(told, dict):
        return {name: shape(value) for name, value in told.items()}
    if isinstance(told, list):
        return [shape(value) for value in told]
    return "text" if isinstance(told, str) else told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(body=st.dictionaries(st.text(), JSON, max_size=4), ascii_only=st.booleans())
def test_filler_keeps_structure_numbers_and_every_length(parts: Any, body: Any, ascii_only: bool) -> None:  # noqa: FBT001
    sent = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    made = parts["recording"].filled(sent)
    assert len(made) == len(sent)
    assert shape(json.loads(made)) == shape(body)


def test_filler_leaves_nothing_of_a_text_but_names_of_the_protocol_and_line_ends(parts: Any) -> None:
    text = 'You are "an agent".\n\nYour home is C:\\users\\me \u2014 be \ud83d\ude00 brief.'
    body = {"model": "tiny", "role": "user", "name": "Bash", "text": text, "keep": "all"}
    made = json.loads(parts["recording"].filled(json.dumps(body).encode()))
    assert (made["model"], made["role"], made["name"]) == ("tiny", "user", "Bash")
    assert made["text"].count("\n") == 2
    assert all(parts["recording"].FILLER.startswith(line) for line in made["text"].split("\n"))
    assert made["keep"] == "The"


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_no_recorded_request_has_a_key_or_a_folder_of_a_machine(path: Path) -> None:
    one = read(path)
    for line in one.headers:
        name, _, value = line.partition(": ")
        if name in ("authorization", "x-api-key", "api-key"):
            assert value.removeprefix("Bearer ") in ("<key>", "<wrong key>")
        if name == "host":
            assert value == "pharos.example"
        if name == "content-length":
            assert int(value) == len(one.body.encode())
    assert re.search(r"/(?:root|home|Users|tmp|work)/", one.body) is None


@pytest.mark.parametrize("folder", sorted(CLIENTS.glob("*/*/")), ids=lambda folder: f"{folder.parent.name}")
def test_each_folder_says_what_it_is_and_others_texts_are_marked_as_filler(parts: Any, folder: Path) -> None:
    meta = yaml.safe_load((folder / "meta.yaml").read_text(encoding="utf-8"))
    client = parts["catalogue"].BY_NAME[folder.parent.name]
    assert (meta["client"], str(meta["version"])) == (client.title, folder.name)
    assert ("texts" in meta) is client.is_foreign
    for path in folder.glob("*.json"):
        if client.is_foreign and read(path).body:
            body = read(path).body.encode()
            assert parts["recording"].filled(body) == body


def test_the_page_lists_every_client_with_the_version_that_is_recorded(parts: Any) -> None:
    runs, page = parts["ran"].read(), parts["ran"].page()
    assert {folder.name for folder in CLIENTS.iterdir() if folder.is_dir()} == set(runs)
    for name, ran in runs.items():  # recordings of older versions may stay beside it
        assert list((CLIENTS / name / ran.version).glob("*.json"))
        assert f"../testdata/clients/{name}/{ran.version}/meta.yaml" in page
    for client in parts["catalogue"].CLIENTS:
        assert page.count(f"| {client.title} |") == 1 + (client.name in runs)
    assert parts["ran"].missing({})[0].startswith("Not run yet: openai (Python), ")
    assert parts["ran"].missing(runs) == []


async def test_the_recorder_changes_no_byte_in_either_direction(parts: Any) -> None:
    kept: list[Seen] = []
    async with HttpDouble() as engine:
        engine.every = Reply(200, b"x" * 300_000)
        async with parts["tap"].Tap(engine.port, kept.append) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            requests = [
                b"POST /a HTTP/1.1\r\nHost: h\r\nX: %d\r\nContent-Length: 5\r\n\r\nhell%d" % (n, n) for n in (1, 2)
            ]
            replies = []
            for request in requests:
                for at in range(0, len(request), 7):
                    writer.write(request[at : at + 7])
                    await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                replies.append((head, await reader.readexactly(300_000)))
            writer.close()
            await writer.wait_closed()
    assert [one.body for one in kept] == [b"hell1", b"hell2"]
    assert [(one.headers["x"], one.body) for one in engine.seen] == [("1", b"hell1"), ("2", b"hell2")]
    assert all(body == b"x" * 300_000 for _, body in replies)
