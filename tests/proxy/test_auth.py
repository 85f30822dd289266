import hashlib
from collections.abc import Mapping

import pytest
from multidict import CIMultiDict

from pharos.proxy.auth import ANONYMOUS, Key, Keyring, presented
from pharos.proxy.errors import ClientFault

SECRET = "sk-very-secret"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()
ALICE = Key("alice", weight=3)
RING = Keyring([(HASH.upper(), ALICE), (hashlib.sha256("sché".encode()).hexdigest(), Key("bob"))])


def headers(*pairs: tuple[str, str]) -> Mapping[str, str]:
    return CIMultiDict(pairs)


@pytest.mark.parametrize(
    "given",
    [
        headers(("authorization", f"Bearer {SECRET}")),
        headers(("AUTHORIZATION", f"bearer   {SECRET} ")),
        headers(("X-Api-Key", SECRET)),
        headers(("Api-Key", SECRET)),
        headers(("Authorization", "Bearer "), ("x-api-key", SECRET)),
        headers(("Authorization", "Basic abc"), ("x-api-key", SECRET)),
        headers(("x-api-key", ""), ("api-key", SECRET)),
        headers(("Authorization", f"Bearer {SECRET}"), ("x-api-key", "other")),
    ],
)
def test_a_key_is_found_in_the_first_place_that_holds_one(given: Mapping[str, str]) -> None:
    assert RING.find(given) is ALICE
    assert RING.require(given) is ALICE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (headers(), "No API key"),
        (headers(("Authorization", "Basic abc")), "No API key"),
        (headers(("Authorization", "Bearer wrong")), "not known"),
        (headers(("Authorization", "Bearer wrong"), ("x-api-key", SECRET)), "not known"),
        (headers(("Authorization", f"Bearer {HASH}")), "not known"),
        (headers(("Authorization", "Bearer \udcff\udc00")), "not known"),
    ],
)
def test_a_missing_or_unknown_key_is_refused_without_being_echoed(given: Mapping[str, str], words: str) -> None:
    assert RING.find(given) is None
    with pytest.raises(ClientFault, match=words) as caught:
        RING.require(given)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert "wrong" not in caught.value.message


def test_a_key_beyond_ascii_is_hashed_as_the_bytes_that_came() -> None:
    found = RING.find(headers(("api-key", "sché")))
    assert found is not None
    assert found.name == "bob"
    assert RING.find(headers(("api-key", "sché".encode("latin-1").decode("utf-8", "surrogateescape")))) is None


def test_without_keys_everyone_is_one_anonymous_client() -> None:
    ring = Keyring()
    assert ring.is_open
    assert ring.find(headers()) is ANONYMOUS
    assert ring.require(headers(("x-api-key", "anything"))) is ANONYMOUS
    assert not RING.is_open


def test_nothing_shows_a_secret_or_its_hash() -> None:
    for text in (repr(RING), repr(ALICE), str(RING)):
        assert SECRET not in text
        assert HASH not in text.lower()


def test_models_are_allowed_by_name_or_pattern() -> None:
    key = Key("k", models=("llama-*", "qwen2.5:3b"))
    assert key.allows("llama-8b")
    assert key.allows("qwen2.5:3b")
    assert not key.allows("qwen2.5:7b")
    assert not key.allows("Llama-8b")
    assert not key.allows("x-llama-8b")
    assert Key("k").allows("anything")


def test_the_bearer_scheme_needs_a_space() -> None:
    assert presented(headers(("Authorization", f"Bearer{SECRET}"))) is None
