from pathlib import Path

import pytest

from pharos.core.engine.missing import is_route_missing, is_surely_missing

STREAMS = "streams"
TESTDATA = Path(__file__).parents[3] / "testdata"


def captured(name: str) -> list[Path]:
    return sorted(TESTDATA.rglob(f"{STREAMS}/{name}.response"))


@pytest.mark.parametrize("path", captured("err_unknown_route"), ids=str)
def test_each_engine_s_answer_on_an_unknown_route_is_one(path: Path) -> None:
    assert is_route_missing(404, path.read_bytes())


@pytest.mark.parametrize("path", [p for p in captured("err*_unknown_model*") if p.stat().st_size < 1000], ids=str)
def test_no_engine_s_answer_on_an_unknown_model_is_one(path: Path) -> None:
    assert not is_route_missing(404, path.read_bytes())


def test_there_are_captures_of_both() -> None:
    assert len(captured("err_unknown_route")) >= 4
    assert len(captured("err_unknown_model")) >= 4


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found\n",
        b"Not Found",
        b"",
        b"<html>404</html>",
        b'{"detail":"Not Found"}',
        b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}',
        b'{"error": "Not Found"}',
        b'["Not Found"]',
    ],
)
def test_a_404_that_speaks_of_no_model_is_about_the_route(body: bytes) -> None:
    assert is_route_missing(404, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"model \'m\' not found"}}',
        b'{"error":"model \'m\' not found"}',
        b'{"error":{"message":null}}',
        b'{"error":null}',
        b'{"detail":[{"loc":["body"]}]}',
        b"{}",
    ],
)
def test_a_404_with_an_error_object_of_other_words_is_not(body: bytes) -> None:
    assert not is_route_missing(404, body)


@pytest.mark.parametrize("status", [405, 501])
def test_a_missing_method_or_ability_is_about_the_route_whatever_is_said(status: int) -> None:
    assert is_route_missing(status, b'{"error":{"message":"This server does not support embeddings."}}')


@pytest.mark.parametrize("status", [200, 400, 401, 403, 500, 503])
def test_no_other_status_is(status: int) -> None:
    assert not is_route_missing(status, b"Not Found")


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found\n",
        b"Not Found",
        b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}',
    ],
)
def test_an_engine_s_own_words_for_a_missing_route_are_sure(body: bytes) -> None:
    assert is_surely_missing(404, body)
    assert not is_surely_missing(501, body)


@pytest.mark.parametrize(
    "body", [b"", b"LoRA adapter not found", b"\xff", b'{"detail":"Not Found"}', b"{}", b'{"error":{"message":null}}']
)
def test_what_may_be_about_one_request_is_not_sure(body: bytes) -> None:
    assert not is_surely_missing(404, body)
