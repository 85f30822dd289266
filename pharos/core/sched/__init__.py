"""Who gets which slot when: leases, the fair queue, grants. Synchronous; every change returns the work it makes.

Forbidden here: waiting (the gate does) and judging targets (the policy does).
"""

from pharos.core.sched.lease import Expiry, Grant, Lease, Refusal, RefusalOutcome, Submit, Ticket
from pharos.core.sched.ledger import Ledger

__all__ = ["Expiry", "Grant", "Lease", "Ledger", "Refusal", "RefusalOutcome", "Submit", "Ticket"]
