"""What engines there are and what is known of each: backends, targets, views, averages, generations.

Forbidden here: fetching (control does it) and choosing (policy and scheduler do it).
"""

from pharos.core.fleet.backend import BUSY_FOR_S, Backend, BackendSpec, Slots, State, Target
from pharos.core.fleet.calibration import Calibration
from pharos.core.fleet.events import Event
from pharos.core.fleet.lengths import OutputLengths
from pharos.core.fleet.registry import Fleet
from pharos.core.fleet.roster import Changes
from pharos.core.fleet.stats import Ewma, Feedback, Stats
from pharos.core.fleet.view import View

__all__ = [
    "BUSY_FOR_S",
    "Backend",
    "BackendSpec",
    "Calibration",
    "Changes",
    "Event",
    "Ewma",
    "Feedback",
    "Fleet",
    "OutputLengths",
    "Slots",
    "State",
    "Stats",
    "Target",
    "View",
]
