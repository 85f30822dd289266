"""Forms with a file: the model is found wherever it stands, and what two readers could see differently is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy.errors import ClientFault
from pharos.proxy.multipart import parse_multipart
from pharos.proxy.parse import ChatRequest
from pharos.proxy.table import ROUTES

ROUTE = ROUTES["/v1/audio/transcriptions"]
TYPE = "multipart/form-data; boundary=B"
PART = b"--B\r\n"
END = b"--B--\r\n"
MODEL = b'Content-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
FILE = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'


def read(body: bytes, content_type: str = TYPE) -> ChatRequest:
    return parse_multipart(body, ROUTE, content_type)


def form(*parts: bytes) -> bytes:
    return b"".join(PART + part for part in parts) + END


def refused(body: bytes, content_type: str = TYPE) -> ClientFault:
    with pytest.raises(ClientFault) as caught:
        read(body, content_type)
    return caught.value


@pytest.mark.parametrize("size", [0, 10, 3 * 2**20])
def test_the_model_is_found_before_and_behind_a_file(size: int) -> None:
    file = FILE + b"\r\n--x" * (size // 5) + b"\r\n"
    for body in (form(MODEL, file), form(file, MODEL), form(file, MODEL, file)):
        parsed = read(body)
        assert parsed.model == "whisper"
        assert parsed.model_span is not None
        assert body[slice(*parsed.model_span)] == b"whisper"
        assert parsed.prompt_bytes == 0


def test_a_form_may_end_without_a_line_break_and_a_file_may_hold_what_begins_no_line() -> None:
    assert read(form(MODEL)[:-2]).model == "whisper"
    assert read(form(MODEL) + b"\r\n").model == "whisper"
    assert read(form(FILE + b"x--B\r\n--" + b"\r\n", MODEL)).model == "whisper"


def test_a_file_may_lie_across_the_steps_of_the_search() -> None:
    for size in range(262_130, 262_160):
        assert read(form(FILE + b"x" * size + b"\r\n", MODEL)).model == "whisper"


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/form-data; boundary="B"',
        "Multipart/Form-Data;boundary=B",
        "multipart/form-data; charset=utf-8; boundary=B",
        'multipart/form-data; BOUNDARY="B"; charset=utf-8',
    ],
)
def test_a_boundary_may_be_quoted_and_stand_among_others(content_type: str) -> None:
    assert read(form(MODEL), content_type).model == "whisper"


def test_a_quoted_boundary_may_have_spaces_and_colons() -> None:
    body = form(MODEL).replace(b"--B", b"--a: b=c")
    assert read(body, 'multipart/form-data; boundary="a: b=c"').model == "whisper"


@pytest.mark.parametrize(("value", "streams"), [(b"true", True), (b"True", True), (b"1", True), (b"false", False)])
def test_a_form_may_ask_for_a_stream(value: bytes, *, streams: bool) -> None:
    stream = b'Content-Disposition: form-data; name="stream"\r\n\r\n' + value + b"\r\n"
    assert read(form(MODEL, stream)).stream is streams
    assert parse_multipart(form(MODEL, stream), ROUTES["/v1/audio/translations"], TYPE).stream is False


def test_names_need_no_quotes_and_values_may_be_of_any_language() -> None:
    assert read(form(b"content-disposition: FORM-DATA; name=model\r\n\r\n\xe6\xa8\xa1\r\n")).model == "模"
    part = b'Content-Type: text/plain\r\nContent-Disposition: form-data; size=1; name="model"\r\n\r\nm\r\n'
    assert read(form(part)).model == "m"
    named = (
        b'Content-Disposition: form-data; name="file"; filename="C:\\x;name=model.wav"; filename*=UTF-8\'\'x\r\n\r\n'
    )
    assert read(form(named + b"data\r\n", MODEL)).model == "whisper"


def test_a_form_without_a_model_is_told_so() -> None:
    for body in (form(), form(FILE + b"x\r\n"), form(b"\r\n\r\nno name at all\r\n".replace(b"\r\n\r\n", b"\r\n", 1))):
        fault = refused(body)
        assert (fault.status, fault.param) == (400, "model")
    assert refused(form(MODEL.replace(b"whisper", b""))).param == "model"
    assert "at most 1024" in refused(form(MODEL.replace(b"whisper", b"w" * 1025))).message


@pytest.mark.parametrize("second", [MODEL, MODEL.replace(b"model", b"Model"), MODEL.replace(b"model", b"MODEL")])
def test_a_model_named_twice_is_refused(second: bytes) -> None:
    for body in (form(MODEL, second), form(second, FILE + b"x\r\n", MODEL)):
        assert refused(body).param == "model"


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "multipart/mixed; boundary=B",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=B; boundary=C",
        f"multipart/form-data; boundary={'b' * 71}",
        "multipart/form-data; boundary=é",
    ],
)
def test_a_content_type_without_one_boundary_is_refused(content_type: str) -> None:
    fault = refused(form(MODEL), content_type)
    assert fault.status == (400 if content_type.startswith("multipart/form-data") else 415)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" + form(MODEL),
        b"\r\n" + form(MODEL),
        form(MODEL)[:-6],
        PART + MODEL[:-2],
        PART + b"Content-Disposition: form-data",
        form(MODEL).replace(b"\r\n", b"\n"),
        form(MODEL).replace(b"--B\r\n", b"--B \r\n"),
        form(b"X: " + b"x" * 9000 + b"\r\n" + MODEL),
        form(*[FILE + b"\r\n"] * 201),
        form(MODEL.replace(b"; name", b";\r\n name")),
        form(b"Content-Transfer-Encoding: quoted-printable\r\n" + MODEL),
        form(FILE + b"x\n--B\r\n" + MODEL.replace(b"whisper", b"other"), MODEL),
        form(FILE + b"x\r--B\r\n" + MODEL.replace(b"whisper", b"other"), MODEL),
        form(FILE.removesuffix(b"\r\n") + b"\r\n--B\r\n" + MODEL, MODEL),
        form(FILE + b"--B\r\nx\r\n", MODEL),
        form(MODEL) + PART + MODEL + END,
        form(MODEL)[:-2] + b"x\r\n",
        form(MODEL) + b"\r\n" * 40,
        form(b"Content-Disposition: form-data; name*=UTF-8''model\r\n\r\nx\r\n", MODEL),
        form(b'Content-Disposition: form-data; name="a"; name="model"\r\n\r\nx\r\n', MODEL),
        form(b'Content-Disposition: form-data; name ="model"\r\n\r\nx\r\n', MODEL),
        form(b'Content-Disposition: form-data; name="a\\"; name=model"\r\n\r\nx\r\n', MODEL),
        form(b'Content-Disposition: attachment; name="model"\r\n\r\nx\r\n', MODEL),
        form(b'Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n'),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    assert refused(body).status == 400


def test_plain_codings_of_a_part_are_taken() -> None:
    assert read(form(b"Content-Transfer-Encoding: binary\r\n" + MODEL)).model == "whisper"


pieces = st.sampled_from(
    [
        PART,
        END,
        MODEL,
        FILE,
        b"\r\n",
        b"--B",
        b"--",
        b"\n",
        b'name="model"',
        b"Content-Disposition: form-data;",
        b"\xff",
    ]
)


@given(st.lists(pieces, max_size=12).map(b"".join), st.booleans())
def test_no_form_makes_the_reader_fail_otherwise(body: bytes, framed: bool) -> None:  # noqa: FBT001
    with suppress(ClientFault):
        assert read(form(body + b"\r\n", MODEL) if framed else body).model
