"""The benchmark of routers: its texts, its numbers, its page; the runs themselves are `make bench-routing`."""

import asyncio
import itertools
import json
from pathlib import Path

import aiohttp
import msgspec
import pytest

from hack.bench.routing import report, text
from hack.bench.routing.__main__ import Made, how, merged
from hack.bench.routing.chat import Chat, chat
from hack.bench.routing.clients import Clients, Plan, Sample, body
from hack.bench.routing.fakes import double_of
from hack.bench.routing.fleets import FLEETS, Counted, Engine, Fleet
from hack.bench.routing.result import Found, Measures, difference, hits, measure, summary
from hack.bench.routing.routers import by_model, pharos_config, routers
from pharos.sim import workload
from pharos.sim.asks import Ask
from pharos.sim.result import Range
from tests.fakes.http import Hang, Raw, Reply
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.llamacpp_router import FakeRouter

FLEET = Fleet((Engine("a", 1, ("x",)), Engine("b", 2, ("x", "y"))))
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
PLAN = Plan({"x": "http://x"}, users=4, seed=1, duration_s=5)


def asks(count: int, seed: int = 1) -> list[Ask]:
    """The first questions of every client of a seed."""
    made = workload.sessions(workload.Mix(8, ("x",)), seed)
    turns = [one.next() for one in made for _ in range(count)]
    return [turn.ask for turn in turns if turn is not None]


def sample(first_s: float | None = 1.0, *, is_whole: bool = True, **told: object) -> Sample:
    return Sample("chat", "x", 0.0, Chat(first_s=first_s, whole_s=9.0, **told), is_whole=is_whole)  # type: ignore[arg-type]


def found(router: str, p50: float, seed: int = 1, loads: int = 0) -> Found:
    measures = msgspec.structs.replace(
        measure([sample(p50)], Counted(loads=loads)), ttft_p50_s=p50, ttft_p95_s=2 * p50, ttft_p99_s=3 * p50
    )
    return Found("fakes", router, seed, measures)


# --- what is asked


@pytest.mark.parametrize("nbytes", [8, 9, 100, 511, 512, 5000])
def test_a_text_has_its_length_and_is_the_same_again(nbytes: int) -> None:
    assert len(text.text(7, nbytes).encode()) == nbytes
    assert text.text(7, nbytes) == text.text(7, nbytes)


def test_texts_of_different_numbers_part_at_once() -> None:
    assert text.text(1, 100)[:5] != text.text(2, 100)[:5]


def test_a_conversation_goes_on_with_the_words_that_it_had() -> None:
    chatter = workload.sessions(workload.Mix(1, ("x",), is_bursty=False), 1)[0]
    turns = [turn.ask for turn in (chatter.next() for _ in range(12)) if turn is not None]
    pairs = [(a, b) for a, b in itertools.pairwise(turns) if len(b.chain.hashes) > len(a.chain.hashes)]
    assert pairs, "no conversation has a second turn"
    for before, after in pairs:
        said, more = text.messages(before, 0.5), text.messages(after, 0.5)
        assert more[: len(said)] == said
        assert [one["role"] for one in more[len(said) :]] == ["assistant", "user"]


def test_prompts_are_as_long_as_the_simulator_says() -> None:
    for ask in asks(2):
        said = sum(len(one["content"]) for one in text.messages(ask, 1.0))
        assert said == pytest.approx(ask.prompt_bytes, abs=text.LEAST_BYTES * len(ask.chain.ends))


def test_only_who_wants_one_token_tells_routers_how_long_its_reply_will_be() -> None:
    for ask in asks(1):
        asked = body(ask, PLAN)
        assert asked["n_predict"] >= 1
        assert ("max_tokens" in asked) == (ask.kind == "classifier")


# --- how it is asked


