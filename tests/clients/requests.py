"""The recorded requests of clients, and sending one of them through a whole proxy."""

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.fakes.captures import TESTDATA

CLIENTS = TESTDATA / "clients"
KEY_MARK, WRONG_MARK, UNKNOWN = "<key>", "<wrong key>", "no-such-model"
KEY, WRONG_KEY = "pk-replayed", "pk-not-one"


class Request(msgspec.Struct, frozen=True):
    """One recorded request; `step` is what the client was doing."""

    step: str
    method: str
    path: str
    headers: list[str]
    body: str

    @property
    def route(self) -> str:
        return self.path.partition("?")[0]

    @property
    def asked(self) -> dict[str, Any]:
        """The body; {} when there was none."""
        told: dict[str, Any] = json.loads(self.body) if self.body else {}
        return told

    @property
    def model(self) -> str:
        """That it names in its body, else in its path."""
        named = self.asked.get("model") or self.asked.get("name") or ""
        prefix = "/v1/models/"
        return str(named or (self.route.removeprefix(prefix) if self.route.startswith(prefix) else ""))

    @property
    def streams(self) -> bool:
        """Whether it asks for a stream."""
        return bool(self.asked.get("stream", self.route in ("/api/chat", "/api/generate")))

    @property
    def has_key(self) -> bool:
        return any(KEY_MARK in line for line in self.headers)

    @property
    def has_wrong_key(self) -> bool:
        return any(WRONG_MARK in line for line in self.headers)

    def raw(self) -> bytes:
        """As it arrived at Pharos, with keys in place."""
        head = "\r\n".join([f"{self.method} {self.path} HTTP/1.1", *self.headers, "", ""])
        return head.replace(KEY_MARK, KEY).replace(WRONG_MARK, WRONG_KEY).encode() + self.body.encode()

    def other_way(self) -> "Request":
        """The same, streamed instead of whole or whole instead of streamed."""
        asked = {name: value for name, value in self.asked.items() if name != "stream_options"}
        body = json.dumps({**asked, "stream": not self.streams})
        headers = [
            f"content-length: {len(body.encode())}" if line.startswith("content-length:") else line
            for line in self.headers
        ]
        return msgspec.structs.replace(self, headers=headers, body=body)


def files() -> list[Path]:
    """Every recorded request, by client, version and order."""
    return sorted(CLIENTS.glob("*/*/*.json"))


def read(path: Path) -> Request:
    return msgspec.json.decode(path.read_bytes(), type=Request)


def name_of(path: Path) -> str:
    return str(path.relative_to(CLIENTS).with_suffix(""))
