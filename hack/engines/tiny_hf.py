#!/usr/bin/env python3
"""Writes a tiny model with random weights as a folder for mlx-lm and vLLM: configuration, tokenizer, safetensors.

One token per byte of text; a reply is printable nonsense and runs to its limit. Needs numpy, safetensors and
tokenizers, which both engines bring: run it with their Python.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors.numpy import save_file

WIDTH, HEADS, KV_HEADS, HIDDEN = 64, 4, 2, 128
SPECIAL = ["<unk>", "<s>", "</s>"]
TEMPLATE = (
    "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}(assistant) {% endif %}"
)


def write_tokenizer(out: Path, context: int) -> dict[str, int]:
    """Write both files of the tokenizer; return its vocabulary."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())  # one printable stand-in per byte
    vocabulary = {token: index for index, token in enumerate(SPECIAL + letters)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token=SPECIAL[0]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    made.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return vocabulary


def configuration(context: int, layers: int, size: int) -> dict[str, Any]:
    """Return what config.json says. `size`: tokens of the vocabulary."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "intermediate_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": size,
        "max_position_embeddings": context,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def weights(seed: int, layers: int, vocabulary: dict[str, int]) -> dict[str, Any]:
    """Every tensor by its name. A token that must not be said has a row of zeros: never the likely one."""
    chance = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, spread: float) -> Any:  # noqa: ANN401
        return (chance.standard_normal((rows, columns)) * spread).astype(np.float32)

    head = matrix(len(vocabulary), WIDTH, 0.25)
    for token, index in vocabulary.items():
        if not (token.isascii() and len(token) == 1):
            head[index] = 0
    made = {
        "model.embed_tokens.weight": matrix(len(vocabulary), WIDTH, 1.0),
        "model.norm.weight": np.ones(WIDTH, np.float32),
        "lm_head.weight": head,
    }
    kv_width = WIDTH * KV_HEADS // HEADS
    parts = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (kv_width, WIDTH),
        "self_attn.v_proj": (kv_width, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (HIDDEN, WIDTH),
        "mlp.up_proj": (HIDDEN, WIDTH),
        "mlp.down_proj": (WIDTH, HIDDEN),
    }
    for layer in range(layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            made[f"model.layers.{layer}.{norm}.weight"] = np.ones(WIDTH, np.float32)
        for part, (rows, columns) in parts.items():
            made[f"model.layers.{layer}.{part}.weight"] = matrix(rows, columns, columns**-0.5)
    return made


def main(argv: list[str]) -> None:
    """Write the folder; prints nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=2)
    wanted = parser.parse_args(argv)
    wanted.out.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(wanted.out, wanted.context)
    told = configuration(wanted.context, wanted.layers, len(vocabulary))
    (wanted.out / "config.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    tensors = weights(wanted.seed, wanted.layers, vocabulary)
    save_file(tensors, str(wanted.out / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main(sys.argv[1:])
