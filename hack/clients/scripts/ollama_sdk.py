"""The ollama package for Python."""

import time
from importlib import metadata
from typing import Any

import ollama
import steps
from steps import KEY, LIMIT, MESSAGES, OLLAMA, PROMPT, TEXTS, TOOL, UNKNOWN, WRONG_KEY, check, fails

OPTIONS: Any = {"num_predict": LIMIT}


def client(key: str = KEY) -> ollama.Client:
    """Return the blocking client, with the key in a header of its own."""
    return ollama.Client(host=steps.BASE, headers={"Authorization": f"Bearer {key}"}, timeout=60)


@steps.once("chat")
def chat() -> None:
    """Ask for a whole reply."""
    reply = client().chat(model=OLLAMA.chat, messages=MESSAGES, options=OPTIONS)
    check(reply.done and reply.eval_count == LIMIT, reply)


@steps.once("streamed chat")
def streamed() -> None:
    """Read the lines."""
    lines = list(client().chat(model=OLLAMA.chat, messages=MESSAGES, options=OPTIONS, stream=True))
    check(lines[-1].done and not any(line.done for line in lines[:-1]), lines[-1])


@steps.once("chat with tools")
def tools() -> None:
    """Offer a tool."""
    check(client().chat(model=OLLAMA.chat, messages=MESSAGES, options=OPTIONS, tools=[TOOL]).done)


@steps.once("generate")
def generate() -> None:
    """The older way, whole and streamed."""
    check(client().generate(model=OLLAMA.chat, prompt=PROMPT, options=OPTIONS).eval_count == LIMIT)
    *_, last = client().generate(model=OLLAMA.chat, prompt=PROMPT, options=OPTIONS, stream=True)
    check(last.done, last)


@steps.once("embeddings")
def embeddings() -> None:
    """Both routes."""
    check(len(client().embed(model=OLLAMA.embed, input=TEXTS).embeddings) == len(TEXTS))
    check(client().embeddings(model=OLLAMA.embed, prompt=PROMPT).embedding)


@steps.once("models")
def models() -> None:
    """What there is, what is loaded, and what is known of one."""
    listed = {model.model for model in client().list().models}
    check(f"{OLLAMA.chat}:latest" in listed, listed)
    deadline = time.monotonic() + 20
    while not client().ps().models and time.monotonic() < deadline:
        time.sleep(0.2)  # what is loaded is what Pharos read last
    check(client().ps().models)
    check(client().show(OLLAMA.chat).capabilities)


@steps.once("asynchronous")
async def asynchronous() -> None:
    """The other client."""
    other = ollama.AsyncClient(host=steps.BASE, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    check((await other.chat(model=OLLAMA.chat, messages=MESSAGES, options=OPTIONS)).done)
    stream = await other.chat(model=OLLAMA.chat, messages=MESSAGES, options=OPTIONS, stream=True)
    check([line async for line in stream][-1].done)


@steps.once("management of models")
def manages() -> None:
    """What Pharos does not do is said."""
    fails(ollama.ResponseError, lambda: client().pull(OLLAMA.chat), "does not manage models")
    fails(ollama.ResponseError, lambda: client().delete(OLLAMA.chat), "does not manage models")


@steps.once("unknown model")
def unknown() -> None:
    """A model that nobody has."""
    fails(ollama.ResponseError, lambda: client().chat(model=UNKNOWN, messages=MESSAGES), UNKNOWN, "404")


@steps.once("wrong key")
def wrong_key() -> None:
    """A key that is none."""
    fails(ollama.ResponseError, lambda: client(WRONG_KEY).chat(model=OLLAMA.chat, messages=MESSAGES), "key", "401")


if __name__ == "__main__":
    steps.main(metadata.version("ollama"))
