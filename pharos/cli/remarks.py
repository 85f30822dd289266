"""What would surprise a person about a backend that was just looked at, its pages included.

Forbidden here: asking the engine anything.
"""

from pharos.control.inspect import Inspection
from pharos.core.engine import recipes
from pharos.core.fleet import Backend
from pharos.obs.remarks import of_backend


def remarks(backend: Backend, found: Inspection, now: float) -> tuple[str, ...]:
    """Every remark on one backend that was just read; `now` on the clock of its readings."""
    if found.plan is None:
        return ()
    return (*of_backend(backend, now), *recipes.by_kind(found.plan.kind).remarks(found.pages))
