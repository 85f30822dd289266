"""The generic kind: anything with an OpenAI-style model list and no fingerprint of its own.

Forbidden here: any other signal. What a program of unknown kind says about itself may be an imitation.
"""

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, model_names
from pharos.core.engine.probe import Feed, FeedKind
from pharos.core.engine.recipe import Recipe
from pharos.core.signals import Signal

_KIND = "if this is an engine that Pharos knows, name it with `kind` in the configuration"

RECIPE = Recipe(
    kind="openai",
    rank=1000,
    probes=(json_probe("openai-models", Signal.MODELS, Feed(kind=FeedKind.GET, path="/v1/models"), model_names),),
    hints={
        Signal.RUNNING: Hint(cost="only requests sent through Pharos count", fix=_KIND),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix=_KIND),
    },
)
