"""How backends are reached, as configured: credentials, headers, certificates, logs."""

import pytest

from pharos.config.access import KEYS, OURS
from pharos.config.load import backend_specs, parse
from pharos.config.problems import ConfigError
from pharos.config.schema import Credential
from pharos.core.engine import recipes

SECRET = "sk-very-secret"
TWO = "credentials: {gpu: {api_key_file: /k}, other: {api_key_env: K}}\n"


def problem(text: str) -> str:
    """The one problem of a configuration, as it is told."""
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    assert SECRET not in str(caught.value)
    (found,) = caught.value.problems
    return str(found)


def test_identity_and_log_reach_the_fleet_without_any_secret() -> None:
    config = parse(
        TWO + "backends:\n"
        "  - {url: https://a, credential: gpu, ca_file: /ca.pem, headers: {X-Team: a, X-Trace: 5}, logs: docker://vllm}\n"
        "  - {url: http://b, credential: other, logs: file:///var/log/b c.log}\n"
        "  - {url: http://c}\n",
        {},
    )
    first, second, third = backend_specs(config)
    assert (first.credential, first.ca_file, first.logs) == ("gpu", "/ca.pem", "docker://vllm")
    assert first.headers == (("X-Team", "a"), ("X-Trace", "5"))
    assert (second.credential, second.logs) == ("other", "file:///var/log/b c.log")
    assert (third.credential, third.ca_file, third.headers, third.logs) == (None, None, (), None)
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("kind", recipes.RECIPES)
def test_every_kind_that_has_a_recipe_can_be_named(kind: str) -> None:
    (spec,) = backend_specs(parse(f"backends: [{{url: http://a, kind: {kind}}}]", {}))
    assert spec.kind == kind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("credentials: {gpu: {}}", "line 1, credentials.gpu: names no key: write api_key_file"),
        ("credentials: {gpu: {api_key_file: /k, api_key_env: K}}", "has api_key_file and api_key_env: keep one"),
        ("credentials: {gpu: {api_key_file: ''}}", "credentials.gpu.api_key_file: is empty"),
        ("credentials: {gpu: {api_key_file: /k, header: X Key}}", "credentials.gpu.header: is no name of a header"),
        ("credentials: {gpu: {api_key_file: /k, header: ''}}", "credentials.gpu.header: is no name of a header"),
        ("credentials: {gpu: {api_key_file: /k, header: Host}}", "Host is a header that Pharos sets itself"),
        ("credentials: {gpu: {api_key_env: PHAROS_GPU}}", "that begin with PHAROS_ are settings"),
        ("credentials: {gpu: {api_key: x}}", "credentials.gpu.api_key: no such field; did you mean api_key_"),
    ],
)
def test_a_credential_that_cannot_be_used_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"credentials: {SECRET}",
        f"credentials: {{gpu: {SECRET}}}",
        f"credentials: {{gpu: {{api_key_env: {SECRET}}}}}",
        f"{TWO}backends: [{{url: https://a, credential: {SECRET}}}]",
        f"backends: [{{url: https://a, credential: {SECRET}}}]",
        f"backends: [{{url: https://a, headers: {SECRET}}}]",
        f"backends: [{{url: https://a, headers: {{Authorization: Bearer {SECRET}}}}}]",
        f'backends: [{{url: https://a, headers: {{X-A: "{SECRET}\\n"}}}}]',
    ],
)
def test_a_key_written_in_the_wrong_place_is_refused_and_never_repeated(text: str) -> None:
    assert problem(text)


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        ("credential: gpo", "backends[0].credential: no such credential; did you mean gpu?"),
        ("credential: zzz", "backends[0].credential: no such credential; there are gpu, other"),
        ("headers: {Content-Type: text/plain}", "headers.Content-Type: is a header that Pharos sets itself: remove it"),
        ("headers: {X-Api-Key: a}", "headers.X-Api-Key: holds a key, which never belongs here: name a `credential`"),
        ("headers: {CF-Access-Client-Secret: a}", "holds a key"),
        ("headers: {'X A': a}", "headers.X A: is no name of a header"),
        ("headers: {'X-A:': a}", "is no name of a header"),
        ("headers: {X-A: ' a'}", "headers.X-A: begins or ends with a blank"),
        ("headers: {X-A: ä}", "has characters that no header can carry"),
        ('headers: {X-A: "a\\r\\nX-B: b"}', "has characters that no header can carry"),
        ("headers: {X-A: a, x-a: b}", "headers.x-a: X-A sets this header already"),
        ("ca_file: ''", "backends[0].ca_file: is empty"),
        ("logs: /var/log/x", "backends[0].logs: write file:///var/log/x for a file"),
        ("logs: file://log", "with three slashes"),
        ("logs: file:///", "with three slashes"),
        ("logs: vllm", "'vllm' is no place of a log: write docker://NAME or file:///PATH"),
        ("logs: dokcer://vllm", "did you mean docker://?"),
        ("logs: docker://", "'' is no name of a container"),
        ("logs: docker://a/b", "'a/b' is no name of a container"),
        ('logs: "docker://a\\n"', "has characters that no place of a log has"),
        ("logs: file:///a%00b", "has characters that no place of a log has"),
        ("logs: [a]", "expected docker://NAME or file:///PATH, got a list"),
    ],
)
def test_a_backend_that_cannot_be_reached_so_is_refused(backend: str, told: str) -> None:
    assert told in problem(f"{TWO}backends: [{{url: https://a, {backend}}}]")


def test_a_credential_may_be_given_by_the_environment() -> None:
    environ = {"PHAROS_CREDENTIALS": "{gpu: {api_key_file: /k, header: X-Gate}}"}
    config = parse("", environ)
    assert config.credentials == {"gpu": Credential(api_key_file="/k", header="X-Gate")}
    with pytest.raises(ConfigError) as caught:
        parse("", {"PHAROS_CREDENTIALS": f"{{gpu: {SECRET}}}"})
    assert SECRET not in str(caught.value)


def test_without_any_credential_the_place_for_them_is_told() -> None:
    assert "add it under `credentials`" in problem("backends: [{url: https://a, credential: gpu}]")


def test_a_header_of_the_credential_is_not_set_a_second_time() -> None:
    text = "credentials: {gpu: {api_key_file: /k, header: X-Gate}}\n"
    told = problem(text + "backends: [{url: https://a, credential: gpu, headers: {x-gate: a}}]")
    assert "headers.x-gate: the credential gpu sets this header already" in told


def test_certificates_for_an_address_without_tls_are_refused() -> None:
    assert "ca_file: has no effect on http://" in problem("backends: [{url: http://a, ca_file: /ca.pem}]")


@pytest.mark.parametrize("name", sorted(OURS | KEYS))
def test_no_setting_changes_what_pharos_must_say_itself_or_holds_a_key(name: str) -> None:
    assert f"headers.{name.title()}: " in problem(f"backends: [{{url: https://a, headers: {{{name.title()}: a}}}}]")
