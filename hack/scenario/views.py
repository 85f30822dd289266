"""Three views of one run (clients, Pharos, engines), and where they disagree. Forbidden here: reading and running."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from hack.scenario.people import Asked

TTFT_SLACK_S: Final = 0.05
"""By which a client may see a first token earlier than Pharos: two processes read two clocks' ticks."""
LEFT: Final = "499"


class Tokens(msgspec.Struct, frozen=True):
    """Tokens as someone counted them."""

    prompt: int = 0
    cached: int = 0
    """Of the prompt."""
    reply: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.prompt + other.prompt, self.cached + other.cached, self.reply + other.reply)

    def __sub__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.prompt - other.prompt, self.cached - other.cached, self.reply - other.reply)


class Clients(msgspec.Struct, frozen=True):
    """What those who asked saw."""

    ok: int
    failed: int
    first_error: str
    uncounted: int
    """Replies in order that told no usage."""
    tokens: Tokens
    by_engine: dict[str, Tokens]
    ttft_s: float
    """Mean, of replies in order."""


class Pharos(msgspec.Struct, frozen=True):
    """What Pharos counted."""

    by_status: dict[str, int]
    tokens: Tokens
    ttft_count: int
    ttft_s: float | None
    """Mean, from dispatch; `None`: no reply."""
    wait_s: float | None
    """Mean in the queue."""
    predictions: dict[str, int]
    """Outcome to replies."""
    retries: int
    fallen_back: int
    """Models for which least-load chose at the end."""


Engines = dict[str, Tokens]
"""Engine to what it counted itself."""


def clients(asked: Sequence[Asked]) -> Clients:
    """The clients' view."""
    good = [one for one in asked if one.chat.error is None]
    bad = [one for one in asked if one.chat.error is not None]
    by_engine: dict[str, Tokens] = {}
    for one in good:
        name = one.engine if one.engine is not None else "?"
        by_engine[name] = by_engine.get(name, Tokens()) + _told(one)
    firsts = [one.chat.first_s for one in good if one.chat.first_s is not None]
    return Clients(
        ok=len(good),
        failed=len(bad),
        first_error=(bad[0].chat.error or "") if bad else "",
        uncounted=sum(one.chat.prompt_tokens is None for one in good),
        tokens=sum(by_engine.values(), Tokens()),
        by_engine=by_engine,
        ttft_s=sum(firsts) / len(firsts) if firsts else 0.0,
    )


def _told(one: Asked) -> Tokens:
    prompt, cached, reply = one.chat.prompt_tokens, one.chat.cached_tokens, one.chat.reply_tokens
    return Tokens(
        prompt if prompt is not None else 0, cached if cached is not None else 0, reply if reply is not None else 0
    )


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(text: str) -> Series:
    """Name and labels to value, of a page in Prometheus's form."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def grown(before: Series, after: Series) -> Series:
    """How much each series grew; what was not there before began at 0."""
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def total(found: Series, name: str, **labels: str) -> float:
    """Sum over all series of a name with these labels."""
    wanted = set(labels.items())
    return sum(value for (its, has), value in found.items() if its == name and wanted <= set(has))


def by_label(found: Series, name: str, label: str) -> dict[str, int]:
    """One label's values to the sums of their series, without those that are 0."""
    sums: dict[str, float] = {}
    for (its, has), value in found.items():
        if its == name and label in dict(has):
            sums[dict(has)[label]] = sums.get(dict(has)[label], 0.0) + value
    return {one: round(value) for one, value in sums.items() if value}


