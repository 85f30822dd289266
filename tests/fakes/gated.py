"""A llama.cpp that was started with `--api-key`: without the key only its health is open."""

from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.llamacpp import FakeLlamaCpp

REFUSAL = b'{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}'


class Gated(FakeLlamaCpp):
    """Answers those who present `key`."""

    key = "sk-gpu"

    async def respond(self, request: Seen, connection: Connection) -> None:
        if request.path != "/health" and request.headers.get("authorization") != f"Bearer {self.key}":
            await connection.send(Reply(401, REFUSAL, {"Content-Type": "application/json"}))
        else:
            await super().respond(request, connection)
