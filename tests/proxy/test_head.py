import pytest

from pharos.proxy import head
from pharos.proxy.dial import endpoint


@pytest.mark.parametrize(
    ("url", "address", "port", "host", "path"),
    [
        ("http://gpu:8000", "gpu", 8000, b"gpu:8000", b""),
        ("https://engine.example", "engine.example", 443, b"engine.example", b""),
        ("http://[fd00::1]:8000/engines/a/", "fd00::1", 8000, b"[fd00::1]:8000", b"/engines/a"),
        ("http://user:secret@gpu", "gpu", 80, b"gpu", b""),
    ],
)
def test_an_endpoint_is_what_its_url_says(url: str, address: str, port: int, host: bytes, path: bytes) -> None:
    got = endpoint(url)
    assert (got.address, got.port, got.host, got.path) == (address, port, host, path)


@pytest.mark.parametrize("url", ["gpu:8000", "ftp://gpu", "http://"])
def test_what_is_no_url_of_an_engine_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        endpoint(url)


def test_headers_tied_to_the_client_s_leg_by_name_do_not_cross() -> None:
    sent = [
        (b"connection", b"keep-alive, X-One"),
        (b"Connection", b"x-two"),
        (b"X-One", b"first"),
        (b"x-Two", b"second"),
        (b"X-Three", b"3"),
    ]
    made = head.request_head(b"/p", b"gpu", sent, b"id")
    assert b"first" not in made
    assert b"second" not in made
    assert b"X-Three: 3\r\n" in made
    assert made.endswith(b"Content-Length: ")


def test_headers_of_the_body_cross_whatever_a_connection_header_says() -> None:
    sent = [(b"Connection", b"content-type, Content-Encoding"), (b"Content-Type", b"text/plain")]
    assert b"Content-Type: text/plain\r\n" in head.request_head(b"/p", b"gpu", sent, b"id")


@pytest.mark.parametrize(
    "name", [b"content_length", b"Transfer_Encoding", b"x_api-key", b"X-Api_Key", b"X_REQUEST_ID", b"Content_Type"]
)
def test_names_that_some_servers_take_for_ours_do_not_cross(name: bytes) -> None:
    made = head.request_head(b"/p", b"gpu", [(name, b"evil")], b"id")
    assert b"evil" not in made
    replaced = head.own([("X-Our-Key", "ours")])
    assert b"evil" not in head.request_head(b"/p", b"gpu", [(b"x_our_key", b"evil")], b"id", replaced)


@pytest.mark.parametrize(
    "name",
    [
        b"X-HTTP-Method-Override", b"X-HTTP-Method", b"X-Method-Override", b"X-Original-URL", b"X-Rewrite-URL",
        b"x_http_method_override", b"X_Original-Url",
    ],
)  # fmt: skip
def test_what_would_make_an_engine_s_server_do_another_thing_does_not_cross(name: bytes) -> None:
    assert b"DELETE" not in head.request_head(b"/p", b"gpu", [(name, b"DELETE")], b"id")


def test_a_missing_content_type_is_added_and_a_given_one_kept() -> None:
    assert head.request_head(b"/", b"h", [], b"i").count(b"Content-Type: application/json") == 1
    kept = head.request_head(b"/", b"h", [(b"content-type", b"text/plain")], b"i")
    assert kept.lower().count(b"content-type") == 1


def test_statuses_without_a_name_have_a_line() -> None:
    assert head.status_line(299) == b"HTTP/1.1 299 Unknown\r\n"
    assert head.status_line(404) == b"HTTP/1.1 404 Not Found\r\n"


@pytest.mark.parametrize(
    ("value", "coded"), [(b"gzip", True), (b"gzip, gzip", True), (b"identity", False), (b"", False)]
)
def test_only_a_real_coding_counts(value: bytes, coded: bool) -> None:  # noqa: FBT001
    assert head.is_encoded([(b"Content-Encoding", value)]) is coded


def test_many_names_tied_to_a_leg_are_gathered_once() -> None:
    sent = [(b"Connection", b",".join(b"n%d" % (row * 100 + n) for n in range(100))) for row in range(100)]
    names = head.named_by_connection([*sent, (b"connection", b"X-A , content-type")])
    assert len(names) == 10_001
    assert b"x-a" in names
    assert b"content-type" not in names
