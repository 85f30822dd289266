"""One decision as a line of the decision log, written and read by the same type. Never any text of a request.

Forbidden here: files. What a line holds is enough to decide again (`pharos replay`) and to explain (`pharos explain`).
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct

from pharos.core.engine.usage_fields import Usage
from pharos.core.policy import Candidate, Decision, RouteRequest, Score
from pharos.proxy.done import Done

FORM = 1
"""Goes up when a field changes its meaning or goes away, not when one is added."""
HASH_BYTES = 8


class Head(Struct, frozen=True):
    """The line with which a file begins, and each process that goes on with it: hashes compare below it only."""

    pharos_decisions: int
    version: str
    at: float


class Tokens(Struct, frozen=True):
    """As the engine counted them; `None`: it did not tell."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class Prefix(Struct, frozen=True):
    """The prompt's beginnings, as they can be compared inside one file."""

    hashes: tuple[str, ...]
    """Salted with what nobody keeps: equal beginnings are equal, and nothing else can be found out."""
    ends: tuple[int, ...]
    """Bytes up to each."""


class CandidateRow(Struct, frozen=True):
    """One candidate: what it would cost, in estimated seconds, and all that was known of it."""

    target: str
    wait_s: float
    load_s: float
    prefill_s: float
    kv_s: float
    feasible: bool
    why_not: str | None
    state: Candidate


class DecisionRow(Struct, frozen=True):
    """One request: why it went where it did, and what came."""

    request_id: str
    at: float
    """When it arrived, seconds since 1970."""
    path: str
    policy: str
    """The policy that chose."""
    key: str | None = None
    model: str | None = None
    target: str | None = None
    status: int = 0
    reason: str = ""
    stages: tuple[str, ...] = ()
    predicted: float | None = None
    """Load and prefill as foreseen, seconds."""
    actual: float | None = None
    """Dispatch to the first token, seconds."""
    queue_wait_s: float = 0.0
    duration_s: float = 0.0
    usage: Tokens | None = None
    request: RouteRequest | None = None
    """What the policy knew of it; `None`: it was refused before there was a choice."""
    chosen: int | None = None
    """Place among the candidates."""
    candidates: tuple[CandidateRow, ...] = ()
    prefix: Prefix | None = None


def salted(salt: bytes) -> Callable[[int], str]:
    """How a file writes the hash of a prompt's beginning."""

    def write(link: int) -> str:
        return blake2b(link.to_bytes(HASH_BYTES, "little"), key=salt, digest_size=HASH_BYTES).hexdigest()

    return write


def row(done: Done, policy: str, write_hash: Callable[[int], str]) -> DecisionRow:
    """The line of a finished request."""
    choice, chain = done.choice, done.chain
    decision = choice if isinstance(choice, Decision) else None
    return DecisionRow(
        request_id=done.request_id,
        at=done.at_wall,
        path=done.path,
        policy=policy,
        key=done.key,
        model=done.model,
        target=done.target,
        status=done.status,
        reason=done.reason,
        stages=tuple(f"{stage}={outcome}" for stage, outcome in done.stages),
        predicted=done.predicted_s,
        actual=done.ttft_s,
        queue_wait_s=done.queue_wait_s,
        duration_s=done.duration_s,
        usage=_tokens(done.usage),
        request=decision.req if decision is not None else None,
        chosen=decision.chosen if decision is not None else None,
        candidates=_candidates(decision.candidates, decision.scores) if decision is not None else (),
        prefix=None if chain is None else Prefix(tuple(map(write_hash, chain.hashes)), chain.ends),
    )


def _tokens(usage: Usage | None) -> Tokens | None:
    return Tokens(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) if usage is not None else None


def _candidates(candidates: Sequence[Candidate], scores: Sequence[Score]) -> tuple[CandidateRow, ...]:
    return tuple(
        CandidateRow(
            one.name, one.wait_s, one.load_s, one.prefill_s, one.kv_s, one.feasible, one.why_not or None, candidate
        )
        for candidate, one in zip(candidates, scores, strict=True)
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DecisionRow)


def encode(line: DecisionRow | Head) -> bytes:
    """As a line, its end included. Half of a surrogate pair in an engine's name becomes a question mark."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        import json

        plain = json.loads(json.dumps(msgspec.to_builtins(line)).encode("ascii"))
        return _encoder.encode(_printable(plain)) + b"\n"


def decode(line: bytes | str) -> DecisionRow | None:
    """A line of a decision log; `None` for one with which a process began. Raises `ValueError`."""
    data = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
    if data.lstrip().startswith(b'{"pharos_decisions"'):
        msgspec.json.decode(data, type=Head)
        return None
    return _decoder.decode(data)


def _printable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {str(_printable(key)): _printable(item) for key, item in value.items()}
    return value
