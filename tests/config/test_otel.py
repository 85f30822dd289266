import pytest

from pharos.config.otel import Collector, collector

URL = "http://collector:4318"


def told(**variables: str) -> Collector | None:
    return collector({f"OTEL_{name}": value for name, value in variables.items()})


def test_without_an_endpoint_no_spans_are_sent() -> None:
    assert told() is None
    assert told(SERVICE_NAME="x", EXPORTER_OTLP_ENDPOINT="") is None


@pytest.mark.parametrize("off", [{"SDK_DISABLED": "true"}, {"TRACES_EXPORTER": "none"}])
def test_what_is_switched_off_is_off(off: dict[str, str]) -> None:
    assert told(EXPORTER_OTLP_ENDPOINT=URL, **off) is None


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"EXPORTER_OTLP_ENDPOINT": URL}, URL + "/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": URL + "/"}, URL + "/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": URL, "EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"}, "https://t/x"),
    ],
)
def test_the_endpoint_of_traces_is_whole_and_the_common_one_gets_a_path(variables: dict[str, str], url: str) -> None:
    found = told(**variables)
    assert found is not None
    assert (found.url, found.service, found.ratio, found.headers) == (url, "pharos", 1.0, ())


def test_headers_are_pairs_that_may_be_encoded_and_are_never_shown() -> None:
    found = told(EXPORTER_OTLP_ENDPOINT="http://u:pw@c:1", EXPORTER_OTLP_HEADERS="Authorization=Bearer%20hush, x-a=1")
    assert found is not None
    assert found.headers == (("Authorization", "Bearer hush"), ("x-a", "1"))
    assert repr(found) == "<Collector http://c 1 of requests>"


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        ("parentbased_traceidratio", "0.25", 0.25), ("traceidratio", "", 1.0), ("always_off", "1", 0.0),
        ("parentbased_always_on", "0.1", 1.0),
    ],
)  # fmt: skip
def test_the_sampler_says_how_many_requests_begin_a_trace(sampler: str, argument: str, ratio: float) -> None:
    found = told(EXPORTER_OTLP_ENDPOINT=URL, TRACES_SAMPLER=sampler, TRACES_SAMPLER_ARG=argument)
    assert found is not None
    assert found.ratio == ratio


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: write http://"),
        ({"EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://x"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: write http://"),
        ({"EXPORTER_OTLP_ENDPOINT": URL, "EXPORTER_OTLP_HEADERS": "a b=c"}, "OTEL_EXPORTER_OTLP_HEADERS: write"),
        ({"EXPORTER_OTLP_ENDPOINT": URL, "EXPORTER_OTLP_HEADERS": "a=b%0d%0aX: y"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        (
            {"EXPORTER_OTLP_ENDPOINT": URL, "TRACES_SAMPLER": "traceidratio", "TRACES_SAMPLER_ARG": "half"},
            "'half' is no number from 0 to 1",
        ),
    ],
)
def test_what_cannot_be_right_is_told_with_its_variable(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        told(**variables)
