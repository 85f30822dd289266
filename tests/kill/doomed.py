"""An engine process of which each connection is served by a process of its own, which kills itself with SIGKILL.

Run as `python doomed.py FILE`: the bytes to send stand in FILE when a request comes; the port is printed. Only the
standard library.
"""

import os
import signal
import socket
import sys
from pathlib import Path


def answer(connection: socket.socket, file: Path) -> None:
    """Take one whole request, send what is to be sent, and die."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = connection.recv(65536)
        if not data:
            break
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while lengths and len(body) < lengths[0]:
        data = connection.recv(65536)
        if not data:
            break
        body += data
    connection.sendall(file.read_bytes())
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve until standard input ends."""
    file = Path(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.create_server(("127.0.0.1", 0))
    os.write(1, b"%d\n" % listener.getsockname()[1])
    if os.fork() == 0:
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(connection, file)
            connection.close()
    listener.close()
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
