import json

import pytest

from pharos.proxy import errors
from pharos.proxy.errors import ClientFault, EngineFault, PharosFault, render, shape_for, shown


@pytest.mark.parametrize(
    ("path", "headers", "shape"),
    [
        ("/v1/chat/completions", {}, "openai"),
        ("/v1/messages", {}, "anthropic"),
        ("/v1/messages/count_tokens?x=1", {}, "anthropic"),
        ("/v1/messagesque", {}, "openai"),
        ("/api/chat", {}, "ollama"),
        ("/apifoo", {}, "openai"),
        ("/v1/models", {}, "openai"),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/models/x", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/chat/completions", {"anthropic-version": "2023-06-01"}, "openai"),
        ("/", {}, "openai"),
    ],
)
def test_the_path_tells_the_shape(path: str, headers: dict[str, str], shape: str) -> None:
    assert shape_for(path, headers) == shape


def test_openai_clients_read_a_code_and_a_type() -> None:
    assert "these have, which never told their models: a, b." in errors.model_not_found("m", ("a", "b")).message
    assert json.loads(render(errors.model_not_found("gpt-9"), "openai")) == {
        "error": {
            "message": "The model `gpt-9` does not exist here: see GET /v1/models.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_ollama_clients_read_one_text() -> None:
    assert json.loads(render(errors.unavailable("No backend is up.", 3), "ollama")) == {"error": "No backend is up."}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (errors.invalid_key(), "authentication_error"),
        (errors.missing_key(), "authentication_error"),
        (errors.admin_only("/status"), "permission_error"),
        (errors.model_not_found("m"), "not_found_error"),
        (errors.body_too_large(10), "request_too_large"),
        (errors.rate_limited("full", 2), "rate_limit_error"),
        (errors.unavailable("down", None), "overloaded_error"),
        (errors.internal_error(), "api_error"),
        (errors.engine_failed("gone"), "api_error"),
        (errors.invalid_value("stream", "no"), "invalid_request_error"),
        (errors.unknown_route("GET", "/x"), "not_found_error"),
    ],
)
def test_anthropic_clients_read_their_own_types(fault: errors.PharosError, kind: str) -> None:
    body = json.loads(render(fault, "anthropic"))
    assert body["type"] == "error"
    assert body["error"] == {"type": kind, "message": fault.message}


def test_the_exception_says_whose_fault_it_is() -> None:
    assert isinstance(errors.invalid_json("x"), ClientFault)
    assert isinstance(errors.missing_parameter("model"), ClientFault)
    assert isinstance(errors.engine_failed("x"), EngineFault)
    assert isinstance(errors.rate_limited("x", 1), PharosFault)
    assert errors.rate_limited("x", 1).type == "rate_limit_error"
    assert errors.unavailable("x", 7).retry_after_s == 7
    assert errors.engine_failed("x").type == "server_error"
    assert PharosFault(500, "c", "m", type="own").type == "own"
    assert repr(errors.invalid_key()) == "<ClientFault 401 invalid_api_key>"


def test_text_of_a_client_is_cut_and_made_printable() -> None:
    assert shown("a\r\nX: b\x00") == "a��X: b�"
    assert shown("\ud83d") == "�"
    assert shown("x" * 500) == "x" * 100 + "…"


@pytest.mark.parametrize("shape", ["openai", "anthropic", "ollama"])
def test_a_message_with_an_unpaired_surrogate_is_written(shape: errors.Shape) -> None:
    assert b"?" in render(ClientFault(400, "c", "a\ud83d"), shape)
