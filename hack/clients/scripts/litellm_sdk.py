"""The package litellm, in the three protocols that Pharos speaks."""

from importlib import metadata
from typing import Any

import litellm
import steps
from steps import KEY, LIMIT, LLAMACPP, MESSAGES, OLLAMA, TEXTS, TOOL, UNKNOWN, WAITS, WRONG_KEY, Engine, check, fails

V1 = f"{steps.BASE}/v1"
litellm.telemetry = False


def ask(model: str, base: str = V1, key: str = KEY, **more: Any) -> Any:  # noqa: ANN401 - as the package has it
    """Ask for a chat."""
    return litellm.completion(
        model=model, api_base=base, api_key=key, messages=MESSAGES, max_tokens=LIMIT, timeout=60, num_retries=0, **more
    )


def read(stream: Any) -> str:  # noqa: ANN401 - as the package has it
    """Read a stream to its end."""
    return "".join(part.choices[0].delta.content or "" for part in stream)


@steps.on_each("chat as openai/")
def chat(engine: Engine) -> None:
    """Whole, streamed and with a tool."""
    check(ask(f"openai/{engine.chat}").usage.completion_tokens == LIMIT)
    check(read(ask(f"openai/{engine.chat}", stream=True)))
    check(ask(f"openai/{engine.chat}", tools=[TOOL]).choices[0].finish_reason)


@steps.on_each("chat as anthropic/")
def anthropic(engine: Engine) -> None:
    """Whole and streamed."""
    check(ask(f"anthropic/{engine.chat}", steps.BASE).usage.completion_tokens == LIMIT)
    check(read(ask(f"anthropic/{engine.chat}", steps.BASE, stream=True)))


@steps.once("chat as ollama_chat/", needs=OLLAMA)
def ollama() -> None:
    """Whole and streamed."""
    check(ask(f"ollama_chat/{OLLAMA.chat}", steps.BASE).usage.completion_tokens == LIMIT)
    check(read(ask(f"ollama_chat/{OLLAMA.chat}", steps.BASE, stream=True)))


@steps.on_each("embeddings")
def embeddings(engine: Engine) -> None:
    """Two texts at once."""
    reply = litellm.embedding(
        model=f"openai/{engine.embed}", api_base=V1, api_key=KEY, input=TEXTS, encoding_format="float"
    )
    check(len(reply.data) == len(TEXTS))


@steps.once("asynchronous")
async def asynchronous() -> None:
    """The other function."""
    reply = await litellm.acompletion(
        model=f"openai/{LLAMACPP.chat}", api_base=V1, api_key=KEY, messages=MESSAGES, max_tokens=LIMIT, stream=True
    )
    check([part async for part in reply])


@steps.once("comments while waiting")
def waits() -> None:
    """Comments before the first event are no events, in both protocols that may have them."""
    for model, base in ((f"openai/{WAITS}", V1), (f"anthropic/{WAITS}", steps.BASE)):
        text = read(ask(model, base, stream=True))
        check(text == steps.WAITS_SAYS, text)


@steps.once("unknown model")
def unknown() -> None:
    """A model that nobody has."""
    fails(litellm.NotFoundError, lambda: ask(f"openai/{UNKNOWN}"), UNKNOWN)


@steps.once("wrong key")
def wrong_key() -> None:
    """A key that is none."""
    fails(litellm.AuthenticationError, lambda: ask(f"openai/{LLAMACPP.chat}", key=WRONG_KEY), "key")


if __name__ == "__main__":
    steps.main(metadata.version("litellm"))
