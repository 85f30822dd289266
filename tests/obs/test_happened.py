from pharos.obs.happened import KEPT, LONGEST, Happened


def test_the_newest_event_comes_first_and_the_oldest_go() -> None:
    happened = Happened()
    for number in range(KEPT + 10):
        happened.add("info", f"event {number}", float(number), "gpu-1")
    told = happened.described()
    assert (told[0]["text"], told[-1]["text"], len(told)) == (f"event {KEPT + 9}", "event 10", KEPT)
    assert told[0] == {"at": KEPT + 9.0, "level": "info", "text": "event 109", "backend": "gpu-1", "count": 1}
    assert repr(happened) == "<Happened 100 of 100>"


def test_the_same_again_counts_up() -> None:
    happened = Happened()
    for at in (1.0, 2.0):
        happened.add("warning", "gpu-1 is down", at)
    happened.add("info", "gpu-1 is down", 3.0)
    assert [(one["at"], one["count"]) for one in happened.described()] == [(3.0, 1), (2.0, 2)]


def test_a_name_of_an_engine_can_neither_fill_the_memory_nor_break_a_line() -> None:
    happened = Happened()
    happened.add("info", "line\nbreak" + "x" * 10_000, 1.0)
    (one,) = happened.described()
    assert len(one["text"]) == LONGEST
    assert one["text"].startswith("line\\nbreak")
