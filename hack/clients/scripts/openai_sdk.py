"""The openai package for Python."""

import openai
import steps
from steps import KEY, LIMIT, LLAMACPP, MESSAGES, PROMPT, TEXTS, TOOL, UNKNOWN, WAITS, WRONG_KEY, Engine, check, fails

SHAPE = {"base_url": f"{steps.BASE}/v1", "max_retries": 0, "timeout": 60}


def client(key: str = KEY) -> openai.OpenAI:
    """Return the blocking client."""
    return openai.OpenAI(api_key=key, **SHAPE)


@steps.on_each("chat")
def chat(engine: Engine) -> None:
    """Ask for a whole reply."""
    reply = client().chat.completions.create(model=engine.chat, messages=MESSAGES, max_tokens=LIMIT)
    check(reply.choices[0].message.content)
    check(reply.usage is not None and reply.usage.completion_tokens == LIMIT, reply.usage)


@steps.on_each("streamed chat")
def streamed(engine: Engine) -> None:
    """Read a stream without usage."""
    stream = client().chat.completions.create(model=engine.chat, messages=MESSAGES, max_tokens=LIMIT, stream=True)
    chunks = list(stream)
    check(all(chunk.choices for chunk in chunks), "an event without choices was not asked for")
    check(any(chunk.choices[0].delta.content for chunk in chunks))
    check(chunks[-1].choices[0].finish_reason == "length", chunks[-1])


@steps.on_each("streamed chat with usage")
def streamed_usage(engine: Engine) -> None:
    """Read a stream whose last event has the usage."""
    *_, last = client().chat.completions.create(
        model=engine.chat,
        messages=MESSAGES,
        max_tokens=LIMIT,
        stream=True,
        stream_options={"include_usage": True},
    )
    check(last.usage is not None and last.usage.completion_tokens == LIMIT, last)


@steps.on_each("chat with tools")
def tools(engine: Engine) -> None:
    """Offer a tool, whole and streamed."""
    reply = client().chat.completions.create(model=engine.chat, messages=MESSAGES, max_tokens=LIMIT, tools=[TOOL])
    check(reply.choices[0].finish_reason in ("length", "tool_calls", "stop"), reply)
    stream = client().chat.completions.create(
        model=engine.chat, messages=MESSAGES, max_tokens=LIMIT, tools=[TOOL], stream=True
    )
    *_, last = stream
    check(last.choices[0].finish_reason in ("length", "tool_calls", "stop"), last)


@steps.on_each("completion")
def completion(engine: Engine) -> None:
    """Use the older route, whole and streamed."""
    reply = client().completions.create(model=engine.chat, prompt=PROMPT, max_tokens=LIMIT)
    check(reply.usage is not None and reply.usage.completion_tokens == LIMIT, reply)
    parts = list(client().completions.create(model=engine.chat, prompt=PROMPT, max_tokens=LIMIT, stream=True))
    check(parts[-1].choices[0].finish_reason == "length", parts[-1])


@steps.on_each("responses")
def responses(engine: Engine) -> None:
    """Use the newer route, whole and streamed."""
    reply = client().responses.create(model=engine.chat, input=PROMPT, max_output_tokens=LIMIT)
    check(reply.output_text)
    stream = client().responses.create(model=engine.chat, input=PROMPT, max_output_tokens=LIMIT, stream=True)
    kinds = [event.type for event in stream]
    check(kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds)


@steps.on_each("embeddings")
def embeddings(engine: Engine) -> None:
    """Two texts at once, in the package's own encoding of numbers."""
    reply = client().embeddings.create(model=engine.embed, input=TEXTS)
    check(len(reply.data) == len(TEXTS) and all(one.embedding for one in reply.data))


@steps.once("models")
def models() -> None:
    """List them, and look at one."""
    listed = {model.id for model in client().models.list()}
    check({name for engine in steps.ENGINES for name in (engine.chat, engine.embed)} <= listed, listed)
    check(client().models.retrieve(LLAMACPP.chat).id == LLAMACPP.chat)


@steps.once("asynchronous")
async def asynchronous() -> None:
    """The other client."""
    async with openai.AsyncOpenAI(api_key=KEY, **SHAPE) as other:
        reply = await other.chat.completions.create(model=LLAMACPP.chat, messages=MESSAGES, max_tokens=LIMIT)
        check(reply.choices[0].message.content)
        stream = await other.chat.completions.create(
            model=LLAMACPP.chat, messages=MESSAGES, max_tokens=LIMIT, stream=True
        )
        check([chunk async for chunk in stream][-1].choices[0].finish_reason == "length")


@steps.once("comments while waiting")
def waits() -> None:
    """Comments before the first event are no events: in chats and in responses."""
    stream = client().chat.completions.create(model=WAITS, messages=MESSAGES, max_tokens=LIMIT, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    check(text == steps.WAITS_SAYS, text)


@steps.once("unknown model")
def unknown() -> None:
    """A model that nobody has."""

    def ask() -> None:
        client().chat.completions.create(model=UNKNOWN, messages=MESSAGES)

    fails(openai.NotFoundError, ask, UNKNOWN)


@steps.once("wrong key")
def wrong_key() -> None:
    """A key that is none."""

    def ask() -> None:
        client(WRONG_KEY).chat.completions.create(model=LLAMACPP.chat, messages=MESSAGES)

    fails(openai.AuthenticationError, ask, "key")


if __name__ == "__main__":
    steps.main(openai.__version__)
