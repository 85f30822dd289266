"""Any script of events leaves the ledger right: what is checked after every step is in `Script.check`."""

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pharos.core.engine.plan import Plan
from pharos.core.fleet import Feedback, Fleet, Target
from pharos.core.sched import Expiry, Grant, Lease, Ledger, Refusal, Submit, Ticket
from pharos.core.sched.line import PASSED_FOR_S
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, OLLAMA_LIKE, OPENAI, publish, spec
from tests.core.sched.given import ask

QUEUE = 6
MODELS = ("x", "y", "z")
SPECS = {
    "shared": spec("shared"),
    "silent": spec("silent"),
    "fixed": spec("fixed", capacity=1, memory_bytes=10),
}
PLANS: dict[str, Plan] = {"shared": LLAMACPP, "silent": OPENAI, "fixed": OLLAMA_LIKE}
pick_number = st.integers(0, 50)


class Script(RuleBasedStateMachine):
    """Three backends, three models, three keys; time passes as the script likes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.fleet = Fleet()
        self.fleet.set_backends(list(SPECS.values()), self.now)
        self.ledger = Ledger(self.fleet, queue_size=QUEUE, max_wait_s=40.0)
        self.waiting: dict[int, Submit] = {}
        self.held: list[Lease] = []
        self.past: list[Lease] = []
        self.ended: set[int] = set()
        self.ranks: dict[int, tuple[int, float]] = {}
        """By ticket, how long it takes and when it came."""
        for name in SPECS:
            publish(self.fleet, name, self.now, {Signal.CAPACITY: 2}, models=MODELS, plan=PLANS[name])

    # -- what may happen

    @rule(
        key=st.sampled_from("abc"),
        weight=st.integers(1, 3),
        model=st.sampled_from((*MODELS, "nope")),
        tokens=st.integers(0, 4000),
        expected=st.none() | st.floats(0, 500),
        matched=st.dictionaries(st.integers(0, 8), st.integers(1, 4000), max_size=2),
    )
    def submit(
        self, key: str, weight: int, model: str, tokens: int, expected: float | None, matched: dict[int, int]
    ) -> None:
        self.ask(ask(key, model, weight=weight, prompt_tokens=tokens, expected_tokens=expected, matched=matched))

    @precondition(lambda self: self.past)
    @rule(number=pick_number, held=st.booleans())
    def retry(self, *, number: int, held: bool) -> None:
        before = self.past[number % len(self.past)]
        exclude = frozenset({before.target.id}) if held else frozenset[int]()
        self.ask(ask(before.key, before.model, retry=True, exclude=exclude, absent_ok=not held))

    @rule(key=st.sampled_from("abc"), model=st.sampled_from(MODELS), names=st.sets(st.sampled_from(sorted(SPECS))))
    def submit_to_some(self, key: str, model: str, names: set[str]) -> None:
        backends = [self.fleet.backends[name] for name in names if name in self.fleet.backends]
        only = frozenset(backend.targets[model].id for backend in backends if model in backend.targets)
        self.ask(ask(key, model, only=only))

    @rule(model=st.sampled_from((*MODELS, "nope")), number=pick_number)
    def visit(self, model: str, number: int) -> None:
        before = repr(self.ledger)
        got = self.ledger.visit(ask(model=model), self.now, number)
        if isinstance(got, Lease):
            assert got.target in self.fleet.targets_for(model, self.now)
            assert self.ledger.release(got, self.now, number) == []
        assert repr(self.ledger) == before

    @precondition(lambda self: self.held)
    @rule(number=pick_number, ok=st.none() | st.booleans(), took=st.floats(0, 20))
    def release(self, number: int, *, ok: bool | None, took: float) -> None:
        lease = self.held.pop(number % len(self.held))
        self.past.append(lease)
        feedback = None if ok is None else Feedback(ok=ok, cold=lease.cold, ttft_s=took, duration_s=took)
        self.take(self.ledger.release(lease, self.now, number, feedback))

    @precondition(lambda self: self.past)
    @rule(number=pick_number)
    def release_again(self, number: int) -> None:
        before = repr(self.ledger)
        assert self.ledger.release(self.past[number % len(self.past)], self.now, 0) == []
        assert repr(self.ledger) == before

    @precondition(lambda self: self.waiting)
    @rule(number=pick_number)
    def cancel(self, number: int) -> None:
        ticket = sorted(self.waiting)[number % len(self.waiting)]
        del self.waiting[ticket]
        self.ended.add(ticket)
        self.take(self.ledger.cancel(ticket, self.now, number))

    @rule(number=pick_number)
    def cancel_what_is_gone(self, number: int) -> None:
        if number not in self.waiting:
            assert self.ledger.cancel(number, self.now, 0) == []

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 4.0, 16.0, 31.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.kick()

    @rule()
    def kick(self) -> None:
        self.take(self.ledger.kick(self.now, 1))
        deadline = self.ledger.next_deadline()
        assert deadline is None or deadline > self.now, "nobody due is left behind"

    @rule(
        name=st.sampled_from(sorted(SPECS)),
        capacity=st.none() | st.integers(0, 3),
        running=st.none() | st.integers(0, 3),
        residency=st.none() | st.sampled_from(Residency),
        models=st.sampled_from([MODELS, MODELS[:1], MODELS[1:]]),
        age=st.sampled_from([0.0, 0.4]),
    )
    def publish(self, name: str, age: float, models: tuple[str, ...], **values: Any) -> None:
        if name not in self.fleet.backends:
            return
        told = {Signal(what): value for what, value in values.items() if value is not None}
        told |= {Signal.SIZE_BYTES: 6}
        publish(
            self.fleet, name, self.now, told, models=models, plan=PLANS[name],
            at=self.now - age, started_at=self.now - age, read=frozenset(Signal),
        )  # fmt: skip
        self.kick()

    @rule(name=st.sampled_from(sorted(SPECS)), how=st.sampled_from(["eject", "unreachable", "starting", "timed_out"]))
    def trouble(self, name: str, how: str) -> None:
        backend = self.fleet.backends.get(name)
        if backend is None:
            return
        if how == "eject":
            self.fleet.eject(backend, "died", self.now, connected_at=self.now)
        elif how == "unreachable":
            self.fleet.unreachable(backend, "gone")
        elif how == "starting":
            self.fleet.starting(backend)
        else:
            self.fleet.timed_out(backend, self.now)
        self.kick()

    @rule(names=st.sets(st.sampled_from(sorted(SPECS))))
    def set_backends(self, names: set[str]) -> None:
        self.fleet.set_backends([SPECS[name] for name in sorted(names)], self.now)
        self.kick()

    @precondition(lambda self: self.waiting)
    @rule(number=pick_number)
    def ask_for_a_place(self, number: int) -> None:
        self.place(sorted(self.waiting)[number % len(self.waiting)])

    # -- bookkeeping

    def place(self, ticket: int) -> None:
        before = repr(self.ledger)
        place = self.ledger.place(ticket, self.now)
        assert place is not None
        assert 1 <= place.position <= self.ledger.waiting_by_model()[self.waiting[ticket].model]
        assert place.eta_s is None or 0.0 <= place.eta_s < math.inf
        assert repr(self.ledger) == before

    def ask(self, sub: Submit) -> None:
        before = self.ledger.waiting_by_model().get(sub.model, 0)
        got = self.ledger.submit(sub, self.now, 3)
        if isinstance(got, Lease):
            assert before == 0, "nobody is passed"
            self.grant(got)
            assert got.target.id not in sub.exclude
            assert sub.only is None or got.target.id in sub.only
        elif isinstance(got, Ticket):
            self.waiting[got.id] = sub
            waiter = self.ledger._queue.get(got.id)
            assert waiter is not None
            self.ranks[got.id] = (waiter.length, waiter.at)
            self.place(got.id)
            assert got.position == before + 1
            assert sub.retry or len(self.waiting) <= QUEUE
        else:
            assert isinstance(got, Refusal)
            assert got.text

    def take(self, news: list[Grant] | list[Grant | Expiry]) -> None:
        for item in news:
            assert item.ticket not in self.ended
            self.ended.add(item.ticket)
            sub = self.waiting.pop(item.ticket)
            if isinstance(item, Grant):
                self.grant(item.lease)
                assert (item.lease.key, item.lease.model) == (sub.key, sub.model)
                assert item.lease.target.id not in sub.exclude
                assert sub.only is None or item.lease.target.id in sub.only
                passed = [t for t, s in self.waiting.items() if alike(s) == alike(sub) and t < item.ticket]
                mine = self.ranks.pop(item.ticket)
                for ticket in passed:
                    length, came_at = self.ranks[ticket]
                    assert length > mine[0], "only longer ones are passed"
                    assert self.now - came_at < PASSED_FOR_S, "and only while they are young"
                    assert not sub.retry
                if not sub.retry:
                    assert not any(s.retry and alike(s)[:4] == alike(sub)[:4] for s in self.waiting.values())

    def grant(self, lease: Lease) -> None:
        target = lease.target
        assert target.backend.is_up(self.now)
        assert target.listed
        self.held.append(lease)
        capacity = capacity_of(target, self.now)
        on_slots = [it for it in self.held if it.slots is lease.slots]
        assert capacity is None or len(on_slots) <= max(capacity, 0), "no slot is granted twice"
        assert lease.id not in {it.id for it in self.past}

    # -- what always holds

    @invariant()
    def check(self) -> None:
        assert self.ledger.waiting == len(self.waiting)
        assert self.ledger.leased == len(self.held)
        assert sum(self.ledger.waiting_by_model().values()) == len(self.waiting)
        for lease in [*self.held, *self.past]:
            assert lease.slots.inflight == sum(it.slots is lease.slots for it in self.held)
            assert lease.target.inflight == sum(it.target is lease.target for it in self.held)
            assert lease.slots.progress.keys() <= {it.id for it in self.held if it.slots is lease.slots}

    def teardown(self) -> None:
        for _ in range(50):
            while self.held:
                self.release(0, ok=None, took=0.0)
            if self.waiting:
                self.time_passes(41.0)
        if self.waiting or self.held:
            return  # a rule failed
        self.check()
        assert repr(self.ledger) == "<Ledger 0 leased, 0 waiting>"
        assert self.ledger.next_deadline() is None
        assert all(lease.slots.inflight == 0 for lease in self.past)
        assert len(self.ledger._queue.accounts) == 0


def alike(sub: Submit) -> tuple[str, str, frozenset[int], frozenset[int] | None, bool]:
    return (sub.key, sub.model, sub.exclude, sub.only, sub.retry)


def capacity_of(target: Target, now: float) -> int | None:
    capacity = target.view(now).capacity
    return capacity if capacity is not None else target.backend.spec.capacity


Script.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestScript = Script.TestCase
