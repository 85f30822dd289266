import json
import logging
from typing import Any

import pytest

from pharos.obs.logs import JsonLines, TextLines

EVIL = "m\nlevel=INFO msg=forged\r\x1b[2J\u2028\x00\ud800"


def written(form: logging.Formatter, message: str, fields: dict[str, Any] | None = None) -> str:
    record = logging.LogRecord("pharos", logging.WARNING, __file__, 1, "model %s", (message,), None)
    record.fields = fields
    return form.format(record)


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_no_text_of_others_starts_a_line_of_its_own(form: logging.Formatter) -> None:
    line = written(form, EVIL, {"version": EVIL, "gone": None})
    assert not {"\n", "\r", "\x1b", "\x00", "\ud800"} & set(line)
    assert line.count("forged") == 2


def test_a_line_of_json_has_what_the_line_of_text_has() -> None:
    row = json.loads(written(JsonLines(), "x", {"backend": "gpu"}))
    assert (row["level"], row["message"], row["backend"]) == ("warning", "model x", "gpu")
    text = written(TextLines(), "x", {"backend": "gpu"})
    assert text.endswith("WARNING model x backend=gpu")
