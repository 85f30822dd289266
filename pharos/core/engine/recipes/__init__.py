"""All recipes, found by looking: a new engine is a new module here with a `RECIPE`.

Forbidden here: naming an engine.
"""

import importlib
import pkgutil
from collections.abc import Iterable

from pharos.core.engine.recipe import Recipe


def _collect() -> Iterable[Recipe]:
    for module in pkgutil.iter_modules(__path__):
        recipe: Recipe = importlib.import_module(f"{__name__}.{module.name}").RECIPE
        yield recipe


RECIPES: dict[str, Recipe] = {recipe.kind: recipe for recipe in sorted(_collect(), key=lambda recipe: recipe.rank)}
"""Kind -> recipe, in the order in which fingerprints are tried."""


def by_kind(kind: str) -> Recipe:
    """Return the recipe of a kind. Raises `KeyError` for a kind that there is none of."""
    return RECIPES[kind]
