"""TLS between peers: each side shows a certificate of one authority, read again when its files change.

Names in certificates are not compared: peers are called by addresses that change with each restart, and the authority
is theirs alone. Forbidden here: sockets.
"""

import errno
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pharos.clock import Clock
from pharos.core.fleet.events import Event

LOOK_S: Final = 10.0
_Stamps = tuple[tuple[int, int, int], ...]


class Certificates:
    """Both sides' contexts."""

    def __init__(
        self, cert_file: str, key_file: str, ca_file: str, *, clock: Clock, on_event: Callable[[Event], None]
    ) -> None:
        """Raises `OSError` (`ssl.SSLError` is one) for files that cannot be used."""
        self._files = (cert_file, key_file, ca_file)
        self._clock = clock
        self._on_event = on_event
        self._look_at = clock() + LOOK_S
        self._stamps = self._stamp()
        self._server = self._context(ssl.PROTOCOL_TLS_SERVER)
        self._client = self._context(ssl.PROTOCOL_TLS_CLIENT)

    def __repr__(self) -> str:
        return "<Certificates>"

    def server(self) -> ssl.SSLContext:
        """What the listener speaks TLS with; a new certificate comes into the same context."""
        return self._server

    def client(self) -> ssl.SSLContext:
        """What calls speak TLS with; looks at the files now and then."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        return self._client

    def _look(self) -> None:
        try:
            stamps = self._stamp()
            if stamps == self._stamps:
                return
            self._stamps = stamps
            self._client = self._context(ssl.PROTOCOL_TLS_CLIENT)
            self._server.load_cert_chain(self._files[0], self._files[1])
            self._server.load_verify_locations(cafile=self._files[2])
        except OSError as fault:
            self._on_event(Event("", "", "", "warning", f"peers.tls cannot be read again ({fault}): used as before"))
        else:
            self._on_event(Event("", "", "", "info", "peers.tls has changed, and is used as it is now"))

    def _context(self, kind: int) -> ssl.SSLContext:
        cert_file, key_file, ca_file = self._files
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(cert_file, key_file)
        context.load_verify_locations(cafile=ca_file)
        return context

    def _stamp(self) -> _Stamps:
        return tuple(map(_stamp, self._files))


def _stamp(file: str) -> tuple[int, int, int]:
    """What tells one content of a file from another. Raises `OSError`."""
    found = Path(file).stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its other end
        raise OSError(errno.EINVAL, f"{file} is no regular file")
    # The time of a change of any kind also tells that somebody gave the right to read it.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino
