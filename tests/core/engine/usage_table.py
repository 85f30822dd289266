"""What every recorded reply says about its cost, read off the bodies by eye.

Rows are keyed engine/name (every version) or engine/version/name; the more specific one wins. `None`: the reply states
no usage, is no reply of a model, or is a refusal.
"""

from typing import Final

import msgspec

from pharos.core.engine.usage_fields import Usage


class Row(msgspec.Struct, frozen=True):
    """Expected counts of one reply, and which of its durations are known."""

    prompt: int | None
    cached: int | None
    completion: int | None
    durations: str = ""
    """Words of "prefill", "load", "predicted"."""


def row_of(usage: Usage | None) -> Row | None:
    """Bring a usage that was read to the form of the table."""
    if usage is None:
        return None
    known = {"prefill": usage.prefill_s, "load": usage.load_s, "predicted": usage.predicted_s}
    durations = " ".join(name for name, value in known.items() if value is not None)
    return Row(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, durations)


TIMED: Final = "prefill predicted"
ALL: Final = "prefill load predicted"

USAGE: Final[dict[str, Row | None]] = {
    # llama.cpp: counts cached tokens everywhere; timings on OpenAI's routes, and beside the last event of responses.
    "llamacpp/chat_full": Row(29, 28, 12, TIMED),
    "llamacpp/chat_stream_plain": Row(29, 28, 12, TIMED),
    "llamacpp/chat_stream_usage": Row(29, 6, 12, TIMED),
    "llamacpp/chat_wakes": Row(91, 0, 12, TIMED),
    "llamacpp/completion_full": Row(4, 3, 8, TIMED),
    "llamacpp/completion_stream": Row(4, 0, 8, TIMED),
    "llamacpp/completion_stream_usage": Row(4, 3, 8, TIMED),
    "llamacpp/embeddings": None,  # 501
    "llamacpp/err_bad_json_field": None,
    "llamacpp/err_too_long": None,
    "llamacpp/err_unknown_model": Row(29, 28, 12, TIMED),  # it serves any name
    "llamacpp/err_unknown_route": None,
    "llamacpp/messages_count": None,  # counts a prompt that was not run
    "llamacpp/messages_full": Row(31, 0, 8),
    "llamacpp/messages_stream": Row(31, 30, 8),  # 30 cached and 1 not in message_start, the output in message_delta
    "llamacpp/prefix_first": Row(457, 3, 4, TIMED),
    "llamacpp/prefix_again": Row(457, 450, 4, TIMED),
    "llamacpp/responses_full": Row(31, 30, 8),
    "llamacpp/responses_stream": Row(31, 30, 8, TIMED),
    "llamacpp/slots_wakes": None,
    "llamacpp/tools_stream": Row(29, 28, 12, TIMED),
    # llama-swap: what its llama.cpp children say, unchanged.
    "llama-swap/alias_chat": Row(91, 90, 12, TIMED),
    "llama-swap/api_events": None,
    "llama-swap/chat_full": Row(91, 90, 12, TIMED),
    "llama-swap/chat_full_loading_state": Row(33, 0, 6, TIMED),
    "llama-swap/chat_on_embedding_model": Row(131, 1, 12, TIMED),
    "llama-swap/chat_stream_loading_state": Row(33, 0, 6, TIMED),
    "llama-swap/chat_stream_loading_state_swap": Row(33, 0, 6, TIMED),
    "llama-swap/chat_stream_plain": Row(91, 90, 12, TIMED),
    "llama-swap/chat_stream_usage": Row(91, 0, 12, TIMED),
    "llama-swap/completion_full": Row(16, 15, 8, TIMED),
    "llama-swap/completion_stream": Row(16, 2, 8, TIMED),
    "llama-swap/completion_stream_usage": Row(16, 15, 8, TIMED),
    "llama-swap/embeddings": Row(12, None, 0),
    "llama-swap/embeddings_on_chat_model": None,  # 501
    "llama-swap/err_bad_json_field": None,
    "llama-swap/err_no_body": None,
    "llama-swap/err_no_model": None,
    "llama-swap/err_too_long": None,
    "llama-swap/err_unknown_model": None,
    "llama-swap/err_unknown_model_messages": None,
    "llama-swap/err_unknown_model_responses": None,
    "llama-swap/err_unknown_route": None,
    "llama-swap/err_wrong_method": None,
    "llama-swap/llama_completion": Row(2, 1, 4, TIMED),
    "llama-swap/messages_count": None,
    "llama-swap/messages_full": Row(33, 0, 8),
    "llama-swap/messages_stream": Row(33, 32, 8),
    "llama-swap/models_one": None,
    "llama-swap/prefix_first": Row(985, 0, 4, TIMED),
    "llama-swap/prefix_again": Row(985, 965, 4, TIMED),
    "llama-swap/props_no_model": None,
    "llama-swap/rerank": None,  # 501
    "llama-swap/responses_full": Row(33, 32, 8),
    "llama-swap/responses_stream": Row(33, 32, 8, TIMED),
    "llama-swap/running_during": None,
    "llama-swap/tools_stream": Row(91, 0, 12, TIMED),
    "llama-swap/unload": None,
    "llama-swap/upstream_unknown": None,
    # Ollama: no cached tokens in these versions; durations on its own routes only; streams tell when asked to.
    "ollama/api_chat_again": Row(33, None, 8, ALL),
    "ollama/api_chat_full": Row(33, None, 8, ALL),
    "ollama/api_chat_load_only": None,  # nothing was computed
    "ollama/api_chat_other_ctx": Row(33, None, 4, ALL),
    "ollama/api_chat_prefix_first": Row(985, None, 8, ALL),
    "ollama/api_chat_prefix_again": Row(985, None, 8, ALL),
    "ollama/api_chat_stream": Row(33, None, 8, ALL),
    "ollama/0.33.0-rc2/api_chat_stream_stop": Row(33, None, 1, ALL),
    "ollama/0.17.4/api_chat_stream_stop": Row(33, None, 4, ALL),
    "ollama/0.33.0-rc2/api_chat_too_long": Row(2051, None, 8, ALL),  # cut without a word
    "ollama/0.17.4/api_chat_too_long": Row(4096, None, 8, ALL),
    "ollama/api_chat_tools_unsupported": None,
    "ollama/api_chat_unload": None,
    "ollama/api_embed": Row(12, None, 0, "load"),
    "ollama/api_embed_on_chat_model": None,  # 501
    "ollama/0.17.4/api_embed_on_chat_model": Row(6, None, 0, "load"),
    "ollama/api_embeddings": None,  # the old route states nothing
    "ollama/api_generate_full": Row(33, None, 8, ALL),
    "ollama/api_generate_stream": Row(33, None, 8, ALL),
    "ollama/0.33.0-rc2/api_generate_too_long": Row(2051, None, 8, ALL),
    "ollama/0.17.4/api_generate_too_long": Row(4096, None, 8, ALL),
    "ollama/api_generate_too_long_no_truncate": None,
    "ollama/api_show": None,
    "ollama/api_show_embed": None,
    "ollama/api_show_unknown": None,
    "ollama/chat_full": Row(91, None, 12),
    "ollama/chat_on_embedding_model": None,
    "ollama/chat_stream_plain": None,
    "ollama/chat_stream_usage": Row(91, None, 12),
    "ollama/completion_full": Row(42, None, 8),
    "ollama/completion_stream": None,
    "ollama/completion_stream_usage": Row(42, None, 8),  # zeros on every chunk before the last
    "ollama/embeddings": Row(12, None, 0),
    "ollama/embeddings_on_chat_model": None,  # 501
    "ollama/0.17.4/embeddings_on_chat_model": Row(6, None, 0),
    "ollama/err_api_bad_field": None,
    "ollama/err_api_unknown_model": None,
    "ollama/err_api_wrong_method": None,
    "ollama/err_bad_json_field": None,
    "ollama/err_foreign_host": None,
    "ollama/err_foreign_origin": None,
    "ollama/err_server_busy_api_chat": None,
    "ollama/err_server_busy_api_embed": None,
    "ollama/err_server_busy_chat": None,
    "ollama/err_server_busy_chat_stream": None,
    "ollama/err_server_busy_messages": None,
    "ollama/err_server_busy_messages_stream": None,
    "ollama/err_server_busy_responses": None,
    "ollama/0.33.0-rc2/err_too_long": Row(2051, None, 4),
    "ollama/0.17.4/err_too_long": Row(4096, None, 4),
    "ollama/err_unknown_model": None,
    "ollama/err_unknown_model_messages": None,
    "ollama/err_unknown_model_responses": None,
    "ollama/err_unknown_route": None,
    "ollama/err_wrong_method": None,
    "ollama/messages_count": None,  # 404
    "ollama/messages_full": Row(33, None, 8),
    "ollama/messages_stream": Row(33, None, 8),  # message_start says 2, an estimate
    "ollama/models_one": None,
    "ollama/models_one_unknown": None,
    "ollama/prefix_first": Row(985, None, 4),
    "ollama/prefix_again": Row(985, None, 4),
    "ollama/responses_full": Row(33, None, 8),  # cached 0, always
    "ollama/responses_stream": Row(33, None, 8),
    "ollama/tools_stream": None,  # 400
    # vLLM: 0.32.0 was started with --enable-prompt-tokens-details, 0.32.0-defaults was not. No durations.
    "vllm/0.32.0/chat_full": Row(92, 0, 12),
    "vllm/0.32.0-defaults/chat_full": Row(92, None, 12),
    "vllm/chat_stream_plain": None,
    "vllm/0.32.0/chat_stream_usage": Row(92, 0, 12),
    "vllm/0.32.0-defaults/chat_stream_usage": Row(92, None, 12),
    "vllm/0.32.0/completion_full": Row(16, 0, 8),
    "vllm/0.32.0-defaults/completion_full": Row(16, None, 8),
    "vllm/completion_stream": None,
    "vllm/0.32.0/completion_stream_usage": Row(16, 0, 8),
    "vllm/0.32.0-defaults/completion_stream_usage": Row(16, None, 8),
    "vllm/embeddings": None,  # 404
    "vllm/err_bad_json_field": None,
    "vllm/err_too_long": None,
    "vllm/err_unknown_model": None,
    "vllm/err_unknown_route": None,
    "vllm/messages_count": None,
    "vllm/0.32.0/messages_full": Row(26, 0, 8),
    "vllm/0.32.0-defaults/messages_full": Row(26, None, 8),
    "vllm/0.32.0/messages_stream": Row(26, 0, 8),
    "vllm/0.32.0-defaults/messages_stream": Row(26, None, 8),
    "vllm/0.32.0/prefix_first": Row(2037, 0, 4),
    "vllm/0.32.0/prefix_again": Row(2037, 1920, 4),
    "vllm/0.32.0-defaults/prefix_first": None,  # 400: longer than its context
    "vllm/0.32.0-defaults/prefix_again": None,
    "vllm/0.32.0/responses_full": Row(26, 0, 8),  # a count, since its other replies count
    "vllm/0.32.0-defaults/responses_full": Row(26, None, 8),  # the same 0 in the body
    "vllm/0.32.0/responses_stream": Row(26, 0, 8),
    "vllm/0.32.0-defaults/responses_stream": Row(26, None, 8),
    "vllm/tools_stream": None,  # 400
    # mlx-lm: chat and completions only; streams tell when asked to.
    "mlx-lm/chat_full": Row(92, 91, 12),
    "mlx-lm/chat_stream_plain": None,
    "mlx-lm/chat_stream_usage": Row(92, 2, 12),
    "mlx-lm/completion_full": Row(16, 15, 8),
    "mlx-lm/completion_stream": None,
    "mlx-lm/completion_stream_usage": Row(16, 15, 8),
    "mlx-lm/embeddings": None,
    "mlx-lm/err_bad_json_field": None,
    "mlx-lm/err_too_long": Row(15022, 8, 4),  # there is no limit
    "mlx-lm/err_unknown_model": None,
    "mlx-lm/err_unknown_route": None,
    "mlx-lm/messages_count": None,
    "mlx-lm/messages_full": None,
    "mlx-lm/messages_stream": None,
    "mlx-lm/prefix_first": Row(2037, 11, 4),
    "mlx-lm/prefix_again": Row(2037, 2020, 4),
    "mlx-lm/responses_full": None,
    "mlx-lm/responses_stream": None,
    "mlx-lm/tools_stream": None,
}


def key_of(engine: str, version: str, name: str) -> str:
    """Return the most specific key of the table for a reply; the shortest, which is not there, when none fits."""
    exact = f"{engine}/{version}/{name}"
    return exact if exact in USAGE else f"{engine}/{name}"
