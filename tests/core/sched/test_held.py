"""What engines that cache by slot still hold: prompts in use, prompts that made room, and how many are kept."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Feedback
from pharos.core.prefix import Chain
from pharos.core.sched import Lease, Ledger
from pharos.core.sched.held import MOST_LINKS, MOST_PROMPTS, Held
from tests.core.fleet.given import backend, publish, target, warm
from tests.core.sched.given import ask, lease, world

TOOLS = 7


def chat(number: int, turns: int = 1) -> Chain:
    """The common instructions of 4,000 bytes, and turns of 1,000 each (question and reply) of one conversation."""
    links = [TOOLS, *[number * 1000 + place for place in range(2 * turns - 1)]]
    return Chain(tuple(links), tuple(4000 + 1000 * place for place in range(len(links))))


def after(*chats: Chain, most: int = MOST_PROMPTS) -> Held:
    """A target on which these were served, one after the other."""
    made = Held(0)
    made.most = most
    for number, chain in enumerate(chats):
        made.begin(number, chain)
        made.end(number, chain, 0)
    return made


def test_a_prompt_is_held_once_it_has_ended() -> None:
    held = Held(0)
    held.begin(1, chat(1))
    assert held.reach(chat(1, 2)) == 0
    assert held.end(1, chat(1), 0) is None
    assert held.reach(chat(1, 2)) == 5000
    assert held.reach(Chain((9,), (100,))) == 0
    assert repr(held) == f"<Held 1 prompts of {MOST_PROMPTS}>"


def test_a_reply_is_held_with_its_prompt_as_far_as_the_next_turn_has_it() -> None:
    held = Held(0)
    held.begin(1, chat(1))
    held.end(1, chat(1), 300)
    assert held.reach(chat(1, 2)) == 5300
    assert held.reach(chat(1)) == 5000, "the same again has no reply in it"
    held.begin(2, chat(1))
    held.end(2, chat(1), 9000)
    assert held.reach(chat(1, 2)) == 6000, "what was said of it was shorter"
    other = Chain((TOOLS, 1, 2, 3), (4000, 4100, 4200, 4300))
    assert held.reach(other) == 4000, "a beginning that goes on otherwise has no reply"


def test_a_beginning_that_is_in_use_is_nobody_elses() -> None:
    held = after(chat(1))
    assert held.reach(chat(2)) == 4000
    held.begin(9, chat(1, 2))
    assert held.reach(chat(2)) == 0
    held.end(9, chat(1, 2), 0)
    assert held.reach(chat(2)) == 4000


def test_of_two_that_begin_alike_the_one_used_longest_ago_is_taken_and_the_other_is_left() -> None:
    held = Held(0)
    for number in (1, 2):
        held.begin(number, chat(number))
    for number in (1, 2):
        held.end(number, chat(number), 0)
    held.begin(3, chat(3))
    assert (held.reach(chat(1, 2)), held.reach(chat(2, 2))) == (4000, 5000)


def test_what_a_slot_holds_little_of_is_not_taken_from_it() -> None:
    short = Chain((TOOLS, 1), (4000, 100_000))
    held = after(Chain((TOOLS,), (4000,)))
    held.begin(9, short)
    assert held.reach(chat(2)) == 4000


def test_one_that_fails_leaves_what_was_there_before_as_far_as_both_begin_alike() -> None:
    held = after(chat(1))
    held.begin(9, chat(2))
    assert held.end(9, chat(2), None) == 0
    assert held.reach(chat(1, 2)) == 4000
    held = Held(0)
    held.begin(1, chat(1))
    held.end(1, chat(1), None)
    assert len(held) == 0


def test_one_that_began_before_the_cache_was_lost_leaves_nothing() -> None:
    held = Held(1)
    assert held.end(5, chat(1), 0) is None
    assert len(held) == 0


def test_the_oldest_makes_room_and_those_that_run_do_not() -> None:
    alone = [Chain((number,), (5000,)) for number in range(5)]
    held = after(*alone[:3], most=2)
    assert [held.reach(chain) for chain in alone[:3]] == [0, 5000, 5000]
    held.begin(8, alone[3])
    held.begin(9, alone[4])
    assert [held.reach(chain) for chain in alone[:3]] == [0, 0, 0]
    assert len(held) == 2


def test_memory_is_bounded() -> None:
    held = Held(0)
    for number in range(5):
        links = tuple(range(number * MOST_LINKS, number * MOST_LINKS + MOST_LINKS // 2))
        held.begin(number, Chain(links, tuple(range(1, len(links) + 1))))
        held.end(number, Chain(links, tuple(range(1, len(links) + 1))), 0)
    assert len(held) == 2
    whole = Chain(tuple(range(-MOST_LINKS - 1, 0)), tuple(range(1, MOST_LINKS + 2)))
    held.begin(9, whole)
    held.end(9, whole, 0)
    assert held.reach(whole) == 0, "one that is longer than all that fits is not kept"


def test_how_many_are_kept_is_learned_from_predictions_that_fail_and_from_surprises() -> None:
    held = Held(0)
    for _ in range(20):
        held.learn(4, 4, predicted=1000, cached=100, prompt=1200)
    assert held.most == 4
    held.learn(3, 4, predicted=1000, cached=100, prompt=1200)
    assert held.most == 4, "one of as many as it has slots was lost otherwise"
    held.learn(None, 4, predicted=1000, cached=100, prompt=1200)
    held.learn(2, 4, predicted=1000, cached=900, prompt=1200)
    assert held.most == 4
    held.learn(None, 4, predicted=0, cached=1000, prompt=1200)
    assert held.most == 8
    for _ in range(9):
        held.learn(None, 4, predicted=0, cached=1000, prompt=1200)
    assert held.most == MOST_PROMPTS


def test_a_request_that_went_as_foretold_teaches_nothing_of_how_many_are_kept() -> None:
    for predicted, cached, prompt in ((1000, 500, 1200), (1000, 1200, 1200), (0, 600, 1200)):
        assert not Held.teaches(predicted, cached, prompt)
        held = Held(0)
        held.most = 8
        held.learn(7, 4, predicted, cached, prompt)
        assert held.most == 8
    assert Held.teaches(1000, 499, 1200)
    assert Held.teaches(0, 601, 1200)


def test_one_that_ends_makes_room_too_once_fewer_are_kept_than_run() -> None:
    held = Held(0)
    for number in range(4):
        held.begin(number, chat(number))
    held.learn(2, 2, predicted=1000, cached=100, prompt=1200)
    assert held.most == 3
    held.end(0, chat(0), 0)
    assert held.reach(chat(0)) == 0
    held.end(1, chat(1), 0)
    assert (len(held), held.reach(chat(1))) == (3, 5000)


class LlamaSlots:
    """Slots as llama-server has them, without a cache in the host's memory: each keeps its last prompt."""

    def __init__(self, slots: int) -> None:
        self.held: list[tuple[int, ...]] = [()] * slots

    def serve(self, chain: Chain) -> int:
        """Bytes that were cached; one request at a time."""
        common = [sum(a == b for a, b in zip(held, chain.hashes, strict=False)) for held in self.held]
        best = max(range(len(common)), key=lambda slot: common[slot])
        slot = best if common[best] else 0
        del self.held[slot]
        self.held.append(chain.hashes)
        return chain.ends[common[best] - 1] if common[best] else 0


