"""The protocols in which engines reply, by name."""

from typing import Literal

Protocol = Literal[
    "openai_chat", "openai_completion", "openai_responses", "anthropic", "ollama_chat", "ollama_generate", "plain"
]
"""`plain`: one body, JSON or other, and never a stream of tokens."""
