"""What instances share, a section each: who owns it merges it, the section writes it for the wire and reads it.

Forbidden here: sending, and one section knowing another.
"""

from pharos.peer.sections.gauges import Gauges
from pharos.peer.sections.learned import Learned
from pharos.peer.sections.prefixes import Prefixes
from pharos.peer.sections.responses import ResponseIds, Responses
from pharos.peer.sections.usage import Cells, Minutes

__all__ = ["Cells", "Gauges", "Learned", "Minutes", "Prefixes", "ResponseIds", "Responses"]
