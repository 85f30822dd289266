"""The package langchain-openai."""

from importlib import metadata
from typing import Any

import openai
import steps
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from steps import KEY, LIMIT, LLAMACPP, MESSAGES, TEXTS, TOOL, UNKNOWN, WAITS, WRONG_KEY, Engine, check, fails

OLLAMA_LIMIT = 16


def model(name: str, key: str = KEY, **more: Any) -> ChatOpenAI:  # noqa: ANN401 - options of the package
    """Return a chat model."""
    return ChatOpenAI(
        model=name, base_url=f"{steps.BASE}/v1", api_key=key, max_tokens=LIMIT, max_retries=0, timeout=60, **more
    )


def limits(engine: Engine) -> tuple[int, ...]:
    """Tokens that a reply may have: those asked for, or those that the engine was started with."""
    return (LIMIT, OLLAMA_LIMIT) if engine.kind == "ollama" else (LIMIT,)


@steps.on_each("invoke")
def invoke(engine: Engine) -> None:
    """Ask for a whole reply. The package sends the limit as `max_completion_tokens`, which Ollama 0.17.4 ignores."""
    reply = model(engine.chat).invoke(MESSAGES)
    check(reply.content and reply.usage_metadata["output_tokens"] in limits(engine), reply)


@steps.on_each("stream")
def stream(engine: Engine) -> None:
    """Read a stream, with and without its usage."""
    check("".join(part.content for part in model(engine.chat).stream(MESSAGES)))
    parts = list(model(engine.chat, stream_usage=True).stream(MESSAGES))
    told = [part.usage_metadata for part in parts if part.usage_metadata]
    check(sum(one["output_tokens"] for one in told) in limits(engine), told)


@steps.on_each("tools")
def tools(engine: Engine) -> None:
    """Offer a tool."""
    check(model(engine.chat).bind_tools([TOOL]).invoke(MESSAGES).response_metadata["finish_reason"])


@steps.on_each("embeddings")
def embeddings(engine: Engine) -> None:
    """Texts as they are: by itself the package sends numbers of a vocabulary that it fetches from elsewhere."""
    maker = OpenAIEmbeddings(
        model=engine.embed, base_url=f"{steps.BASE}/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    check(len(maker.embed_documents(TEXTS)) == len(TEXTS))


@steps.once("asynchronous")
async def asynchronous() -> None:
    """The other methods."""
    check((await model(LLAMACPP.chat).ainvoke(MESSAGES)).content)
    check([part async for part in model(LLAMACPP.chat).astream(MESSAGES)])


@steps.once("comments while waiting")
def waits() -> None:
    """Comments before the first event are no events."""
    text = "".join(part.content for part in model(WAITS).stream(MESSAGES))
    check(text == steps.WAITS_SAYS, text)


@steps.once("unknown model")
def unknown() -> None:
    """A model that nobody has."""
    fails(openai.NotFoundError, lambda: model(UNKNOWN).invoke(MESSAGES), UNKNOWN)


@steps.once("wrong key")
def wrong_key() -> None:
    """A key that is none."""
    fails(openai.AuthenticationError, lambda: model(LLAMACPP.chat, WRONG_KEY).invoke(MESSAGES), "key")


if __name__ == "__main__":
    steps.main(metadata.version("langchain-openai"))
