import json

from pharos.core.engine.follow import NOTHING, Follow, followed_feeds
from pharos.core.engine.logline import log_line
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe, ProbeError
from pharos.core.signals import BACKEND, Found, Signal

LOG = Feed(FeedKind.LOG)
EVENTS = Feed(FeedKind.SSE, "/events")
NOW = 7.0


def never(_: Page) -> Found:
    raise AssertionError


class Counter:
    """Counts open requests of each model."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self.open = dict.fromkeys(models, 0)

    def feed(self, event: str, data: bytes) -> Found:
        if event != "inflight":
            return {}
        told = json.loads(data)
        if told["model"] not in self.open:
            raise ProbeError(DropReason.PARSE_ERROR, "a model that is not listed")
        self.open[told["model"]] += told["by"]
        return dict(self.open)


def counting(name: str = "counting", rank: int = 0) -> Probe:
    return Probe(name=name, signal=Signal.RUNNING, feed=EVENTS, parse=never, follow=Counter, rank=rank)


SLOTS = log_line("slots", Signal.CAPACITY, r"slots (?P<value>[0-9]+)")
SCRAPED = Probe(name="scraped", signal=Signal.MODELS, feed=Feed(FeedKind.GET, "/models"), parse=never)


def event(model: str, by: int = 1) -> bytes:
    return json.dumps({"model": model, "by": by}).encode()


def test_each_feed_that_is_followed_is_named_once() -> None:
    assert followed_feeds([SCRAPED, SLOTS, counting(), SLOTS]) == (LOG, EVENTS)
    assert followed_feeds([SCRAPED]) == ()


def test_a_line_is_shown_to_every_log_probe_and_its_value_never_grows_stale() -> None:
    follow = Follow([SLOTS, counting()], LOG, ())
    told = follow.line(b"x slots 4 y", NOW)
    (reading,) = told.readings.values()
    assert (reading.value, reading.at, reading.probe, reading.interval_s) == (4, NOW, "slots", None)
    assert reading.is_fresh(NOW + 1e9)
    assert follow.line(b"nothing of interest", NOW) is NOTHING
    assert repr(follow) == "<Follow 1 probes>"


def test_a_matching_line_with_an_unusable_value_fails_its_probe_and_no_other() -> None:
    other = log_line("other", Signal.RUNNING, r"^slots .* run (?P<value>[0-9]+)")
    told = Follow([SLOTS, other], LOG, ()).line(b"slots 0 run 3", NOW)
    assert [one.probe for one in told.failed] == ["slots"]
    assert list(told.readings) == [(Signal.RUNNING, BACKEND)]


def test_events_are_counted_from_the_start_of_a_stream() -> None:
    follow = Follow([counting()], EVENTS, ("a", "b"))
    assert follow.event("other", b"{}", NOW) is NOTHING
    follow.event("inflight", event("a"), NOW)
    told = follow.event("inflight", event("a"), NOW + 1)
    assert {model: reading.value for (_, model), reading in told.readings.items()} == {"a": 2, "b": 0}
    again = Follow([counting()], EVENTS, ("a",))
    assert again.event("inflight", event("a"), NOW).readings[Signal.RUNNING, "a"].value == 1


def test_a_reader_that_met_something_unreadable_says_nothing_more_on_this_stream() -> None:
    follow = Follow([counting()], EVENTS, ("a",))
    assert [one.detail for one in follow.event("inflight", event("z"), NOW).failed] == ["a model that is not listed"]
    assert follow.event("inflight", event("a"), NOW) is NOTHING


def test_of_two_readers_of_one_thing_the_more_trusted_one_stands() -> None:
    for order in ((counting("low", 1), counting("high")), (counting("high"), counting("low", 1))):
        told = Follow(order, EVENTS, ("a",)).event("inflight", event("a"), NOW)
        assert told.readings[Signal.RUNNING, "a"].probe == "high"
