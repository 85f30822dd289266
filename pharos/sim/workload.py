"""People, agents, classifiers and bursts: sessions made by chance from one seed, the same for every policy.

Forbidden here: time. A session says how long it pauses; what it asks does not depend on when it is answered.
"""

import random
from hashlib import blake2b

from msgspec import Struct

from pharos.core.prefix import Chain
from pharos.sim.asks import Ask, Session, Turn
from pharos.sim.spec import assumed

KEYS = 4
"""API keys among which users are spread."""
AGENT_EVERY = 4
"""Of so many users one is an agent."""
CLASSIFIER_EVERY = 6
"""For so many users there is one classifier beside them."""
BURST = 6
"""Requests that come at once."""
BURST_EVERY_S = 120.0
SPREAD = 0.8
"""Of lengths, in logarithms: as replies in Azure's trace (a quarter are below 85 tokens, a quarter above 395)."""
LONGEST = 4000
"""Tokens of the longest message."""
START_S = 30.0
"""Users come within so many seconds."""
MIN_TURNS = 1
POPULAR = (0, 1, 0, 2, 0, 1)
"""Which model each next user has: half of them the first, a third the second, a sixth the third."""


class Mix(Struct, frozen=True):
    """How many there are of each."""

    users: int
    models: tuple[str, ...]
    is_bursty: bool = True


