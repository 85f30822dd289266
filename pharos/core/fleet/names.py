"""The names of models: the engine's own, and those that clients use.

Forbidden here: anything about state. What a list of models means for names depends on that list and on settings only.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pharos.core.engine import recipes

IMPLIED = ":latest"
"""The tag of a name without one: `tiny` and `tiny:latest` are one model."""


class Meant(msgspec.Struct, frozen=True):
    """An engine's name of a model, as an alias of the whole fleet says it."""

    name: str
    """Without the implied tag."""
    kind: str | None = None
    """The kind of engines that it is meant for; `None`: all."""


Aliases = Mapping[str, tuple[Meant, ...]]
"""Client's name (without the implied tag) to what it means, the first that an engine lists."""


def canonical(name: str) -> str:
    """The one spelling of a name: without the implied tag. A name with another tag before it is left alone."""
    if not name.endswith(IMPLIED):
        return name
    bare = name.removesuffix(IMPLIED)
    return bare if bare and not bare.endswith("/") and ":" not in bare.rpartition("/")[2] else name


def spellings(name: str) -> tuple[str, ...]:
    """How else than in its one spelling clients and allow-lists may write a name; `name` is in that spelling."""
    return (name, name + IMPLIED) if canonical(name + IMPLIED) == name else (name,)


def meant(text: str) -> Meant:
    """Read `name` or `kind:name`. A beginning that is no kind of engine belongs to the name."""
    kind, _, name = text.partition(":")
    return Meant(canonical(name), kind) if name and kind in recipes.RECIPES else Meant(canonical(text))


def offered(listed: Sequence[str], kind: str, renamed: Sequence[tuple[str, str]], aliases: Aliases) -> dict[str, str]:
    """Clients' names of the models that an engine lists, and the engine's name of each, in the order of its list.

    `renamed`: the backend's own aliases (engine's name, client's name), which take the place of the engine's names and
    win over them. `aliases`: the fleet's, which come beside the engine's names and never hide one of them.
    """
    instead = {canonical(served): canonical(model) for served, model in renamed}
    found: dict[str, str] = {}
    own: dict[str, str] = {}
    for served in sorted(listed, key=lambda one: canonical(one) != one):  # where both are listed, the bare one is meant
        own.setdefault(canonical(served), served)
    for name, served in own.items():
        if name in instead:
            found.setdefault(instead[name], served)
    for name, served in own.items():
        if name not in instead:
            found.setdefault(name, served)
    for model, choices in aliases.items():
        for choice in choices:
            if model not in found and choice.kind in (None, kind) and choice.name in own:
                found[model] = own[choice.name]
    place = {served: index for index, served in reversed(list(enumerate(listed)))}
    return dict(sorted(found.items(), key=lambda one: place[one[1]]))
