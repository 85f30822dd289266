"""Lists of a whole Pharos: what scraping read is what clients get, and no request of theirs makes another one."""

import json

from tests.app.running import pharos
from tests.fakes import captures
from tests.fakes.replayed import Replayed


async def test_ollama_s_lists_are_the_engine_s_own_and_ask_it_nothing() -> None:
    pages = captures.state("ollama", "0.17.4", "idle")
    async with (
        Replayed("ollama", "0.17.4", "idle") as engine,
        pharos(backends=[{"url": engine.url, "name": "o"}]) as running,
    ):
        await running.until(lambda: running.app.shelf.last("o", "/api/ps"))
        for path in ("/api/tags", "/api/ps", "/api/version"):
            status, text = await running.get(path)
            assert (status, json.loads(text)) == (200, json.loads(pages[path].body))
        status, text = await running.get("/v1/models")
        names = [model["name"].removesuffix(":latest") for model in json.loads(pages["/api/tags"].body)["models"]]
        assert [card["id"] for card in json.loads(text)["data"]] == names
        seen = len(engine.seen)
        for _ in range(20):
            assert (await running.get("/api/tags"))[0] == 200
        assert len(engine.seen) <= seen + 10, "only rounds of scraping"


async def test_a_recorded_chat_goes_through_in_ollama_s_protocol() -> None:
    async with (
        Replayed("ollama", "0.17.4", "idle") as engine,
        pharos(backends=[{"url": engine.url, "name": "o"}]) as running,
    ):
        await running.until(lambda: running.app.fleet.backends["o"].targets)
        asked = json.loads(captures.request("ollama", "0.17.4", "api_chat_stream"))
        async with running.http.post(running.url + asked["path"], json=asked["body"]) as response:
            assert response.status == 200
            assert await response.read() == captures.exchange("ollama", "0.17.4", "api_chat_stream").body
