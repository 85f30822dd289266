"""Names that clients use for models: what can be wrong with them, and what the fleet takes.

Forbidden here: knowing which models engines list. An alias that no engine fulfils is a matter of `pharos doctor`.
"""

from collections.abc import Iterator, Mapping, Sequence

from pharos.config.forms import short
from pharos.config.problems import Problem
from pharos.config.schema import Backend, Config
from pharos.core.engine import recipes
from pharos.core.fleet.names import Aliases, canonical, meant

_LONGEST = 256


def check(config: Config) -> Iterator[Problem]:
    """Everything wrong with the aliases of backends and of the whole fleet."""
    for index, backend in enumerate(config.backends):
        yield from _of_backend(f"backends[{index}].aliases", backend)
    yield from _of_fleet(config.aliases)


def of_fleet(config: Config) -> Aliases:
    """The aliases of the whole fleet, as it takes them."""
    return {canonical(model): tuple(map(meant, choices)) for model, choices in config.aliases.items()}


def _of_backend(path: str, backend: Backend) -> Iterator[Problem]:
    engines: dict[str, str] = {}
    clients: dict[str, str] = {}
    for served, model in backend.aliases.items():
        place = f"{path}.{served}"
        fault = _fault(served) or _fault(model)
        if fault is not None:
            yield Problem(place, fault)
            continue
        same = engines.setdefault(canonical(served), served)
        if same != served:
            yield Problem(place, f"{short(served)} and {short(same)} are one model: keep one of them")
        taken = clients.setdefault(canonical(model), served)
        if taken != served:
            yield Problem(
                place, f"{short(model)} stands for {short(taken)} already: a name means one model of a backend"
            )


def _of_fleet(aliases: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    leads = {canonical(model): [meant(choice).name for choice in choices] for model, choices in aliases.items()}
    first: dict[str, str] = {}
    for model, choices in aliases.items():
        same = first.setdefault(canonical(model), model)
        if same != model:
            fault: str | None = f"{short(model)} and {short(same)} are one name: keep one of them"
        else:
            fault = next(filter(None, map(_fault, (model, *choices))), None) or _choices_fault(model, choices, leads)
        if fault is not None:
            yield Problem(f"aliases.{model}", fault)


def _choices_fault(model: str, choices: Sequence[str], leads: Mapping[str, Sequence[str]]) -> str | None:
    if not choices:
        return "names no model: write the engines' names of it, as in [qwen2.5:3b, vllm:Qwen/Qwen2.5-3B]"
    for choice in choices:
        if choice.endswith(":") and choice[:-1] in recipes.RECIPES:
            return f"{choice} is a kind without a name: write {choice}NAME"
    name = canonical(model)
    if name in leads[name]:
        return "stands for itself: clients can use the engines' own names anyway"
    if _comes_back(name, leads):
        return "stands for an alias that leads back to it: write the engines' names instead"
    return None


def _comes_back(name: str, leads: Mapping[str, Sequence[str]]) -> bool:
    """Whether following aliases from one leads to it again."""
    seen: set[str] = set()
    ahead = list(leads[name])
    while ahead:
        one = ahead.pop()
        if one == name:
            return True
        if one not in seen:
            seen.add(one)
            ahead += leads.get(one, ())
    return False


def _fault(name: str) -> str | None:
    if not 1 <= len(name) <= _LONGEST:
        return f"a model's name has 1 to {_LONGEST} characters, this one {len(name)}"
    if name != name.strip() or not name.isprintable():
        return f"{short(name)!r}: a model's name has no line breaks and no blanks at its ends"
    return None
