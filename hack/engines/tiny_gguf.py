#!/usr/bin/env python3
"""Writes a tiny model with random weights as a GGUF file, for real engines in tests: no download, no GPU.

Every reply is printable nonsense, the same for the same seed; tokens, slots, caches, limits and errors around it are
the engine's own. Without --ends a reply runs to its limit or to the end of the context: always send a limit.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, HIDDEN = 64, 4, 2, 128
SPACE = "\u2581"
"""How SentencePiece writes the space before a word."""
WORDS = "quay mast gull salt reef keel dawn bell rope hull cove mist anchor harbor signal drifts rolls hails a the it"
END = 2
TEMPLATE = (
    "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}(assistant) {% endif %}"
)

Piece = tuple[str, float, int]


def pieces() -> list[Piece]:
    """Text, score and type of each token.

    The tokenizer joins neighbours step by step, so every beginning of a word is a token, and longer ones score higher.
    """
    kinds = gguf.TokenType
    first: list[Piece] = [("<unk>", 0.0, kinds.UNKNOWN), ("<s>", 0.0, kinds.CONTROL), ("</s>", 0.0, kinds.CONTROL)]
    raw: list[Piece] = [(f"<0x{byte:02X}>", 0.0, kinds.BYTE) for byte in range(256)]
    begun = (SPACE + word[:length] for word in WORDS.split() for length in range(1, len(word) + 1))
    texts = dict.fromkeys([SPACE, *map(chr, range(33, 127)), *begun])
    return first + raw + [(text, len(text) - 100.0, kinds.NORMAL) for text in texts]


def describe(writer: Any, wanted: argparse.Namespace, tokens: list[Piece]) -> None:  # noqa: ANN401 (gguf has no types)
    """Write what a loader must know before the tensors."""
    writer.add_name(wanted.name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(wanted.context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(wanted.layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([int(kind) for _, _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=True)
    if wanted.embedding:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_causal_attention(value=False)
    else:
        writer.add_chat_template(TEMPLATE)


def tensors(wanted: argparse.Namespace, tokens: list[Piece]) -> dict[str, Any]:
    """Every tensor by its name in the file. A token that must not be said has a row of zeros: never the likely one."""
    chance = np.random.default_rng(wanted.seed)

    def matrix(rows: int, columns: int, spread: float) -> Any:  # noqa: ANN401
        return (chance.standard_normal((rows, columns)) * spread).astype(np.float16)

    head = matrix(len(tokens), WIDTH, 0.25)
    for index, (_, _, kind) in enumerate(tokens):
        if kind != gguf.TokenType.NORMAL and not (wanted.ends and index == END):
            head[index] = 0
    made = {
        "token_embd.weight": matrix(len(tokens), WIDTH, 1.0),
        "output_norm.weight": np.ones(WIDTH, np.float32),
        "output.weight": head,
    }
    kv_width = WIDTH * KV_HEADS // HEADS
    parts = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (kv_width, WIDTH),
        "attn_v": (kv_width, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    for layer in range(wanted.layers):
        for norm in ("attn_norm", "ffn_norm"):
            made[f"blk.{layer}.{norm}.weight"] = np.ones(WIDTH, np.float32)
        for part, (rows, columns) in parts.items():
            made[f"blk.{layer}.{part}.weight"] = matrix(rows, columns, columns**-0.5)
    return made


def arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="tiny")
    parser.add_argument("--context", type=int, default=8192, help="tokens it was made for, as the file says")
    parser.add_argument("--layers", type=int, default=2, help="more of them make it slower")
    parser.add_argument("--ends", action="store_true", help="a reply ends by itself after some dozens of tokens")
    parser.add_argument("--embedding", action="store_true", help="a model for embeddings: mean pooling, no template")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Write the file; prints nothing."""
    wanted = arguments(argv)
    tokens = pieces()
    writer = gguf.GGUFWriter(str(wanted.out), "llama")
    describe(writer, wanted, tokens)
    for name, tensor in tensors(wanted, tokens).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
