"""One run: a fleet, its clients, a policy, from the first request to the last reply.

Forbidden here: judging the outcome (`result.py` does).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from pharos.core.policy import POLICIES
from pharos.sim.asks import Ask, Session
from pharos.sim.engine import Engine
from pharos.sim.rivals import RIVALS, Direct
from pharos.sim.routers import Ended, Instance, Router
from pharos.sim.spec import FleetSpec
from pharos.sim.timeline import Timeline

POLICY_NAMES: Final = (*POLICIES, *RIVALS)
"""Those of Pharos first."""
SYNC_S: Final = 0.2
"""Seconds between what instances tell each other: `peers` shall do so five times a second."""
LEARNED: Final = 50
"""Requests of one target after which its estimates shall be good."""
STUCK: Final = 50_000_000
"""Events after which a run is given up: something plans itself for ever."""


class Sample(Struct, frozen=True, gc=False):
    """One request as its client met it. Times in seconds."""

    kind: str
    key: str
    arrived_at: float
    ttft_s: float
    """From the request to the first token, wherever it waited."""
    wait_s: float
    """Until its prompt began to be processed: queues and loads."""
    work_s: float
    """From then to the end of the reply."""
    prompt_tokens: int
    cached_tokens: int
    predicted_s: float | None = None
    """Load and prefill as Pharos foresaw them; `None`: it did not, or the time tells nothing of the target."""
    start_s: float | None = None
    """What came instead, from dispatch to the first token."""


class Outcome(Struct, frozen=True):
    """Everything that a run shows."""

    samples: list[Sample]
    refused: int
    loads: int
    """Models brought into memory."""
    fell_back: int
    """Times that the calibration took over."""
    asked: int
    held: int
    """Requests and slots that routers still held at the end: 0 unless something was lost."""
    wrong: float | None = None
    """Share of the predictions of cached prompts that were wrong by half; `None`: none was made."""
    spreads: Mapping[str, float] = {}
    """By target, how far estimates were off, the median of |log(predicted/actual)|, after its first `LEARNED` requests.
    """


class Plan(Struct, frozen=True):
    """What to run."""

    fleet: FleetSpec
    policy: str
    duration_s: float
    """No request is made after that; those under way come to their end."""
    seed: int = 1
    instances: int = 1
    sync_s: float = SYNC_S
    without: frozenset[str] = frozenset()
    """Parts of Pharos that are left out, to see what they are worth: of `PARTS`."""


def run(plan: Plan, sessions: Sequence[Session]) -> Outcome:
    """Run it. The same plan and equal sessions give the same outcome."""
    timeline = Timeline()
    engines = {spec.name: Engine(spec, timeline) for spec in plan.fleet.engines}
    chance = random.Random(f"{plan.seed} {plan.policy}")
    routers = [_router(plan, engines, timeline, chance) for _ in range(plan.instances)]
    clients = _Clients(plan, timeline, routers)
    for session in sessions:
        clients.go_on(session)
    _share(plan, timeline, routers)
    events = 0
    while clients.open and timeline.step():
        events += 1
        if events > STUCK:
            raise RuntimeError(f"{plan.policy} on {plan.fleet.name}: no end after {events} events")
    return Outcome(
        samples=clients.samples,
        refused=clients.refused,
        loads=sum(engine.loads for engine in engines.values()),
        fell_back=sum(router.fell_back for router in routers if isinstance(router, Instance)),
        asked=clients.asked,
        held=sum(router.held for router in routers),
        wrong=_wrong([router for router in routers if isinstance(router, Instance)]),
        spreads={f"{number}/{name}": its for number, router in enumerate(routers) for name, its in _spreads(router)},
    )


def _spreads(router: Router) -> Iterator[tuple[str, float]]:
    if isinstance(router, Instance):
        for (backend, model), errors in router.errors.items():
            if len(errors) > LEARNED:
                yield f"{backend}/{model}", median(errors[LEARNED:])


def _wrong(instances: Sequence[Instance]) -> float | None:
    wrong = sum(one.outcomes["wrong_prediction"] for one in instances)
    made = wrong + sum(one.outcomes["predicted_hit"] for one in instances)
    return wrong / made if made else None


def _router(plan: Plan, engines: dict[str, Engine], timeline: Timeline, chance: random.Random) -> Router:
    own = random.Random(chance.getrandbits(64))
    if plan.policy in POLICIES:
        return Instance(engines, timeline, plan.policy, own, has_peers=plan.instances > 1, without=plan.without)
    return Direct(engines, RIVALS[plan.policy](own))


def _share(plan: Plan, timeline: Timeline, routers: Sequence[Router]) -> None:
    """Let instances tell each other what caches hold and what they have in hand, again and again."""
    instances = [router for router in routers if isinstance(router, Instance)]
    if len(instances) < 2:  # noqa: PLR2004 - it takes two to tell
        return

    names = {one: str(number) for number, one in enumerate(instances)}

    def tick() -> None:
        for teller, news, report in [(one, one.told(), one.report()) for one in instances]:
            for other in instances:
                if other is not teller:
                    other.take(news)
                    if "gauges" not in plan.without:
                        other.hear(names[teller], report)
        timeline.after(plan.sync_s, tick)

    timeline.after(plan.sync_s, tick)


class _Clients:
    """Sessions under way."""

    def __init__(self, plan: Plan, timeline: Timeline, routers: Sequence[Router]) -> None:
        self.samples: list[Sample] = []
        self.refused = 0
        self.asked = 0
        self.open = 0
        """Sessions that are not done."""
        self._until = plan.duration_s
        self._timeline = timeline
        self._routers = routers

    def go_on(self, session: Session) -> None:
        """Plan its next request."""
        turn = session.next()
        if turn is None or self._timeline.now + turn.pause_s > self._until:
            return
        ask = turn.ask
        self.open += 1
        self._timeline.after(turn.pause_s, lambda: self._ask(session, ask))

    def _ask(self, session: Session, ask: Ask) -> None:
        arrived_at = self._timeline.now
        router = self._routers[self.asked % len(self._routers)]
        self.asked += 1

        def ended(what: Ended) -> None:
            self.open -= 1
            if what.job is None:
                self.refused += 1
            else:
                self.samples.append(_sample(what, ask, arrived_at))
            self.go_on(session)

        router.submit(ask, ended)


def _sample(what: Ended, ask: Ask, arrived_at: float) -> Sample:
    job = what.job
    if job is None or job.started_at is None or job.first_at is None or job.ended_at is None:
        raise ValueError(f"{what!r} has not ended")
    return Sample(
        ask.kind,
        ask.key,
        arrived_at,
        job.first_at - arrived_at,
        job.started_at - arrived_at,
        job.ended_at - job.started_at,
        ask.prompt_tokens,
        job.cached_tokens,
        what.predicted_s,
        None if what.predicted_s is None else job.first_at - job.sent_at,
    )
