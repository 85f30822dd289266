"""All recipes, found by looking: a new engine is a new module here with a `RECIPE`.

Forbidden here: naming an engine.
"""

import importlib
import pkgutil

from pharos.core.engine.recipe import Recipe


def collect() -> dict[str, Recipe]:
    """Return kind -> recipe of every module in this package, in the order in which fingerprints are looked at.

    Raises `ValueError` when two modules are of one kind, or when not exactly one of them is the generic one.
    """
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    recipes: list[Recipe] = sorted((module.RECIPE for module in modules), key=lambda recipe: recipe.rank)
    found = {recipe.kind: recipe for recipe in recipes}
    if len(found) != len(recipes):
        raise ValueError("two recipes of one kind")
    if sum(recipe.fingerprint is None for recipe in recipes) != 1:
        raise ValueError("exactly one recipe is the generic one, without a fingerprint")
    return found


RECIPES: dict[str, Recipe] = collect()
"""What the package holds when the program starts."""


def by_kind(kind: str) -> Recipe:
    """Return the recipe of a kind. Raises `KeyError` for a kind that there is none of."""
    return RECIPES[kind]
