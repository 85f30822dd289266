"""What a vLLM double says of itself: recorded pages with its numbers, names and data-parallel engines put in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.fakes import captures, exposition

SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class Gauges(msgspec.Struct, frozen=True):
    """What one engine last wrote into its gauges."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


class Counters(msgspec.Struct):
    """What one engine has done since its process began, beside what was recorded."""

    prompt_tokens: int = 0
    generated: int = 0
    looked_up: int = 0
    """Prompt tokens that were looked for in the cache."""
    found: int = 0
    finished: int = 0


def metrics(
    version: str,
    engines: Sequence[tuple[Gauges, Counters]],
    *,
    model: str,
    sleep_level: int,
    started: float,
    renamed: Mapping[str, str],
) -> bytes:
    """The text of /metrics. `started`: seconds by which its process is younger than the recorded one."""
    text = captures.state("vllm", version, "idle")["/metrics"].body
    if len(engines) > 1:
        text = b"".join(_of_each(line, len(engines)) for line in text.splitlines(keepends=True))
    for number, (gauges, counters) in enumerate(engines):
        text = _put(text, {"engine": str(number)}, gauges, counters, sleep_level)
    text = exposition.add(text, "process_start_time_seconds", started)
    recorded = json.loads(captures.state("vllm", version, "idle")["/v1/models"].body)["data"][0]["id"]
    if model != recorded:
        text = text.replace(f'model_name="{recorded}"'.encode(), f'model_name="{model}"'.encode())
    for old, new in renamed.items():
        text = re.sub(rb"\b%s\b" % re.escape(old.encode()), new.encode(), text)
    return text


def _of_each(line: bytes, count: int) -> bytes:
    """A line once for each engine, if it is of one."""
    if b'engine="0"' not in line:
        return line
    return b"".join(line.replace(b'engine="0"', b'engine="%d"' % number) for number in range(count))


def _put(text: bytes, one: dict[str, str], gauges: Gauges, counters: Counters, sleep_level: int) -> bytes:
    text = exposition.put(text, "vllm:num_requests_running", float(gauges.running), one)
    text = exposition.put(text, "vllm:num_requests_waiting", float(gauges.waiting), one)
    by_reason = {**one, "reason": "capacity"}
    text = exposition.put(text, "vllm:num_requests_waiting_by_reason", float(gauges.waiting), by_reason)
    text = exposition.put(text, "vllm:kv_cache_usage_perc", gauges.kv_usage, one)
    for level, state in enumerate(SLEEP_STATES):
        here = {**one, "sleep_state": state}
        text = exposition.put(text, "vllm:engine_sleep_state", float(level == sleep_level), here)
    text = exposition.add(text, "vllm:prompt_tokens_total", counters.prompt_tokens, one)
    text = exposition.add(text, "vllm:generation_tokens_total", counters.generated, one)
    text = exposition.add(text, "vllm:prefix_cache_queries_total", counters.looked_up, one)
    text = exposition.add(text, "vllm:prefix_cache_hits_total", counters.found, one)
    ended = {**one, "finished_reason": "length"}
    return exposition.add(text, "vllm:request_success_total", counters.finished, ended)


def blocks_of(version: str) -> tuple[int, int]:
    """Blocks of the recorded cache, and tokens of each."""
    text = captures.state("vllm", version, "idle")["/metrics"].body
    blocks = re.search(rb'num_gpu_blocks="(\d+)"', text)
    size = re.search(rb',block_size="(\d+)"', text)
    assert blocks is not None
    assert size is not None
    return int(blocks[1]), int(size[1])


def cards(version: str, names: Sequence[str], max_model_len: int | None) -> bytes:
    """The model list: one model by all its names."""
    body = captures.state("vllm", version, "idle")["/v1/models"].body
    listed = json.loads(body)
    if [card["id"] for card in listed["data"]] == list(names) and max_model_len is None:
        return body
    first = listed["data"][0]
    length = {"max_model_len": max_model_len} if max_model_len is not None else {}
    listed["data"] = [{**first, "id": name, **length} for name in names]
    return _dump(listed)


def recorded_names(version: str) -> tuple[str, ...]:
    listed = json.loads(captures.state("vllm", version, "idle")["/v1/models"].body)
    return tuple(card["id"] for card in listed["data"])


def recorded_length(version: str) -> int:
    listed = json.loads(captures.state("vllm", version, "idle")["/v1/models"].body)
    return int(listed["data"][0]["max_model_len"])


def settings(max_num_seqs: int, engines: int) -> bytes:
    """All its settings, which it tells in development mode only."""
    body = captures.state("vllm", "synthetic-sleep", "awake")["/server_info?config_format=json"].body
    told = json.loads(body)
    told["vllm_config"]["scheduler_config"]["max_num_seqs"] = max_num_seqs
    told["vllm_config"]["parallel_config"]["data_parallel_size"] = engines
    told["vllm_config"]["parallel_config"]["data_parallel_size_local"] = engines
    return _dump(told)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