def test_predictions_are_right_on_slots_that_keep_nothing_beside_their_last_prompt() -> None:
    engine, chance, chats = LlamaSlots(4), Random(5), [1] * 9
    _, ledger = world(4)
    wrong = []
    for number in range(300):
        who = chance.randrange(9)
        chain = Chain(*(part[1:] for part in (chat(who, chats[who]).hashes, chat(who, chats[who]).ends)))
        chats[who] = chats[who] % 6 + 1
        held = lease(ledger.submit(ask(prompt_tokens=chain.ends[-1] // 4, chain=chain), 1.0, 0))
        told = engine.serve(chain) // 4
        done = Feedback(ok=True, cold=False, prompt_tokens=chain.ends[-1] // 4, cached_tokens=told, bytes_prompt=100)
        wrong += [number] if ledger.caches.ended(held, done, 1.0, streamed=True) == "wrong_prediction" else []
        ledger.release(held, 1.0, 0, done)
    assert len(wrong) <= 15, "until it is known how many are kept"
    assert not [number for number in wrong if number > 100]


def test_a_model_that_was_unloaded_holds_nothing_and_a_number_that_was_given_away_is_forgotten() -> None:
    fleet, ledger = world(4)
    first = serve(ledger, chat(1))
    assert first.generation == 0
    held = lease(ledger.submit(ask(chain=chat(1, 2)), 1.0, 0))
    assert held.decision.matched_tokens > 0
    target(fleet).generation += 1
    ledger.release(held, 1.0, 0, done())
    assert ledger.caches.known(ask(chain=chat(1, 2))).matched == {}
    serve(ledger, chat(1))
    publish(fleet, "gpu-1", 2.0, warm(4))
    assert ledger.caches.known(ask(chain=chat(1, 2))).matched != {}
    ledger.caches._forget(target(fleet).id)
    assert ledger.caches.known(ask(chain=chat(1, 2))).matched == {}
    assert backend(fleet).targets


def done() -> Feedback:
    return Feedback(ok=True, cold=False, prompt_tokens=1250, cached_tokens=0, completion_tokens=10)


def serve(ledger: Ledger, chain: Chain) -> Lease:
    held = lease(ledger.submit(ask(prompt_tokens=1250, chain=chain), 1.0, 0))
    ledger.caches.ended(held, done(), 1.0, streamed=True)
    ledger.release(held, 1.0, 0, done())
    return held


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.sampled_from(["whole", "failed", "later"]))))
def test_whatever_comes_a_table_of_links_counts_the_prompts_that_are_free(
    script: list[tuple[int, int, str]],
) -> None:
    held, open_ = Held(0), dict[int, Chain]()
    held.most = 4
    for number, (who, turns, end) in enumerate(script):
        chain = chat(who, turns)
        held.begin(number, chain)
        open_[number] = chain
        if end != "later":
            for lease_id in list(open_):
                held.end(lease_id, open_.pop(lease_id), 0 if end == "whole" else None)
        prompts = [one for one in held._prompts.values() if hasattr(one, "links")]
        links = [link for one in prompts for link in one.links]
        assert {link: links.count(link) for link in set(links)} == held._links
        assert held._count == len(links)
        best = max([sum(a == b for a, b in zip(one.links, chain.hashes, strict=False)) for one in prompts], default=0)
        assert held.reach(chain) == (chain.ends[best - 1] if best else 0)