async def test_a_chat_shows_its_first_token_and_what_the_engine_counted(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaCpp() as engine:
        asked = {
            "model": "smollm2:135m",
            "stream": True,
            "n_predict": 3,
            "messages": [{"role": "user", "content": "a"}],
        }
        one = await chat(session, engine.url, json.dumps(asked).encode(), Chat(), keep=True)
        assert one.error is None
        assert one.first_s is not None
        assert 0 < one.first_s <= one.whole_s
        assert (one.prompt_tokens, one.cached_tokens, one.reply_tokens) == (engine.prompted, 0, 3)
        assert one.text


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Reply(503, b'{"error": "loading"}'), "503"),
        (Raw(STREAM + b"Connection: close\r\n\r\ndata: {}\n\n"), "[DONE]"),
        (Raw(STREAM + b'\r\ndata: {"error": "gone"}\n\n'), "gone"),
        (Raw(STREAM + b'Content-Length: 99\r\n\r\ndata: {"error": "gone"}\n\n'), "gone"),
    ],
)  # fmt: skip
async def test_a_chat_that_fails_says_why(session: aiohttp.ClientSession, answer: Reply | Raw, why: str) -> None:
    async with FakeLlamaCpp() as engine:
        engine.answers["/v1/chat/completions"] = answer
        one = await chat(session, engine.url, b"{}", Chat())
        assert why in str(one.error)


async def test_clients_ask_until_the_time_is_up_and_call_off_what_has_no_end() -> None:
    async with FakeLlamaCpp() as engine:
        urls = {"smollm2:135m": engine.url}
        served = Clients(Plan(urls, users=3, seed=1, duration_s=0.3, pause=0.005, length=0.1, reply=0.1))
        await served.run()
        assert served.samples
        assert all(one.is_whole and one.chat.error is None for one in served.samples)
        engine.answers["/v1/chat/completions"] = Hang()
        stuck = Clients(Plan(urls, users=3, seed=1, duration_s=0.3, drain_s=0.1, pause=0.005))
        await stuck.run()
        assert stuck.samples
        assert not any(one.is_whole for one in stuck.samples)
        assert all(one.chat.whole_s > 0 for one in stuck.samples)


async def test_the_doubles_of_a_fleet_take_the_time_that_it_says(session: aiohttp.ClientSession) -> None:
    by_name = {spec.name: spec for spec in FLEETS["fakes"].engines}
    spent: dict[str, float] = {}
    for name in ("fast-1", "slow", "single"):
        double, took = double_of(by_name[name], 0), list[float]()

        async def pace(seconds: float, took: list[float] = took) -> None:
            took.append(seconds)
            await asyncio.sleep(0)

        double.pace = pace
        async with double:
            asked = {"model": by_name[name].models[0], "stream": True, "n_predict": 2,
                     "messages": [{"role": "user", "content": "word " * 4000}]}  # fmt: skip
            one = await chat(session, double.url, json.dumps(asked).encode(), Chat())
            assert one.error is None
            prefill = double.costs.base_s + (one.prompt_tokens or 0) * double.costs.prefill_s_per_token
            assert sum(one == pytest.approx(prefill) for one in took) == 1
            assert (double.costs.load_s in took) == isinstance(double, FakeRouter)
            spent[name] = sum(took)
    assert spent["slow"] > 2 * spent["fast-1"]
    assert spent["single"] > spent["fast-1"] + 5


# --- what came of it


def test_a_run_counts_errors_and_what_did_not_end() -> None:
    its = measure([sample(1.0), sample(None, error="503 no"), sample(None, is_whole=False)], Counted(loads=4))
    assert (its.requests, its.errors, its.unfinished, its.loads) == (3, 1, 1, 4)
    assert its.first_error == "503 no"


def test_what_was_called_off_counts_with_the_time_that_it_had_waited() -> None:
    assert measure([sample(1.0), sample(None, is_whole=False)], Counted()).ttft_p50_s == 5.0


def test_a_run_in_which_nobody_got_a_token_is_none() -> None:
    with pytest.raises(ValueError, match="503 no"):
        measure([sample(None, error="503 no")], Counted())


def test_hits_are_the_engines_own_count_before_that_of_the_replies() -> None:
    told = [sample(prompt_tokens=10, cached_tokens=5), sample()]
    assert hits(told, Counted(prompted=100, found=90)) == 0.9
    assert hits(told, Counted()) == 0.5
    assert hits([sample()], Counted()) is None


def test_a_summary_has_the_mean_over_seeds_and_no_value_for_what_nobody_told() -> None:
    runs = [measure([sample(one)], Counted()) for one in (1.0, 2.0, 3.0)]
    ranges = summary(runs)
    p50 = ranges["ttft_p50_s"]
    assert p50 is not None
    assert p50.low < p50.mean == 2.0 < p50.high
    assert ranges["hits"] is None


