"""The name of a part of a form: one reading only, whatever else reads the same bytes."""

import warnings
from contextlib import suppress
from email.message import Message

import pytest
from aiohttp.multipart import content_disposition_filename, parse_content_disposition
from hypothesis import example, given
from hypothesis import strategies as st

from pharos.proxy.disposition import part_name
from pharos.proxy.errors import ClientFault


def name(said: bytes) -> str:
    return part_name(b"\r\nContent-Disposition: form-data" + said + b"\r\n")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (b'; name="model"', "model"),
        (b"; name=model", "model"),
        (b';name="file";filename="a.wav"', "file"),
        (b'; name="file"; filename="a;name=model"', "file"),
        (b'; filename="a;name=model"; name="file"', "file"),
        (b'; name="file"; filename="a \\"b\\".wav"', "file"),
        (b'; name="file"; filename="C:\\dir\\a.wav"', "file"),
        (b'; name="file"; filename="x"; filename*=UTF-8\'\'%e6%a8%a1', "file"),
        (b'; name="file"; filename="model.wav"', "file"),
        (b'; name="file"; filename="the model.wav"; size=5', "file"),
        (b'; name="timestamp_granularities[]"', "timestamp_granularities[]"),
        (b'; name="model_name"', "model_name"),
        (b'; name="\xe6\xa8\xa1"', "模"),
        (b'; name=""', ""),
        (b'; name="model";', "model"),
        (b'; name="MODEL"', "MODEL"),
        (b"", ""),
    ],
)
def test_what_clients_write_has_the_name_that_all_read(said: bytes, wanted: str) -> None:
    assert name(said) == wanted


REFUSED = [
    b'; name="model"; filename="x"',
    b"; name=model; filename*=UTF-8''x",
    b'; foo="x;name=other"; name="model"',
    b'; foo="x;name=model;y"; name="other"',
    b'; foo="; name=model ;"; name="other"',
    b'; x="; name=other; y="; name="model"',
    b'; x=a"; name=other; y="; name="model"',
    b'; filename="model"; name="file"',
    b'; filename="a\\"; name=model; x=\\"b"; name="file"',
    b'; filename="a\\\\"; name="model"',
    b'; name="file"; filename="a\\"model.wav"',
    b'; name="mo\\del"',
    b'; name=" model"',
    b'; name="model "',
    b'; name="model[]"',
    b'; name="%6dodel"',
    b'; name="=?utf-8?q?model?="',
    b"; name='model'",
    b'; name="model\x00"',
    b'; name=model"x"',
    b'; name="model"x',
    b'; name="model',
    b"; name=mo del",
    b' name="model"',
    b' ; name ="model"',
    b'; name= "model"',
    b'; name="a"; name="model"',
    b'; name="a"; NAME="model"',
    b'; NAME="model"',
    b'; filename="a"; filename="b"',
    b"; name*=UTF-8''model",
    b'; name*0="mo"; name*1="del"',
    b'; name="a"; name*=UTF-8\'\'model',
    b'; ; name="model"',
    b'; model; name="a"',
    b', name="model"',
    b'; name="model"\rX: y',
    b'; name="model"\nX: y',
    b'; name="a"\r\n ; x=y',
    b'; name="a"\r\nContent-Disposition: form-data; name="model"',
    b'; name="a"\r\nContent-Disposition : form-data; name="model"',
    b'; name="a"\r\nno header',
    b'; name="a"\r\n: none',
    b'; name="a"\r\nX: y\nContent-Disposition: form-data; name="model"',
]  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_a_name_that_another_reader_could_read_otherwise_is_refused(said: bytes) -> None:
    with pytest.raises(ClientFault) as caught:
        name(said)
    assert (caught.value.status, caught.value.code) == (400, "invalid_form")


def test_only_a_header_of_that_name_tells_it() -> None:
    assert part_name(b'\r\nX-Content-Disposition: form-data; name="model"\r\n') == ""
    assert part_name(b"\r\n") == ""
    assert part_name(b'\r\nX: name="y"\r\ncontent-disposition:FORM-DATA;name="model"\r\n') == "model"


def by_email(said: str) -> str | None:
    """As `python-multipart` reads it, which engines in Python use."""
    message = Message()
    message["content-type"] = said
    found = dict(message.get_params(failobj=[])).get("name")
    return found if found is None or isinstance(found, str) else found[2]


def by_aiohttp(said: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return content_disposition_filename(parse_content_disposition(said)[1], "name")


def by_splitting(said: str, *, last: bool = False) -> str | None:
    """As small readers in other languages do it: they know of no quotes."""
    found = [part.strip().partition("=") for part in said.split(";")[1:]]
    values = [value.strip() for key, _, value in found if key.strip().lower() == "name"]
    if not values:
        return None
    value = values[-1 if last else 0]
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


pieces = st.sampled_from(
    ["; ", ";", "name=", 'name="', "filename=", 'filename="', "x=", 'x="', "model", '"', "\\", '"; ', "file", " ",
     "name*=UTF-8''", "%6dodel", "[]", "NAME=", "'"]
)  # fmt: skip


@given(st.lists(pieces, max_size=14).map("".join))
@example('; foo="x;name=other"; name="model"')
@example('; filename="a;name=model"; name="file"')
def test_no_other_reader_finds_the_model_where_ours_does_not(said: str) -> None:
    with suppress(ClientFault):
        ours = name(said.encode())
        whole = "form-data" + said
        for theirs in (by_email(whole), by_aiohttp(whole), by_splitting(whole), by_splitting(whole, last=True)):
            assert (theirs == "model") is (ours == "model"), theirs
