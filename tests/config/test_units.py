import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.config import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("5s", 5.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        (" 2d ", 172800.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, expected: float) -> None:
    assert units.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("30", "30s"),
        ("2.5", "2.5s"),
        ("", "like 5s"),
        ("-5s", "like 5s"),
        ("5 s", "like 5s"),
        ("5sec", "like 5s"),
        ("s", "like 5s"),
        ("1h30", "like 5s"),
        ("99999999h", "write 0"),
        ("9" * 400 + "s", "write 0"),
        ("\u0665s", "like 5s"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        units.seconds(text)


@given(st.integers(min_value=0, max_value=10**10))
def test_a_shown_duration_reads_back_as_itself(milliseconds: int) -> None:
    assert round(units.seconds(units.show_seconds(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("65536", 65536),
        ("32MiB", 32 * 1024**2),
        ("64 KiB", 65536),
        ("1.5GB", 1_500_000_000),
        ("1B", 1),
        ("2TiB", 2 * 1024**4),
        ("1kB", 1000),
    ],
)
def test_a_size_is_read_in_bytes(text: str, expected: int) -> None:
    assert units.size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("32mib", "write 32MiB"),
        ("32MIB", "write 32MiB"),
        ("5M", "write 5MiB"),
        ("many", "like 32MiB"),
        ("", "like 32MiB"),
        ("-1", "like 32MiB"),
        ("9" * 30, "larger than any memory"),
        ("5000000TiB", "larger than any memory"),
    ],
)
def test_what_is_no_size_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        units.size_bytes(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_shown_size_reads_back_as_itself(count: int) -> None:
    assert units.size_bytes(units.show_bytes(count)) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8090", (None, 8090)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:8090", ("::1", 8090)),
        ("0:8090", ("0", 8090)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, expected: tuple[str | None, int]) -> None:
    assert units.split_address(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("8090", "write :8090"),
        ("http://0.0.0.0:8090", "is a URL"),
        ("localhost", "like :8090"),
        ("::1:8090", "like :8090"),
        (":70000", "at most 65535"),
        ("[zz]:1", "like :8090"),
        ("[1::2::3]:1", "no IPv6 address"),
        ("a b:1", "like :8090"),
        ("", "like :8090"),
    ],
)
def test_what_is_no_address_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        units.split_address(text)


@pytest.mark.parametrize(
    ("text", "expected", "name"),
    [
        ("http://gpu-box:8080", "http://gpu-box:8080", "gpu-box:8080"),
        ("http://gpu-box/", "http://gpu-box", "gpu-box:80"),
        ("https://gpu-box/llm/", "https://gpu-box/llm", "gpu-box:443"),
        ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_url_loses_its_last_slash_and_names_the_backend(text: str, expected: str, name: str) -> None:
    assert units.base_url(text) == expected
    assert units.default_name(expected) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu-box:8080", "write http://gpu-box:8080"),
        ("", "write http://host:port"),
        ("ftp://gpu-box", "not spoken"),
        ("http://", "names no host"),
        ("http://:80", "names no host"),
        ("http://gpu-box:99999", "is no URL"),
        ("http://gpu-box:x", "is no URL"),
        ("http://[::1", "is no URL"),
        ("http://gpu box", "has a blank"),
        ("http://gpu\x00", "has a blank"),
        ("http://gpu?x=1", "no . or # part"),
        ("http://gpu?", "no . or # part"),
        ("http://gpu#x", "no . or # part"),
        ("http://gpu:80/v1", "without /v1: http://gpu:80$"),
        ("http://gpu:80/v1/", "without /v1: http://gpu:80$"),
    ],
)
def test_what_is_no_base_url_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        units.base_url(text)


def test_a_password_in_a_url_is_refused_and_never_repeated() -> None:
    with pytest.raises(ValueError, match="user name or password") as caught:
        units.base_url("http://me:s3cret@gpu box:99999")
    assert "s3cret" not in str(caught.value)