def test_runs_differ_seed_by_seed() -> None:
    ours, theirs = ([found("r", value).measures for value in values] for values in ((1.0, 5.0), (2.0, 6.0)))
    assert difference(ours, theirs, "ttft_p50_s") == Range(-1.0, -1.0, -1.0)
    assert difference(ours, theirs, "hits") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(1.0, 2.0, "s below smg"), (2.0, 1.0, "has TTFT p50 1 s above smg"), (1.0, 1.0, "within chance")],
)
def test_the_page_says_where_pharos_stands_against_the_best_other_router(ours: float, theirs: float, said: str) -> None:
    runs = [found("pharos", ours, seed) for seed in (1, 2)] + [found("smg", theirs, seed) for seed in (1, 2)]
    runs += [found("nginx round-robin", 9.0, seed) for seed in (1, 2)]
    assert said in report.verdicts(runs)[0]
    assert not any("round-robin" in one for one in report.verdicts(runs))


def test_the_page_says_where_pharos_is_no_better_than_turns() -> None:
    runs = [found("pharos", 2.0, loads=3), found("nginx round-robin", 1.0, loads=3)]
    said = report.verdicts(runs)
    assert any("is not better than nginx round-robin in TTFT p95" in one for one in said)
    assert any("makes no fewer loads" in one for one in said)


def test_the_bench_part_is_renewed_and_the_rest_of_the_page_stays() -> None:
    page = "# T\n\n<!-- simulator: made by `make sim` -->\nold\n<!-- /simulator -->\n"
    once = report.renewed(page, "first")
    assert once.startswith(page.rstrip())
    assert "first" in once
    twice = report.renewed(once + "\ntail\n", "second")
    assert "first" not in twice
    assert twice.endswith("tail\n")
    assert report.renewed("", "x").startswith(report.TITLE)


def test_a_table_has_a_row_for_each_router_and_the_plots_a_bar(tmp_path: Path) -> None:
    runs = [found(name, 1.0, seed) for name in ("pharos", "smg") for seed in (1, 2)]
    lines = report.markdown(runs).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 4
    paths = report.plots(runs, tmp_path)
    assert {path.name for path in paths} == {"bench-fakes-ttft-p50.svg", "bench-fakes-ttft-p95.svg"}
    part = report.section(runs, list(FLEETS.values()), routers(), paths, "how")
    assert "smg" in part
    assert all(path.name in part for path in paths)


def test_results_come_back_from_their_file() -> None:
    runs = [found("pharos", 1.0)]
    assert msgspec.json.decode(msgspec.json.encode(runs), type=list[Found]) == runs
    assert isinstance(runs[0].measures, Measures)


# --- what routers are told


def test_engines_are_listed_by_the_models_that_they_have() -> None:
    assert by_model(FLEET) == {"x": [1, 2], "y": [2]}


def test_pharos_is_told_addresses_and_nothing_of_the_engines(tmp_path: Path) -> None:
    told = pharos_config(FLEET, tmp_path, 0, [8090], [8081])
    assert told["backends"] == [{"name": "a", "url": "http://127.0.0.1:1"}, {"name": "b", "url": "http://127.0.0.1:2"}]
    assert "peers" not in told


def test_several_instances_know_each_other(tmp_path: Path) -> None:
    told = pharos_config(FLEET, tmp_path, 1, [8090, 8091, 8092], [8081, 8082, 8083])
    assert told["peers"]["members"] == ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"]
    assert told["peers"]["listen"].endswith(":8082")


def test_runs_of_several_files_are_put_together_and_the_last_one_counts() -> None:
    one, other = Made(1, "fakes", [found("smg", 1.0), found("pharos", 1.0)]), Made(1, "again", [found("smg", 2.0)])
    both = merged([one, other])
    assert both.how == "fakes; again"
    assert {run.router: run.measures.ttft_p50_s for run in both.runs} == {"smg": 2.0, "pharos": 1.0}


def test_the_page_tells_how_its_runs_were_made() -> None:
    told = how([found("smg", 1.0, 1), found("smg", 1.0, 2)], 0.25, quick=False)
    assert "fakes: 2 seeds of" in told
    assert "real" not in told
    assert told.endswith("0.25")
