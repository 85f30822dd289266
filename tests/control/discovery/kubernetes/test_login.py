"""Ways into a cluster, and what is said where there is none."""

import shutil
from pathlib import Path

import pytest

from pharos.control.discovery.kubernetes.login import LoginError, mounted
from tests.fakes.tls import make_authority

INSIDE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    made = make_authority(tmp_path, "cluster")
    where = tmp_path / "account"
    where.mkdir()
    shutil.copy(made.file, where / "ca.crt")
    (where / "token").write_text("one\n")
    (where / "namespace").write_text("models")
    return where


def test_outside_a_cluster_nothing_is_mounted(account: Path) -> None:
    assert mounted({}, account) is None


async def test_the_mounted_account_is_the_way_in_and_its_token_is_read_for_each_request(account: Path) -> None:
    login = mounted(INSIDE, account)
    assert login is not None
    assert (login.url, login.namespace) == ("https://10.96.0.1:6443", "models")
    assert await login.headers() == {"Authorization": "Bearer one"}
    (account / "token").write_text("two")
    assert await login.headers() == {"Authorization": "Bearer two"}


def test_a_server_of_ipv6_stands_in_brackets(account: Path) -> None:
    login = mounted({"KUBERNETES_SERVICE_HOST": "fd00::1"}, account)
    assert login is not None
    assert login.url == "https://[fd00::1]:443"


def test_a_pod_without_a_token_is_told_what_to_do(account: Path) -> None:
    (account / "token").unlink()
    with pytest.raises(LoginError, match=r"set automountServiceAccountToken, or turn discovery.kubernetes off"):
        mounted(INSIDE, account)


def test_certificates_that_cannot_be_read_are_told(account: Path) -> None:
    (account / "ca.crt").write_text("no certificate")
    with pytest.raises(LoginError, match="cannot be read"):
        mounted(INSIDE, account)


async def test_a_token_that_is_gone_is_told_and_not_sent_as_nothing(account: Path) -> None:
    login = mounted(INSIDE, account)
    assert login is not None
    (account / "token").unlink()
    with pytest.raises(LoginError, match="token cannot be read"):
        await login.headers()
