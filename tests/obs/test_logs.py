import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.obs import logs
from pharos.obs.logs import LONGEST_MESSAGE, LONGEST_TRACE, LONGEST_VALUE, JsonLines, TextLines
from pharos.obs.request_log import request_fields
from pharos.proxy.done import Done

EVIL = "m\nlevel=INFO msg=forged\r\x1b[2J\u2028\x85\x00\ud800"
FORMS = pytest.mark.parametrize("form", [TextLines(), JsonLines()])


def written(form: logging.Formatter, message: str, fields: dict[str, Any] | None = None) -> str:
    record = logging.LogRecord("pharos", logging.WARNING, __file__, 1, "model %s", (message,), None)
    record.fields = fields
    return form.format(record)


def failed(form: logging.Formatter, message: str) -> str:
    try:
        raise ValueError(message)  # noqa: TRY301
    except ValueError:
        record = logging.LogRecord("pharos", logging.ERROR, __file__, 1, "it died", (), sys.exc_info())
    return form.format(record)


@FORMS
def test_no_text_of_others_starts_a_line_of_its_own(form: logging.Formatter) -> None:
    line = written(form, EVIL, {"version": EVIL, "gone": None})
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert line.count("forged") == 2


@FORMS
@given(st.text())
def test_whatever_a_text_holds_it_stays_one_printable_line(form: logging.Formatter, text: str) -> None:
    assert written(form, text, {"model": text}).isprintable()


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=LONGEST_VALUE))
def test_a_reader_of_json_gets_a_text_back_as_it_was(text: str) -> None:
    assert json.loads(written(JsonLines(), "x", {"model": text}))["model"] == text


def test_a_line_of_json_has_what_the_line_of_text_has() -> None:
    row = json.loads(written(JsonLines(), "x", {"backend": "gpu"}))
    assert (row["level"], row["message"], row["backend"]) == ("warning", "model x", "gpu")
    text = written(TextLines(), "x", {"backend": "gpu"})
    assert text.endswith("WARNING model x backend=gpu")


def test_a_value_cannot_pass_for_another_field() -> None:
    line = written(TextLines(), "x", {"model": 'm status=200 "quoted" \\', "target": "", "ttft_s": 0.1234567})
    assert line.endswith('model="m status=200 \\"quoted\\" \\\\" target="" ttft_s=0.123457')


@FORMS
def test_a_long_text_is_cut(form: logging.Formatter) -> None:
    line = written(form, "x" * 10 * LONGEST_MESSAGE, {"model": "y" * 10 * LONGEST_VALUE})
    assert len(line) < LONGEST_MESSAGE + LONGEST_VALUE + 200
    assert line.count("…") == 2


def test_a_trace_in_text_has_lines_that_no_event_can_be_taken_for() -> None:
    first, *more = failed(TextLines(), "x\n2026-11-30T12:00:00+00:00 INFO forged\x1b").split("\n")
    assert first.endswith("ERROR   it died")
    assert more
    assert all(line.startswith("  | ") and line.isprintable() for line in more)


def test_a_trace_in_json_is_a_field() -> None:
    line = failed(JsonLines(), "x\nforged")
    assert line.isprintable()
    assert "ValueError: x\nforged" in json.loads(line)["trace"]


@FORMS
def test_a_trace_is_bounded(form: logging.Formatter) -> None:
    assert len(failed(form, "x" * 2 * LONGEST_TRACE)) < LONGEST_TRACE + 500


def test_a_request_s_line_has_names_times_counts_and_decisions(finished: Callable[..., Done]) -> None:
    fields = request_fields(finished(queue_wait_s=0.0, duration_s=1.5))
    assert fields == {
        "request_id": "r1", "route": "/v1/chat/completions", "key": "alice", "model": "tiny", "target": "tiny@gpu-1",
        "status": 200, "reason": "warm, est 0.4 s", "stages": "admission=ok route=warm upstream=ok", "stream": True,
        "predicted_s": 0.4, "ttft_s": 0.3, "first_byte_s": 0.2, "overhead_s": 0.0012, "queue_wait_s": 0.0,
        "duration_s": 1.5, "prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 7,
    }  # fmt: skip
    text = written(TextLines(), "x", fields)
    assert ' reason="warm, est 0.4 s" stages="admission=ok route=warm upstream=ok" ' in text


def test_what_is_unknown_of_a_request_is_left_out_of_text_and_null_in_json(finished: Callable[..., Done]) -> None:
    fields = request_fields(finished(key=None, target=None, choice=None, usage=None, ttft_s=None, predicted_s=None))
    words = {word.partition("=")[0] for word in written(TextLines(), "x", fields).split()}
    assert not {"key", "target", "reason", "ttft_s", "prompt_tokens"} & words
    row = json.loads(written(JsonLines(), "x", fields))
    assert [row[name] for name in ("key", "ttft_s", "prompt_tokens")] == [None, None, None]


@pytest.fixture
def _own_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("pharos")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


@pytest.mark.usefixtures("_own_logging")
@pytest.mark.parametrize(("form", "begin"), [("json", '{"time"'), ("text", "20")])
def test_pharos_logs_from_its_level_on_and_libraries_only_trouble(
    monkeypatch: pytest.MonkeyPatch, form: logs.Format, begin: str
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    logs.set_up("info", form)
    logging.getLogger("pharos.x").debug("no")
    logging.getLogger("pharos.x").info("ours")
    logging.getLogger("library").info("no")
    logging.getLogger("library").warning("theirs")
    lines = out.getvalue().splitlines()
    assert [("ours" in line, "theirs" in line) for line in lines] == [(True, False), (False, True)]
    assert all(line.startswith(begin) for line in lines)
