"""Which backends there are: what the configuration lists, and what each kind of discovery finds, as one list.

Forbidden here: finding any.
"""

from collections.abc import Callable, Iterable, Sequence

from pharos.control.scraper import Scraper
from pharos.control.shelf import Shelf
from pharos.core.fleet import BackendSpec, Event


class Backends:
    """The wanted backends of all sources. Nothing is watched before each source has told its first list."""

    def __init__(
        self,
        scraper: Scraper,
        shelf: Shelf,
        sources: Sequence[str],
        *,
        on_event: Callable[[Event], None],
        on_change: Callable[[], None],
    ) -> None:
        """`sources`: their names, those first whose backends win where two have one name or one URL.

        `on_change` is told each time that the list was set.
        """
        self._on_change = on_change
        self._scraper = scraper
        self._shelf = shelf
        self._on_event = on_event
        self._told: dict[str, tuple[BackendSpec, ...] | None] = dict.fromkeys(sources)
        self._said: set[tuple[str, str, str]] = set()

    def __repr__(self) -> str:
        return f"<Backends of {', '.join(self._told)}>"

    def tell(self, source: str, specs: Iterable[BackendSpec]) -> None:
        """These are all that a source has now."""
        self._told[source] = tuple(specs)
        if any(told is None for told in self._told.values()):
            return
        wanted = self._merged()
        self._scraper.set_backends(wanted)
        self._shelf.keep(spec.name for spec in wanted)
        self._on_change()

    def _merged(self) -> list[BackendSpec]:
        names: dict[str, str] = {}
        urls: dict[str, BackendSpec] = {}
        wanted: list[BackendSpec] = []
        doubled: set[tuple[str, str, str]] = set()
        for source, told in self._told.items():
            for spec in told if told is not None else ():
                same = urls.get(spec.url)
                if spec.name in names:  # of the same source, too: the fleet takes no two of one name
                    doubled.add((source, spec.name, f"there is a backend of that name from {names[spec.name]} already"))
                elif same is not None and names[same.name] != source:
                    doubled.add((source, spec.name, f"it is {same.name} from {names[same.name]}"))
                else:
                    names[spec.name] = source
                    urls[spec.url] = spec
                    wanted.append(spec)
        for source, name, why in sorted(doubled - self._said):
            text = f"{name}, found by {source}, is left out: {why}"
            self._on_event(Event("discovery", "", name, "warning", text))
        self._said = doubled
        return wanted