def pharos(before: str, after: str) -> Pharos:
    """Pharos's view: its /metrics before and after the run."""
    last = series(after)
    found = grown(series(before), last)
    kinds = by_label(found, "pharos_tokens_total", "type")
    return Pharos(
        by_status=by_label(found, "pharos_requests_total", "status"),
        tokens=Tokens(kinds.get("prompt", 0), kinds.get("cached", 0), kinds.get("completion", 0)),
        ttft_count=round(total(found, "pharos_ttft_seconds_count")),
        ttft_s=_mean(found, "pharos_ttft_seconds"),
        wait_s=_mean(found, "pharos_queue_wait_seconds"),
        predictions=by_label(found, "pharos_prefix_predictions_total", "outcome"),
        retries=round(total(found, "pharos_decisions_total", stage="retry")),
        fallen_back=round(total(last, "pharos_model_fallen_back")),
    )


def _mean(found: Series, histogram: str) -> float | None:
    count = total(found, f"{histogram}_count")
    return total(found, f"{histogram}_sum") / count if count else None


def disagreements(seen: Clients, told: Pharos | None, counted: Engines | None, *, is_whole: bool) -> list[str]:
    """Where the views differ, a sentence each. `is_whole`: no engine was killed and nothing broke off.

    Of `counted` nothing is said where engines keep no counters. When something broke off, engines may have counted
    more than anybody else, and a little less before they died.
    """
    found = list(_on_engines(seen, counted, is_whole=is_whole)) if counted is not None else []
    if told is not None:
        found += _on_requests(seen, told)
        found += _on_tokens("Pharos", told.tokens, seen, is_exact=not seen.failed)
        if told.ttft_s is not None and seen.ok and not seen.failed and told.ttft_s > seen.ttft_s + TTFT_SLACK_S:
            found.append(
                f"TTFT: Pharos counts {told.ttft_s:.3f} s from dispatch on, clients {seen.ttft_s:.3f} s in all: "
                "a part cannot be longer than the whole"
            )
    return found


def _on_requests(seen: Clients, told: Pharos) -> Iterable[str]:
    all_told = sum(told.by_status.values())
    if all_told != seen.ok + seen.failed:
        yield f"requests: clients made {seen.ok + seen.failed}, Pharos counts {all_told}"
    good = told.by_status.get("200", 0)
    if good < seen.ok or (good > seen.ok and not seen.failed):
        yield f"requests: clients had {seen.ok} good replies, Pharos counts {good} with status 200"
    if told.ttft_count < seen.ok:
        yield f"first tokens: clients had {seen.ok}, Pharos counts {told.ttft_count}"
    if seen.uncounted:
        yield f"usage: {seen.uncounted} replies told clients no tokens though they asked for them"


def _on_engines(seen: Clients, counted: Engines, *, is_whole: bool) -> Iterable[str]:
    for name in seen.by_engine:
        if name not in counted:
            yield f"{name}: clients were told that it replied, and no engine has that name"
    for name, own in counted.items():
        tokens = seen.by_engine.get(name, Tokens())
        for field in ("prompt", "cached", "reply"):
            here, there = getattr(tokens, field), getattr(own, field)
            if there < here or (is_whole and there != here):
                yield f"{name}: {field} tokens: replies said {here}, the engine's own counter {there}"


def _on_tokens(who: str, told: Tokens, seen: Clients, *, is_exact: bool) -> Iterable[str]:
    for field in ("prompt", "cached", "reply"):
        here, there = getattr(seen.tokens, field), getattr(told, field)
        if there < here or (is_exact and there != here):
            yield f"{field} tokens: clients were told {here}, {who} counts {there}"


def engines(pages: Mapping[str, Sequence[Mapping[str, float]]]) -> Engines:
    """The engines' view: of each, what each of its processes counted to its end (llama.cpp b11434 and b11549)."""
    found: Engines = {}
    for name, lives in pages.items():
        sums = {key: sum(life.get(key, 0.0) for life in lives) for life in lives for key in life}
        cached = sums.get("llamacpp:prompt_tokens_cached_total", 0.0)
        found[name] = Tokens(
            round(sums.get("llamacpp:prompt_tokens_total", 0.0) + cached),  # the counter has what was not cached
            round(cached),
            round(sums.get("llamacpp:tokens_predicted_total", 0.0)),
        )
    return found
