"""Scenario runs: people, views, figures; the runs on real engines themselves are `make scenario`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.bench.routing.chat import Chat
from hack.scenario import report, stand, views
from hack.scenario.__main__ import FileOf, parse, side_by_side, summary
from hack.scenario.people import Asked, Play, Way
from hack.scenario.presets import PRESETS, Kill, Preset, Role, shorter
from hack.scenario.summary import Summary, beside, calibration, compare, figures
from hack.scenario.talk import Voice, instructions
from hack.scenario.views import Tokens, disagreements
from tests.fakes.http import Reply
from tests.fakes.llamacpp import FakeLlamaCpp

ROLE = Role(kind="chat", count=2, key="people", turns=3, system=80, message=40, reply=4, think_s=0.001)
PRESET = Preset(name="coding", claim="c", roles=(ROLE,), engines=2)
BEFORE = """\
# TYPE pharos_requests_total counter
pharos_requests_total{key="people",model="m",status="200"} 5
# TYPE pharos_tokens_total counter
pharos_tokens_total{key="people",model="m",type="prompt"} 50
# TYPE pharos_ttft_seconds histogram
pharos_ttft_seconds_bucket{model="m",le="+Inf"} 5
pharos_ttft_seconds_count{model="m"} 5
pharos_ttft_seconds_sum{model="m"} 5
"""
AFTER = """\
# TYPE pharos_requests_total counter
pharos_requests_total{key="people",model="m",status="200"} 7
pharos_requests_total{key="people",model="m",status="502"} 0
# TYPE pharos_tokens_total counter
pharos_tokens_total{key="people",model="m",type="prompt"} 150
pharos_tokens_total{key="people",model="m",type="cached"} 20
pharos_tokens_total{key="people",model="m",type="completion"} 8
# TYPE pharos_ttft_seconds histogram
pharos_ttft_seconds_bucket{model="m",le="+Inf"} 7
pharos_ttft_seconds_count{model="m"} 7
pharos_ttft_seconds_sum{model="m"} 6
# TYPE pharos_prefix_predictions_total counter
pharos_prefix_predictions_total{source="local",outcome="predicted_hit"} 1
# TYPE pharos_decisions_total counter
pharos_decisions_total{stage="retry",outcome="retried"} 1
# TYPE pharos_model_fallen_back gauge
pharos_model_fallen_back{model="m"} 1
"""
PAGE = {
    "llamacpp:prompt_tokens_total": 40.0,
    "llamacpp:prompt_tokens_cached_total": 10.0,
    "llamacpp:tokens_predicted_total": 4.0,
}


def asked(at_s: float = 0.0, *, engine: str | None = "e1", key: str = "people", **told: Any) -> Asked:
    plain = {"first_s": 0.6, "whole_s": 2.0, "prompt_tokens": 50, "cached_tokens": 10, "reply_tokens": 4}
    return Asked("chat", 0, key, "m", 0, at_s, engine, Chat(**{**plain, **told}))


GOOD = [asked(engine="e1"), asked(1.0, engine="e2")]
COUNTED = {"e1": [PAGE], "e2": [PAGE]}


def told(**changes: Any) -> views.Pharos:
    return msgspec.structs.replace(views.pharos(BEFORE, AFTER), **changes)


def differences(
    runs: list[Asked], pharos: views.Pharos | None = None, counted: Any = COUNTED, *, whole: bool = True
) -> list[str]:
    own = views.engines(counted) if counted is not None else None
    return disagreements(views.clients(runs), pharos, own, is_whole=whole)


# --- people


def test_each_preset_has_a_claim_and_its_texts_can_be_made_shorter() -> None:
    assert set(PRESETS) == {"cold-burst", "coding", "noisy", "ops"}
    for preset in PRESETS.values():
        assert preset.claim
        assert all(role.models[-1] < preset.models for role in preset.roles)
        assert [role.system for role in shorter(preset, 0.5).roles] == [role.system // 2 for role in preset.roles]


def test_a_voice_says_the_same_for_a_seed_and_every_other_one_escapes() -> None:
    assert Voice(1, "chat", 1).say(100) == Voice(1, "chat", 1).say(100) != Voice(2, "chat", 1).say(100)
    said = {"text": Voice(1, "chat", 1).say(100)}
    bodies = [Voice(1, "chat", number).body(said) for number in (0, 1)]
    assert bodies[1].isascii()
    assert not bodies[0].isascii()
    assert [json.loads(body) for body in bodies] == [said, said]


def test_instructions_are_shared_by_a_kind_and_have_their_length() -> None:
    assert instructions("chat", 300) == instructions("chat", 300) != instructions("agent", 300)
    assert len(instructions("chat", 300)) == 300


async def test_people_ask_on_with_the_replies_that_they_got() -> None:
    async with FakeLlamaCpp() as engine:
        play = Play(PRESET, ["smollm2:135m"], Way(lambda _person, _sent: (engine.url, "e1"), {"people": "sk"}), seed=1)
        got = await play.run(_nobody)
        assert len(got) == len(engine.prompts) == 6
        assert all(one.chat.error is None and one.chat.text for one in got)
        longest = max((prompt.json()["messages"] for prompt in engine.prompts), key=len)
        assert [message["role"] for message in longest] == ["system", *["user", "assistant"] * 2, "user"]
        assert {prompt.headers["authorization"] for prompt in engine.prompts} == {"Bearer sk"}
        assert {message["content"] for message in longest if message["role"] == "assistant"} <= {
            one.chat.text for one in got
        }


async def test_people_ask_again_after_an_error_but_not_after_one_of_their_own() -> None:
    async with FakeLlamaCpp() as engine:
        way = Way(lambda _person, _sent: (engine.url, None), {})
        one = Preset(name="coding", claim="c", roles=(msgspec.structs.replace(ROLE, count=1, turns=1),))
        engine.refuse(Reply(400, b"too long"))
        assert [found.chat.error is None for found in await Play(one, ["m"], way, 1).run(_nobody)] == [False]
        engine.refuse(Reply(503, b"loading"))
        assert [found.chat.error is None for found in await Play(one, ["m"], way, 1).run(_nobody)] == [False, True]


async def test_an_engine_is_killed_when_the_preset_says_so() -> None:
    killed: list[int | None] = []
    done = asyncio.Event()

    async def kill(number: int | None) -> None:
        killed.append(number)
        done.set()

    async with FakeLlamaCpp() as engine:
        engine.hold()
        preset = msgspec.structs.replace(PRESET, kills=(Kill(0.0, 1),))
        playing = asyncio.create_task(
            Play(preset, ["m"], Way(lambda _person, _sent: (engine.url, "e1"), {}), 1).run(kill)
        )
        await done.wait()
        engine.release()
        await playing
    assert killed == [1]


async def _nobody(number: int | None) -> None:
    raise AssertionError(number)


def test_without_a_router_people_have_an_engine_of_their_own_or_take_turns() -> None:
    engines = stand.Stand({"e1": "http://1", "e2": "http://2"}, ["m"])
    direct, turns = (stand.baseline(engines, how).url for how in stand.BASELINES)
    assert [direct(0, sent)[1] for sent in range(3)] == ["e1"] * 3
    assert [turns(0, sent)[1] for sent in range(3)] == ["e1", "e2", "e1"]


def test_pharos_gets_names_addresses_and_hashes_of_keys() -> None:
    told_ = stand.pharos_config(stand.Stand({"e1": "http://1"}, ["m"]), 8090, ["people"], "least-load")
    assert told_["backends"] == [{"name": "e1", "url": "http://1"}]
    assert told_["policy"] == "least-load"
    assert stand.key_of("people") not in json.dumps(told_)


# --- views


def test_clients_see_replies_errors_and_where_they_went() -> None:
    seen = views.clients([*GOOD, asked(error="502 gone", first_s=None), asked(engine=None, prompt_tokens=None)])
    assert (seen.ok, seen.failed, seen.first_error, seen.uncounted) == (3, 1, "502 gone", 1)
    assert seen.by_engine["e1"] == Tokens(50, 10, 4)
    assert seen.by_engine["?"].prompt == 0
    assert seen.ttft_s == pytest.approx(0.6)


def test_pharos_is_read_by_how_much_its_counters_grew() -> None:
    found = told()
    assert found.by_status == {"200": 2}
    assert found.tokens == Tokens(100, 20, 8)
    assert (found.ttft_count, found.ttft_s, found.wait_s) == (2, 0.5, None)
    assert (found.predictions, found.retries, found.fallen_back) == ({"predicted_hit": 1}, 1, 1)


def test_an_engine_that_was_started_again_counts_with_all_its_lives() -> None:
    assert views.engines({"e1": [PAGE, PAGE], "e2": [{}]}) == {"e1": Tokens(100, 20, 8), "e2": Tokens()}


def test_views_that_agree_have_no_disagreement() -> None:
    assert differences(GOOD, told()) == []
    assert differences(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"by_status": {"200": 2, "429": 1}}, "clients made 2, Pharos counts 3"),
        ({"by_status": {"200": 1, "499": 1}}, "Pharos counts 1 with status 200"),
        ({"tokens": Tokens(100, 20, 7)}, "reply tokens: clients were told 8, Pharos counts 7"),
        ({"tokens": Tokens(101, 20, 8)}, "prompt tokens: clients were told 100, Pharos counts 101"),
        ({"ttft_count": 1}, "first tokens: clients had 2, Pharos counts 1"),
        ({"ttft_s": 0.9}, "a part cannot be longer than the whole"),
    ],
)
def test_what_pharos_counts_otherwise_is_said(changes: dict[str, Any], said: str) -> None:
    [found] = differences(GOOD, told(**changes))
    assert said in found


def test_what_an_engine_counts_otherwise_is_said() -> None:
    more = {**PAGE, "llamacpp:tokens_predicted_total": 9.0}
    [found] = differences(GOOD, told(), {"e1": [PAGE], "e2": [more]})
    assert found == "e2: reply tokens: replies said 4, the engine's own counter 9"


def test_an_engine_that_nobody_has_is_said() -> None:
    [found] = differences([*GOOD, asked(engine="e9", prompt_tokens=0, cached_tokens=0, reply_tokens=0)])
    assert "e9" in found


def test_replies_without_usage_are_said() -> None:
    found = differences([asked(prompt_tokens=None, cached_tokens=None, reply_tokens=None)], told(), None)
    assert any("told clients no tokens" in one for one in found)


def test_what_broke_off_lets_others_count_more_but_never_less() -> None:
    broken = [*GOOD, asked(error="broken", prompt_tokens=None, cached_tokens=None, reply_tokens=None)]
    more = {"e1": [{name: 2 * value for name, value in PAGE.items()}], "e2": [PAGE]}
    status = {"200": 2, "502": 1}
    assert differences(broken, told(by_status=status, tokens=Tokens(140, 30, 9)), more, whole=False) == []
    [found] = differences(broken, told(by_status=status, tokens=Tokens(90, 30, 9)), more, whole=False)
    assert "prompt tokens" in found


def test_engines_that_keep_no_counters_are_not_held_against_anybody() -> None:
    assert differences(GOOD, told(), None) == []


# --- figures


def test_a_run_is_shown_by_its_requests_and_by_keys_when_there_are_several() -> None:
    found = figures([*GOOD, asked(key="flood", first_s=5.0)], loads=2)
    assert (found["requests"], found["errors"], found["loads"]) == (3, 0, 2)
    assert found["TTFT p95 s of people"] == pytest.approx(0.6)
    assert found["TTFT p50 s of flood"] == 5.0
    assert found["cached share"] == pytest.approx(0.2)
    assert not any(name.endswith("of people") for name in figures(GOOD, None))


def test_an_engines_figures_come_from_prompts_that_are_long_enough() -> None:
    long = asked(10.0, prompt_tokens=300, cached_tokens=100, prefill_s=0.4)
    short = asked(20.0, prompt_tokens=50, cached_tokens=0, prefill_s=9.0)
    [(name, one)] = calibration([long, short]).items()
    assert (name, one.requests) == ("e1", 2)
    assert one.prefill_s_per_token == pytest.approx(0.002)
    assert calibration([short])["e1"].prefill_s_per_token is None


def test_ttft_is_shown_by_the_company_that_a_request_had() -> None:
    first, second, late = asked(0.0, first_s=0.1), asked(1.0, first_s=0.3), asked(50.0, first_s=0.2)
    there = [first, second, late]
    assert [beside(one, there) for one in there] == [0, 1, 0]
    assert calibration(there)["e1"].ttft_s_by_company == {"0": pytest.approx(0.15), "1": 0.3}


def runs(p50: float, seeds: tuple[int, ...] = (1, 2)) -> list[Summary]:
    engines = stand.Stand({"e1": "http://1", "e2": "http://2"}, ["m"])
    shown = [asked(engine="e1", first_s=p50), asked(9.0, engine="e2", first_s=p50)]
    return [summary(PRESET, "way", seed, shown, told(), COUNTED, engines) for seed in seeds]


def test_two_sets_of_runs_are_compared_seed_by_seed() -> None:
    found = {row.figure: row for row in compare(runs(2.0), runs(1.0, (2, 3)))}
    by = found["TTFT p50 s"].by
    assert by is not None
    assert (by.low, by.mean, by.high) == (-1.0, -1.0, -1.0)
    apart = {row.figure: row for row in compare(runs(2.0, (1,)), runs(1.0, (2,)))}
    assert apart["TTFT p50 s"].by is None


def test_disagreements_come_before_all_figures() -> None:
    [run] = runs(0.6, (1,))
    said = report.text(msgspec.structs.replace(run, disagreements=["the sky is green"]))
    assert said.index("the sky is green") < said.index("TTFT p50")
    assert "the views agree" in report.text(run)


def test_runs_are_kept_in_a_file_and_compared_from_there(tmp_path: Path) -> None:
    for name, p50 in (("a.json", 2.0), ("b.json", 1.0)):
        (tmp_path / name).write_bytes(msgspec.json.encode(FileOf(1, runs(p50))))
    said = side_by_side(tmp_path / "a.json", tmp_path / "b.json")
    assert "a.json | b.json" in said
    [line] = [line for line in said.splitlines() if "TTFT p50" in line]
    assert line.split() == ["TTFT", "p50", "s", "2", "|", "1", "|", "-1", "(-1", "to", "-1)", "less"]


@pytest.mark.parametrize("arguments", [["nonsense"], ["--repeat", "0"], ["--engines", "0"], ["--baseline", "x"]])
def test_what_cannot_be_played_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert "error" in capsys.readouterr().err
