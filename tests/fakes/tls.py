"""A certificate authority of a test's own, made by the `openssl` program; without it the test is skipped."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
AUTHORITY = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")


class Authority:
    """One authority, and one certificate that it gave to whoever answers on 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ca.pem"
        """What `ca_file` takes."""

    @property
    def certificate(self) -> bytes:
        return self.file.read_bytes()

    def engine(self) -> ssl.SSLContext:
        """What an engine needs to speak TLS with that certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "engine.pem", self.folder / "engine.key")
        return context


def make_authority(folder: Path, name: str, *, host: str = "IP:127.0.0.1,DNS:localhost") -> Authority:
    """Make an authority called `name` in a folder of that name; its certificate is for `host`."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl here to make certificates with")
    place = folder / name
    place.mkdir()
    (place / "for").write_text(f"subjectAltName={host}\n")

    def run(*words: str) -> None:
        subprocess.run([program, *words], cwd=place, check=True, capture_output=True, timeout=30)

    run("req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name}", "-days", "9", *AUTHORITY)
    run("req", *KEY, "-keyout", "engine.key", "-out", "engine.csr", "-subj", "/CN=engine")
    run("x509", "-req", "-in", "engine.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9",
        "-extfile", "for", "-out", "engine.pem")  # fmt: skip
    return Authority(place)
