"""What Pharos shows an engine that it reads, and whom it believes: keys, headers, certificates, and what follows."""

import json
from pathlib import Path

import aiohttp
import pytest

from pharos.config.credentials import Credentials
from pharos.config.schema import Credential
from pharos.control import inspect
from pharos.control.fetch import Fetcher
from pharos.control.inspect import Contact
from pharos.core.engine.probe import Feed, FeedKind, FetchFault
from pharos.core.fleet import BackendSpec
from pharos.core.signals import BACKEND, Signal
from tests.fakes.gated import Gated
from tests.fakes.http import HttpDouble, Reply
from tests.fakes.tls import make_authority

GATED = Credential(api_key_env="KEY")
KEYS = Credentials({"gpu": GATED, "old": Credential(api_key_env="OLD")}, {"KEY": "sk-gpu", "OLD": "sk-old"})


async def test_a_request_to_an_engine_carries_its_headers_and_its_credential(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        spec = BackendSpec("e", engine.url, credential="gpu", headers=(("X-Team", "a"), ("user-agent", "gateway")))
        fetcher = Fetcher(session, credentials=KEYS)
        await fetcher.ask(spec, "/props", 5.0)
        await fetcher.ask(BackendSpec("f", engine.url), "/props", 5.0)
        first, second = (request.headers for request in engine.seen)
        assert (first["authorization"], first["x-team"], first["user-agent"]) == ("Bearer sk-gpu", "a", "gateway")
        assert ("authorization" in second, "x-team" in second, second["user-agent"]) == (False, False, "pharos")


async def test_a_question_about_one_model_is_posted_with_its_name(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as engine:
        engine.every = Reply(200, b"{}")
        feed = Feed(FeedKind.POST, "/api/show", per_model=True)
        spec = BackendSpec("e", engine.url, credential="gpu")
        page = await Fetcher(session, credentials=KEYS).ask(spec, feed.ask("qwen 3:4b"), 5.0)
        (seen,) = engine.seen
        assert (page.status, seen.method, seen.path) == (200, "POST", "/api/show")
        assert (seen.json(), seen.headers["content-type"]) == ({"model": "qwen 3:4b"}, "application/json")
        assert seen.headers["authorization"] == "Bearer sk-gpu"


async def test_the_name_of_a_model_in_a_path_reaches_the_engine_as_it_was_written(
    session: aiohttp.ClientSession,
) -> None:
    async with HttpDouble() as engine:
        feed = Feed(FeedKind.GET, "/props?model={model}", per_model=True)
        await Fetcher(session).ask(BackendSpec("e", engine.url + "/base"), feed.ask("org/qwen+3:4b ü"), 5.0)
        assert engine.paths == ["/base/props?model=org%2Fqwen%2B3%3A4b%20%C3%BC"]


async def test_a_page_tells_how_long_it_took(session: aiohttp.ClientSession) -> None:
    times = iter([10.0, 10.5, 20.0, 23.0])
    async with HttpDouble() as engine:
        fetcher = Fetcher(session, clock=lambda: next(times))
        spec = BackendSpec("e", engine.url)
        page = await fetcher.ask(spec, "/a", 5.0)
        assert (page.sent_at, page.took_s) == (10.0, 0.5)
        engine.kill()
        page = await fetcher.ask(spec, "/a", 5.0)
        assert (page.fault, page.sent_at, page.took_s) == (FetchFault.REFUSED, 20.0, 3.0)


async def test_a_redirect_is_not_followed_with_the_key(session: aiohttp.ClientSession) -> None:
    async with HttpDouble() as elsewhere, HttpDouble() as engine:
        engine.every = Reply(302, b"", {"Location": f"{elsewhere.url}/login"})
        page = await Fetcher(session, credentials=KEYS).ask(BackendSpec("e", engine.url, credential="gpu"), "/", 5.0)
        assert page.status == 302
        assert elsewhere.seen == []


async def test_an_engine_with_a_certificate_of_a_private_authority_is_read(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    ours, theirs = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    async with HttpDouble(tls=ours.engine()) as engine:
        engine.every = Reply(200, b"ok")
        fetcher = Fetcher(session)
        right = BackendSpec("a", engine.url, ca_file=str(ours.file))
        assert (await fetcher.ask(right, "/", 5.0)).body == b"ok"
        for ca_file in (str(theirs.file), str(tmp_path / "missing"), None):
            page = await fetcher.ask(BackendSpec("b", engine.url, ca_file=ca_file), "/", 5.0)
            assert (page.status, page.fault) == (None, FetchFault.CERTIFICATE), ca_file
        assert len(engine.seen) == 1, "no connection that was checked against other certificates is used"


# --- what a visit makes of it


async def visit(session: aiohttp.ClientSession, engine: HttpDouble, **described: str) -> inspect.Inspection:
    spec = BackendSpec("e", engine.url, **described)  # type: ignore[arg-type]
    return await inspect.resolve(Fetcher(session, credentials=KEYS), spec, budget_s=20.0, get_timeout_s=20.0)


async def test_a_locked_engine_is_read_in_full_with_its_key(session: aiohttp.ClientSession) -> None:
    async with Gated() as engine:
        found = await visit(session, engine, credential="gpu")
        assert found.detection.kind == "llamacpp"
        assert found.round is not None
        assert (Signal.MODELS, BACKEND) in found.round.readings
        assert (Signal.RUNNING, BACKEND) in found.round.readings


@pytest.mark.parametrize("kind", [{}, {"kind": "llamacpp"}], ids=["detected", "configured"])
@pytest.mark.parametrize(
    ("described", "told"),
    [
        ({}, "it asks for a key: set `credential` of this backend"),
        ({"credential": "old"}, "it refuses old, the `credential` of this backend"),
        ({"credential": "nobody"}, "there is no credential nobody"),
    ],
)
async def test_a_locked_engine_leads_to_the_setting_that_opens_it(
    session: aiohttp.ClientSession, described: dict[str, str], kind: dict[str, str], told: str
) -> None:
    async with Gated() as engine:
        found = await visit(session, engine, **described, **kind)
        assert (found.contact, found.plan) == (Contact.ANSWERED, None)
        assert told in found.why
        assert "sk-" not in found.why


async def test_a_certificate_that_is_not_trusted_is_told_with_what_is_wrong_with_the_file(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    async with HttpDouble(tls=make_authority(tmp_path, "ours").engine()) as engine:
        found = await visit(session, engine, ca_file=missing)
        assert found.contact is Contact.UNREACHABLE
        assert found.why.startswith("certificate not trusted; is the name in its URL")
        assert found.why.endswith(f"; ca_file {missing} cannot be read (No such file or directory)")
        plain = await visit(session, engine)
        assert plain.why.startswith("certificate not trusted; ")
        assert json.dumps(plain.why).count(";") == 1
