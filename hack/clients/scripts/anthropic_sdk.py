"""The anthropic package for Python."""

from typing import Any

import anthropic
import steps
from steps import KEY, LIMIT, LLAMACPP, PARAMETERS, PROMPT, UNKNOWN, WAITS, WRONG_KEY, Engine, check, fails

SHAPE = {"base_url": steps.BASE, "max_retries": 0, "timeout": 60}
ASK: Any = {"max_tokens": LIMIT, "system": "Answer briefly.", "messages": [{"role": "user", "content": PROMPT}]}
TOOLS: Any = [{"name": "get_tide", "description": "When the tide comes.", "input_schema": PARAMETERS}]
ENDS = ("max_tokens", "end_turn", "tool_use")


def client(key: str = KEY) -> anthropic.Anthropic:
    """Return the blocking client."""
    return anthropic.Anthropic(api_key=key, **SHAPE)


@steps.on_each("message")
def message(engine: Engine) -> None:
    """Ask for a whole reply."""
    reply = client().messages.create(model=engine.chat, **ASK)
    check(reply.stop_reason == "max_tokens" and reply.usage.output_tokens == LIMIT, reply)


@steps.on_each("streamed message")
def streamed(engine: Engine) -> None:
    """Read the events, and the message that the package makes of them."""
    kinds = [event.type for event in client().messages.create(model=engine.chat, stream=True, **ASK)]
    check(kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds)
    with client().messages.stream(model=engine.chat, **ASK) as stream:
        text = "".join(stream.text_stream)
        check(text == stream.get_final_text(), text)


@steps.on_each("message with tools")
def tools(engine: Engine) -> None:
    """Offer a tool."""
    reply = client().messages.create(model=engine.chat, tools=TOOLS, **ASK)
    check(reply.stop_reason in ENDS, reply)


@steps.once("count of tokens")
def count() -> None:
    """Ask how long a prompt is."""
    asked = {name: value for name, value in ASK.items() if name != "max_tokens"}
    check(client().messages.count_tokens(model=LLAMACPP.chat, **asked).input_tokens > 0)


@steps.once("models")
def models() -> None:
    """List them in this protocol's shape, and look at one."""
    listed = {model.id for model in client().models.list()}
    check({engine.chat for engine in steps.ENGINES} <= listed, listed)
    check(client().models.retrieve(LLAMACPP.chat).id == LLAMACPP.chat)


@steps.once("bearer key")
def bearer() -> None:
    """The key as `Authorization`, as gateways are given it."""
    with anthropic.Anthropic(auth_token=KEY, **SHAPE) as other:
        check(other.messages.create(model=LLAMACPP.chat, **ASK).stop_reason == "max_tokens")


@steps.once("asynchronous")
async def asynchronous() -> None:
    """The other client."""
    async with anthropic.AsyncAnthropic(api_key=KEY, **SHAPE) as other:
        check((await other.messages.create(model=LLAMACPP.chat, **ASK)).stop_reason == "max_tokens")
        async with other.messages.stream(model=LLAMACPP.chat, **ASK) as stream:
            check((await stream.get_final_message()).stop_reason == "max_tokens")


@steps.once("comments while waiting")
def waits() -> None:
    """Comments before the first event are no events."""
    with client().messages.stream(model=WAITS, **ASK) as stream:
        text = "".join(stream.text_stream)
    check(text == steps.WAITS_SAYS, text)


@steps.once("unknown model")
def unknown() -> None:
    """A model that nobody has."""
    fails(anthropic.NotFoundError, lambda: client().messages.create(model=UNKNOWN, **ASK), UNKNOWN, "not_found_error")


@steps.once("wrong key")
def wrong_key() -> None:
    """A key that is none."""
    fails(
        anthropic.AuthenticationError,
        lambda: client(WRONG_KEY).messages.create(model=LLAMACPP.chat, **ASK),
        "authentication_error",
    )


if __name__ == "__main__":
    steps.main(anthropic.__version__)
