"""Keys and certificates: where they come from, how they change, and that nothing shows them."""

import os
import ssl
from pathlib import Path

import pytest

from pharos.config.credentials import MAX_KEY_BYTES, MAX_MADE, Credentials
from pharos.config.schema import Credential
from pharos.core.fleet import BackendSpec, Event
from tests.fakes.tls import Authority, make_authority

KEY = "sk-very-secret"


class Rig:
    """Credentials over a clock that stands still, and what they said."""

    def __init__(self, environ: dict[str, str] | None = None, **named: Credential) -> None:
        self.now = 100.0
        self.events: list[Event] = []
        self.it = Credentials(named, environ, clock=lambda: self.now, on_event=self.events.append)

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events]

    def headers(self, spec: BackendSpec, *, later: float = 0.0) -> tuple[tuple[str, str], ...]:
        self.now += later
        return self.it.headers_for(spec)


def backend(**more: object) -> BackendSpec:
    return BackendSpec(name="gpu", url="https://gpu", **more)  # type: ignore[arg-type]


def put(path: Path, text: str | bytes) -> Path:
    """Give a file a new content as those who rotate secrets do: by another file in its place."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.replace(path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return put(tmp_path / "key", f"{KEY}\n")


def test_a_backend_without_credential_and_headers_shows_nothing() -> None:
    assert Rig(c=Credential(api_key_env="A")).headers(backend()) == ()


def test_a_key_goes_into_authorization_as_a_bearer_token_and_into_any_other_header_as_it_is(file: Path) -> None:
    rig = Rig(
        a=Credential(api_key_file=str(file)),
        b=Credential(api_key_file=str(file), header="authorization"),
        c=Credential(api_key_file=str(file), header="X-Api-Key"),
    )
    assert rig.headers(backend(credential="a")) == (("Authorization", f"Bearer {KEY}"),)
    assert rig.headers(backend(credential="b")) == (("authorization", f"Bearer {KEY}"),)
    assert rig.headers(backend(credential="c")) == (("X-Api-Key", KEY),)


def test_a_key_may_come_from_a_variable_and_stands_beside_the_backend_s_own_headers() -> None:
    rig = Rig({"GPU_KEY": f" {KEY}\n"}, c=Credential(api_key_env="GPU_KEY"))
    spec = backend(credential="c", headers=(("X-Team", "a"),))
    assert rig.headers(spec) == (("X-Team", "a"), ("Authorization", f"Bearer {KEY}"))
    assert rig.it.fault_of(spec) is None
    assert rig.said == []


def test_a_new_key_is_used_within_a_second_and_the_file_is_not_looked_at_more_often(file: Path) -> None:
    rig, spec = Rig(c=Credential(api_key_file=str(file))), backend(credential="c")
    first = rig.headers(spec)
    put(file, "sk-next")
    assert rig.headers(spec, later=0.9) is first
    assert rig.headers(spec, later=0.1) == (("Authorization", "Bearer sk-next"),)
    assert rig.said == ["credentials.c.api_key_file has changed, and is used as it is now"]


def test_headers_are_the_very_same_until_something_changes(file: Path) -> None:
    rig, spec = Rig(c=Credential(api_key_file=str(file))), backend(credential="c")
    first = rig.headers(spec)
    put(file, f"{KEY}\r\n")
    assert rig.headers(spec, later=5.0) is first, "another file with the same key changes nothing"
    assert rig.said == []
    other = BackendSpec(name="gpu", url="https://gpu", credential="c", headers=(("X-A", "b"),))
    assert rig.headers(other) == (("X-A", "b"), *first), "another description under the same name"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("one\ntwo\n", "has several lines"),
        ("one\rtwo", "has several lines"),
        ("sk-\x00very-secret", "no header can carry"),
        ("sk-vérysecret", "no header can carry"),
        (b"\xff\xfe", "no text"),
        ("x" * (MAX_KEY_BYTES + 1), "too long for a key"),
        (f"Bearer {KEY}", "without `Bearer`"),
    ],
)
def test_a_file_that_holds_no_single_key_is_said_once_without_its_content(
    file: Path, content: str | bytes, told: str
) -> None:
    put(file, content)
    rig, spec = Rig(c=Credential(api_key_file=str(file))), backend(credential="c")
    for _ in range(3):
        assert rig.headers(spec, later=2.0) == ()
    (said,) = rig.said
    assert said.startswith("credentials.c.api_key_file ")
    assert said.endswith(": its backends are asked without a key")
    assert told in said
    assert "secret" not in said.lower()
    fault = rig.it.fault_of(spec)
    assert fault is not None
    assert told in fault


def test_a_byte_order_mark_is_no_part_of_a_key(file: Path) -> None:
    put(file, b"\xef\xbb\xbf" + KEY.encode())
    assert Rig(c=Credential(api_key_file=str(file))).headers(backend(credential="c"))[0][1] == f"Bearer {KEY}"


def test_a_file_that_is_not_there_is_said_once_and_once_when_it_is(tmp_path: Path) -> None:
    rig, spec = Rig(c=Credential(api_key_file=str(tmp_path / "key"))), backend(credential="c")
    assert rig.headers(spec) == rig.headers(spec, later=2.0) == ()
    put(tmp_path / "key", KEY)
    assert rig.headers(spec, later=2.0) == (("Authorization", f"Bearer {KEY}"),)
    assert rig.said == [
        "credentials.c.api_key_file cannot be read (No such file or directory): its backends are asked without a key",
        "credentials.c.api_key_file can be used now",
    ]
    assert [event.level for event in rig.events] == ["warning", "info"]
    assert rig.it.fault_of(spec) is None


@pytest.mark.parametrize("content", [None, "", "a\nb"], ids=["missing", "empty", "two lines"])
def test_the_last_good_key_stays_in_use_while_its_file_is_bad(file: Path, content: str | None) -> None:
    rig, spec = Rig(c=Credential(api_key_file=str(file))), backend(credential="c")
    first = rig.headers(spec)
    if content is None:
        file.unlink()
    else:
        put(file, content)
    assert rig.headers(spec, later=2.0) is first
    assert rig.headers(spec, later=2.0) is first
    (said,) = rig.said
    assert said.endswith(": what was read before is used on")
    assert rig.it.fault_of(spec) is not None


def test_a_pipe_is_no_file_that_holds_a_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    rig = Rig(c=Credential(api_key_file=str(tmp_path / "key")))
    assert rig.headers(backend(credential="c")) == ()
    assert "is no regular file" in rig.said[0]


@pytest.mark.parametrize("environ", [{}, {"GPU_KEY": ""}])
def test_a_variable_that_is_not_set_is_said_once_and_only_if_a_backend_needs_it(environ: dict[str, str]) -> None:
    rig = Rig(environ, c=Credential(api_key_env="GPU_KEY"))
    assert rig.headers(backend()) == ()
    assert rig.said == []
    spec = backend(credential="c")
    assert rig.headers(spec) == rig.headers(spec) == ()
    assert rig.said == [
        "credentials.c.api_key_env names a variable that is not set, or empty: its backends are asked without a key"
    ]
    assert rig.it.fault_of(spec) == "credentials.c.api_key_env names a variable that is not set, or empty"


def test_a_credential_that_nobody_defined_shows_nothing_and_is_told() -> None:
    rig, spec = Rig(), backend(credential="c")
    assert rig.headers(spec) == ()
    assert rig.it.fault_of(spec) == "there is no credential c"


def test_no_representation_holds_a_key(file: Path) -> None:
    rig = Rig({"A": KEY}, c=Credential(api_key_file=str(file)), d=Credential(api_key_env="A"))
    spec = backend(credential="c")
    assert KEY in str(rig.headers(spec))
    shown = [repr(rig.it), *(repr(source) for source in rig.it._keys.values()), repr(spec)]
    assert not [text for text in shown if KEY in text]
    assert shown == [
        "<Credentials c, d>", "<Watched credentials.c.api_key_file good>", "<Fixed good>", repr(spec),
    ]  # fmt: skip
    assert repr(Credentials()) == "<Credentials none>"


def test_the_headers_of_backends_long_gone_are_not_kept_for_good(file: Path) -> None:
    rig = Rig(c=Credential(api_key_file=str(file)))
    for number in range(MAX_MADE + 1):
        rig.headers(BackendSpec(name=f"pod-{number}", url="http://x", credential="c"))
    assert len(rig.it._made) <= MAX_MADE


# --- certificates


def test_without_a_file_the_system_s_certificates_count() -> None:
    assert Rig().it.tls_for(backend()) is None


def test_a_file_of_certificates_is_read_again_when_it_changes(tmp_path: Path) -> None:
    one, two = make_authority(tmp_path, "one"), make_authority(tmp_path, "two")
    used = put(tmp_path / "ca.pem", one.certificate)
    rig, spec = Rig(), backend(ca_file=str(used))
    first = rig.it.tls_for(spec)
    assert first is not None
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [name_of(it) for it in (first,)] == ["one"]
    put(used, two.certificate)
    assert rig.it.tls_for(spec) is first
    rig.now += 1.0
    second = rig.it.tls_for(spec)
    assert second is not None
    assert name_of(second) == "two"
    assert rig.said == [f"ca_file {used} has changed, and is used as it is now"]


def test_a_file_without_certificates_trusts_nobody_and_is_said_once(tmp_path: Path) -> None:
    spec, rig = backend(ca_file=str(put(tmp_path / "ca.pem", "hello"))), Rig()
    for _ in range(2):
        context = rig.it.tls_for(spec)
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.get_ca_certs() == []
        rig.now += 2.0
    (said,) = rig.said
    assert said.endswith("holds no certificate in PEM form: no certificate of its backends is trusted")
    assert rig.it.fault_of(spec) == said.rpartition(": ")[0]


def test_the_last_good_certificates_stay_in_use_while_their_file_is_bad(tmp_path: Path, authority: Authority) -> None:
    used = put(tmp_path / "ca.pem", authority.certificate)
    rig, spec = Rig(), backend(ca_file=str(used))
    first = rig.it.tls_for(spec)
    used.unlink()
    rig.now += 2.0
    assert rig.it.tls_for(spec) is first
    assert "what was read before is used on" in rig.said[0]


def name_of(context: ssl.SSLContext) -> str:
    (certificate,) = context.get_ca_certs()
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate["subject"]  # type: ignore[assignment]
    return dict(pair for part in subject for pair in part)["commonName"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path, "test")
