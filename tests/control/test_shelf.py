from typing import Any

from pharos.control.fetch import Fetcher, new_session
from pharos.control.shelf import Shelf
from pharos.core.engine.probe import FetchFault, Page
from pharos.core.fleet.backend import BackendSpec
from tests.fakes.replayed import Replayed

SPEC = BackendSpec("a", "http://a")


def page(body: bytes, status: int | None = 200, fault: FetchFault | None = None) -> Page:
    return Page(status=status, body=body, headers={}, fault=fault, sent_at=0.0)


def test_the_last_good_page_of_a_wanted_path_is_kept() -> None:
    shelf = Shelf(["/api/tags"])
    assert shelf.last("a", "/api/tags") is None
    shelf.put(SPEC, "/api/tags", page(b"one"))
    shelf.put(SPEC, "/metrics", page(b"none of it"))
    shelf.put(SPEC, "/api/tags", page(b"oops", 500))
    shelf.put(SPEC, "/api/tags", page(b"", None, FetchFault.TIMEOUT))
    assert shelf.last("a", "/api/tags") == b"one"
    assert shelf.last("b", "/api/tags") is None
    assert shelf.last("a", "/metrics") is None
    shelf.put(SPEC, "/api/tags", page(b"two"))
    assert shelf.last("a", "/api/tags") == b"two"


def test_a_page_that_says_the_same_is_the_same_object() -> None:
    shelf = Shelf(["/api/tags"])
    shelf.put(SPEC, "/api/tags", page(bytes([1, 2, 3])))
    first = shelf.last("a", "/api/tags")
    shelf.put(SPEC, "/api/tags", page(bytes([1, 2, 3])))
    assert shelf.last("a", "/api/tags") is first


def test_pages_of_backends_that_left_are_let_go() -> None:
    shelf = Shelf(["/api/tags"])
    for name in ("a", "b"):
        shelf.put(BackendSpec(name, "http://x"), "/api/tags", page(b"x"))
    shelf.keep(["b"])
    assert (shelf.last("a", "/api/tags"), shelf.last("b", "/api/tags")) == (None, b"x")


async def test_the_fetcher_tells_of_each_page_of_a_feed() -> None:
    told: list[tuple[Any, ...]] = []
    async with Replayed("ollama", "0.17.4", "idle") as engine, new_session() as session:
        spec = BackendSpec("a", engine.url)
        fetcher = Fetcher(session, on_page=lambda *arguments: told.append(arguments))
        got = await fetcher.ask(spec, "/api/tags", 5.0)
        assert told == [(spec, "/api/tags", got)]
        assert got.status == 200
