"""What an engine does again and again is said once a minute, and nothing is lost from the counts."""

from pharos.control.repeats import EVERY_S, MOST_OTHERS, Repeats
from pharos.core.fleet.events import Event

T0 = 1000.0


def event(outcome: str, text: str, stage: str = "generation") -> Event:
    return Event(stage, outcome, "gpu", "info", text)


def test_fifty_models_of_one_restart_are_one_line_and_a_sum_a_minute_later() -> None:
    repeats = Repeats()
    told = [repeats.admit(event("restarted", f"m{n} is gone"), T0 + second) for second in range(3) for n in range(50)]
    assert [one.text for one in told if one.text] == ["m0 is gone"]
    assert {one.outcome for one in told} == {"restarted"}
    assert repeats.summaries(T0 + EVERY_S - 1) == []
    assert repr(repeats) == "<Repeats 149 not said>"
    (line,) = repeats.summaries(T0 + EVERY_S)
    assert (line.outcome, line.text) == ("", "m49 is gone (and 148 more like it within a minute)")


def test_an_engine_that_never_stops_has_one_line_a_minute_and_a_calm_one_begins_anew() -> None:
    repeats, lines = Repeats(), list[str]()
    for second in range(600):
        lines += [one.text for one in repeats.summaries(T0 + second)]
        lines += [text for text in [repeats.admit(event("new_version", f"v{second}"), T0 + second).text] if text]
    assert len(lines) == 10
    assert len(repeats.summaries(T0 + 700)) == 1
    assert repeats.summaries(T0 + 800) == []
    assert repeats.admit(event("new_version", "later"), T0 + 801).text == "later"


def test_other_changes_are_said_a_few_times_and_other_stages_always() -> None:
    repeats = Repeats()
    texts = [repeats.admit(event("unloaded", f"m{n}"), T0).text for n in range(MOST_OTHERS + 2)]
    assert texts == [*(f"m{n}" for n in range(MOST_OTHERS)), "", ""]
    assert all(repeats.admit(event("", "down", "scrape"), T0).text for _ in range(9))
    assert repeats.admit(event("unloaded", ""), T0).text == ""
