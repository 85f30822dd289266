"""LM Studio from 0.4 on, by its own REST API. Facts: its documentation, hand-made bodies in testdata/lmstudio.

Names are keys of models, and ids of their loaded instances (of which a model may have several, each with a context of
its own). A request for a key that is not loaded makes it load.

Forbidden here: `max_context_length` as a limit. It is what the model could do; an instance is loaded with less.
"""

from collections.abc import Iterator
from typing import Any

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import json_probe, member, of_type
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Pages, ProbeError
from pharos.core.engine.recipe import Fingerprint, Recipe, Verdict, all_owned, confirm
from pharos.core.engine.values import number
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

KIND = "lmstudio"
OWNER = "organization_owner"
"""`owned_by` of its OpenAI-style list: a word from OpenAI's own examples, and so a weak hint."""
MODELS = Feed(FeedKind.GET, "/api/v1/models")


class _Model:
    """One entry of the list: its key and its loaded instances by id."""

    def __init__(self, entry: object) -> None:
        """Raises `ProbeError`."""
        self.entry = of_type(entry, dict, "an entry of models")
        self.key = of_type(member(entry, "key"), str, "key")
        instances = of_type(member(entry, "loaded_instances"), list, "loaded_instances")
        self.instances: dict[str, dict[str, Any]] = {}
        for instance in instances:
            name = of_type(member(instance, "id"), str, "id")
            if not name or name in self.instances:
                raise ProbeError(DropReason.PARSE_ERROR, "an instance without an id, or one that comes twice")
            self.instances[name] = instance
        if not self.key:
            raise ProbeError(DropReason.PARSE_ERROR, "an empty key")

    @property
    def names(self) -> tuple[str, ...]:
        """Its key and the ids of its instances, one of which may be the key."""
        return tuple(dict.fromkeys((self.key, *self.instances)))


def _models(document: object) -> Iterator[_Model]:
    """Give the entries. Raises `ProbeError`, also when two bear one name."""
    seen: set[str] = set()
    for entry in of_type(member(document, "models"), list, "models"):
        model = _Model(entry)
        if not seen.isdisjoint(model.names):
            raise ProbeError(DropReason.PARSE_ERROR, "two models have one name")
        seen.update(model.names)
        yield model


def _names(document: object) -> Found:
    return {BACKEND: tuple(name for model in _models(document) for name in model.names)}


def _residency(document: object) -> Found:
    found: dict[str, Value] = {}
    for model in _models(document):
        state = Residency.LOADED if model.instances else Residency.COLD
        found.update(dict.fromkeys(model.names, state))
    return found


def _contexts(document: object) -> Found:
    """Read the context of each instance. A key has that of its only one; of several it is open which one answers."""
    found: dict[str, Value] = {}
    for model in _models(document):
        contexts = {
            name: number(Signal.CONTEXT_LENGTH, member(instance, "config.context_length"))
            for name, instance in model.instances.items()
        }
        found.update(contexts)
        if len(set(contexts.values())) == 1:
            found.setdefault(model.key, next(iter(contexts.values())))
    return found


def _sizes(document: object) -> Found:
    found: dict[str, Value] = {}
    for model in _models(document):
        if model.entry.get("size_bytes") is not None:
            found.update(dict.fromkeys(model.names, number(Signal.SIZE_BYTES, model.entry["size_bytes"])))
    return found


def _groups(document: object) -> Found:
    """Read which names may mean the same instance: a key and its only instance. Several have a queue each."""
    found: dict[str, Value] = {}
    for model in _models(document):
        several = len(model.instances) > 1
        found.update({name: name if several else model.key for name in model.names})
    return found


def _evidence(document: object) -> str:
    """Raises `ProbeError`: no value where the list is not LM Studio's; cannot be read where it may be."""
    models = of_type(member(document, "models"), list, "models")
    if not models:
        raise ProbeError(DropReason.PARSE_ERROR, "an empty list shows nobody's mark")
    if not any("loaded_instances" in of_type(entry, dict, "an entry of models") for entry in models):
        raise ProbeError(DropReason.NO_VALUE, "no loaded_instances")
    return "lists models with loaded_instances"


def _judge(pages: Pages) -> Verdict:
    return confirm(pages, MODELS.path, _evidence, claimed=all_owned(pages, OWNER))


RECIPE = Recipe(
    kind=KIND,
    rank=150,
    probes=(
        json_probe("lmstudio-models", Signal.MODELS, MODELS, _names, wants="models"),
        json_probe("lmstudio-residency", Signal.RESIDENCY, MODELS, _residency, wants="loaded_instances"),
        json_probe(
            "lmstudio-context",
            Signal.CONTEXT_LENGTH,
            MODELS,
            _contexts,
            wants="config.context_length",
            may_be_empty=True,  # only loaded models have one
        ),
        json_probe("lmstudio-size", Signal.SIZE_BYTES, MODELS, _sizes, wants="size_bytes"),
        json_probe("lmstudio-group", Signal.PHYSICAL_GROUP, MODELS, _groups, wants="loaded_instances"),
    ),
    fingerprint=Fingerprint(paths=(MODELS.path,), judge=_judge),
    owners=(OWNER,),
    record_paths=(MODELS.path, "/api/v0/models"),
    hints={
        Signal.RUNNING: Hint(
            cost="requests that others send to the engine are not seen: only those sent through Pharos count",
            fix="none: LM Studio does not tell; send all its traffic through Pharos",
        ),
        Signal.WAITING: Hint(cost="a queue inside the engine is not seen", fix="none: LM Studio does not tell it"),
        Signal.CONTEXT_LENGTH: Hint(
            cost="a request that is too long for the model is sent and refused or cut by the engine",
            fix="none before the model is loaded: its instances tell their context",
        ),
    },
)