def sessions(mix: Mix, seed: int) -> list[Session]:
    """All clients of a run."""
    made: list[Session] = []
    for number in range(mix.users):
        kind = Agent if number % AGENT_EVERY == AGENT_EVERY - 1 else Chatter
        made.append(kind(mix, number, seed))
    made += [Classifier(mix, mix.users + number, seed) for number in range(mix.users // CLASSIFIER_EVERY)]
    if mix.is_bursty:
        made += [Burst(mix, number, seed) for number in range(BURST)]
    return made


class Talk:
    """A conversation as it grows: the chain of its messages."""

    def __init__(self, name: str, bytes_per_token: float) -> None:
        self._state = name.encode()
        self._bytes_per_token = bytes_per_token
        self._hashes: list[int] = []
        self._ends: list[int] = []

    def say(self, what: str, tokens: int) -> None:
        """Add a message. `what` stands for its text: the same after the same is the same."""
        self._state = blake2b(what.encode(), key=self._state[-64:], digest_size=16).digest()
        self._hashes.append(int.from_bytes(self._state[:8], "little"))
        end = self._ends[-1] if self._ends else 0
        self._ends.append(end + max(round(tokens * self._bytes_per_token), 1))

    def chain(self) -> Chain:
        """As the prefix index sees it."""
        return Chain(tuple(self._hashes), tuple(self._ends))

    @property
    def tokens(self) -> int:
        """Of all messages, as the engine counts."""
        return max(round((self._ends[-1] if self._ends else 0) / self._bytes_per_token), 1)


class Client:
    """What all have in common: their own chance, key, and model."""

    kind = ""

    def __init__(self, mix: Mix, number: int, seed: int) -> None:
        self.chance = random.Random(f"{seed} {self.kind} {number}")
        self.number = number
        self.key = f"key-{number // AGENT_EVERY % KEYS}"
        self.model = mix.models[min(POPULAR[number % len(POPULAR)], len(mix.models) - 1)]
        self.bytes_per_token = self.chance.uniform(
            assumed("sim_bytes_per_token_least"), assumed("sim_bytes_per_token_most")
        )
        self._talks = 0
        self._is_first = True

    def tokens(self, median: float) -> int:
        """A length around a median."""
        return max(1, min(round(median * self.chance.lognormvariate(0.0, SPREAD)), LONGEST))

    def pause(self, mean_s: float) -> float:
        """A pause around a mean; the first request comes at any time of the beginning."""
        if self._is_first:
            self._is_first = False
            return self.chance.uniform(0.0, START_S)
        return self.chance.expovariate(1 / mean_s)

    def new_talk(self, instructions: str, tokens: float) -> Talk:
        """Begin a conversation with instructions that others may share."""
        self._talks += 1
        talk = Talk(self.model, self.bytes_per_token)
        talk.say(instructions, round(tokens))
        return talk

    def ask(self, talk: Talk, words: str, tokens: int, reply: int, max_tokens: int | None = None) -> Ask:
        """Say something in a conversation, and let its reply be part of it."""
        talk.say(words, tokens)
        chain, prompt = talk.chain(), talk.tokens
        talk.say(f"reply to {words}", reply)
        return Ask(
            kind=self.kind,
            key=self.key,
            model=self.model,
            chain=chain,
            after=talk.chain(),
            prompt_tokens=prompt,
            output_tokens=reply,
            max_tokens=max_tokens,
            bytes_per_token=self.bytes_per_token,
        )

    @property
    def words(self) -> str:
        """Something that nobody else says, and that is never said twice."""
        return f"{self.kind} {self.number} {self._talks} {self.chance.getrandbits(60)}"


class Talker(Client):
    """One who has conversations, one after the other."""

    def __init__(self, mix: Mix, number: int, seed: int) -> None:
        super().__init__(mix, number, seed)
        self._left = 0
        self._talk: Talk | None = None

    def begin(self, mean_turns: float, instructions: str, tokens: float) -> Talk:
        """The conversation that goes on, or a new one."""
        if self._left <= 0 or self._talk is None:
            self._left = max(MIN_TURNS, round(self.chance.expovariate(1 / mean_turns)))
            self._talk = self.new_talk(instructions, tokens)
        self._left -= 1
        return self._talk


class Chatter(Talker):
    """A person who chats, with the instructions that the users of a key share."""

    kind = "chat"

    def next(self) -> Turn:
        """See `Session.next`."""
        talk = self.begin(assumed("sim_turns"), f"instructions of {self.key}", assumed("sim_system_tokens"))
        pause = self.pause(assumed("sim_think_s"))
        said, reply = self.tokens(assumed("sim_message_tokens")), self.tokens(assumed("sim_reply_tokens"))
        return Turn(pause, self.ask(talk, self.words, said, reply))


class Agent(Talker):
    """A program that works in steps: a long prompt that grows, short replies, short pauses."""

    kind = "agent"

    def next(self) -> Turn:
        """See `Session.next`."""
        talk = self.begin(assumed("sim_agent_turns"), "tools of the agent", assumed("sim_agent_tokens"))
        pause = self.pause(assumed("sim_agent_think_s"))
        said, reply = self.tokens(assumed("sim_message_tokens")), self.tokens(assumed("sim_agent_reply_tokens"))
        return Turn(pause, self.ask(talk, self.words, said, reply))


class Classifier(Client):
    """A program that asks for one token of a text that it has not asked about before."""

    kind = "classifier"

    def next(self) -> Turn:
        """See `Session.next`."""
        most = assumed("sim_classifier_tokens")
        talk = self.new_talk("what to classify", most / 2)
        return Turn(self.pause(assumed("sim_agent_think_s")), self.ask(talk, self.words, round(most / 2), 1, 1))


class Burst(Client):
    """One of several that ask at the same time, again and again."""

    kind = "burst"

    def __init__(self, mix: Mix, number: int, seed: int) -> None:
        super().__init__(mix, number, seed)
        self.key = "key-burst"
        together = random.Random(f"{seed} burst")
        self._first_s = together.uniform(START_S, BURST_EVERY_S)
        self.model = together.choice(mix.models)

    def next(self) -> Turn:
        """See `Session.next`."""
        pause = self._first_s if self._talks == 0 else BURST_EVERY_S
        talk = self.new_talk("instructions of the job", assumed("sim_system_tokens"))
        said, reply = self.tokens(assumed("sim_message_tokens")), self.tokens(assumed("sim_reply_tokens"))
        return Turn(pause, self.ask(talk, self.words, said, reply, 512))


class Recorded:
    """Requests whose times are given: each is a session of its own, as nobody knows what waited for what."""

    def __init__(self, turn: Turn) -> None:
        self._turns: tuple[Turn, ...] = (turn,)

    def next(self) -> Turn | None:
        """See `Session.next`."""
        turns, self._turns = self._turns, ()
        return turns[0] if turns else None
