"""The generic kind: mlx-lm, and anything else with an OpenAI-style model list and no fingerprint of its own.

Forbidden here: any other signal. What a program of unknown kind says about itself may be an imitation, and mlx-lm says
nothing: its list is what lies on the disk, not what is in memory.
"""

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, model_names
from pharos.core.engine.probe import Feed, FeedKind
from pharos.core.engine.recipe import LIST_PATH, Recipe
from pharos.core.signals import Signal

LIST_INTERVAL_S = 15.0
"""mlx-lm looks through its model folder at every read of the list."""

_KIND = "if this is an engine that Pharos knows, name it with `kind` in the configuration"

RECIPE = Recipe(
    kind="openai",
    rank=1000,
    probes=(
        json_probe(
            "openai-models",
            Signal.MODELS,
            Feed(FeedKind.GET, LIST_PATH, interval_s=LIST_INTERVAL_S),
            model_names,
            wants="data",
        ),
    ),
    hints={
        Signal.RUNNING: Hint(cost="only requests sent through Pharos count", fix=_KIND),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_KIND),
        Signal.RESIDENCY: Hint(
            cost="a cold start cannot be told from a warm one: each listed model is taken to be in memory", fix=_KIND
        ),
        Signal.CAPACITY: Hint(
            cost="an assumed number of slots is used, which may be too few or too many",
            fix="give the backend's capacity in the configuration (mlx-lm: its --decode-concurrency, 32 unless given)",
        ),
    },
)
