"""Who gets which slot when: leases, the fair queue, grants. Synchronous; every change returns the work it makes.

Forbidden here: waiting (the gate does) and judging targets (the policy does).
"""

from pharos.core.sched.caching import Caches
from pharos.core.sched.elsewhere import Elsewhere, Report
from pharos.core.sched.lease import Expiry, Grant, Lease, Refusal, RefusalOutcome, Submit, Ticket
from pharos.core.sched.ledger import Ledger
from pharos.core.sched.places import Place

__all__ = [
    "Caches",
    "Elsewhere",
    "Expiry",
    "Grant",
    "Lease",
    "Ledger",
    "Place",
    "Refusal",
    "RefusalOutcome",
    "Report",
    "Submit",
    "Ticket",
]
