"""Requests whose length can be understood in two ways, or in none."""

from tests.proxy.malformed.case import CHUNKED, HIDDEN, LENGTH, MODEL, OF_LENGTH, Case, chunk, post, sized

BAD = (400,)


def _length(name: str, value: bytes) -> Case:
    return Case(f"length {name}", post(b"Content-Length: " + value), BAD)


def _coding(name: str, *fields: bytes) -> Case:
    """A coding that is not plainly `chunked`, before a body that is."""
    return Case(f"coding {name}", post(*fields, body=chunk()), BAD)


def _chunks(name: str, body: bytes) -> Case:
    return Case(f"chunks {name}", post(CHUNKED, body=body), BAD)


TWO_LENGTHS = [
    Case("length twice and the same", post(OF_LENGTH, OF_LENGTH), BAD),
    Case("length twice, shorter first", post(b"Content-Length: 5", OF_LENGTH), BAD),
    Case("length twice, longer first", post(OF_LENGTH, b"Content-Length: 5"), BAD),
    Case("length twice, one of zero", post(b"Content-Length: 0", OF_LENGTH), BAD),
    Case("length twice in other cases", post(b"content-length: 5", b"CONTENT-LENGTH: %d" % LENGTH), BAD),
    _length("as a list of the same", b"%d, %d" % (LENGTH, LENGTH)),
    _length("as a list of others", b"5, %d" % LENGTH),
    _length("with a comma behind", b"%d," % LENGTH),
]
ODD_LENGTHS = [
    _length("negative", b"-1"),
    _length("negative zero", b"-0"),
    _length("with a plus", b"+%d" % LENGTH),
    _length("in hex", b"0x1b"),
    _length("in hex without a mark", b"1b"),
    _length("with a fraction", b"27.0"),
    _length("with an exponent", b"27e0"),
    _length("with an underscore", b"2_7"),
    _length("with a space inside", b"2 7"),
    _length("with a second number behind a space", b"%d 5" % LENGTH),
    _length("of 20 nines", b"9" * 20),
    _length("of 300 nines", b"9" * 300),
    _length("one over 64 bits", b"18446744073709551616"),
    _length("of words", b"ten"),
    _length("of nothing", b""),
    _length("of a blank", b" "),
    _length("in digits of another script", "\N{ARABIC-INDIC DIGIT FIVE}".encode()),
    _length("in quotes", b'"27"'),
    _length("with a parameter", b"27;x=1"),
    _length("with a NUL behind", b"27\0"),
    _length("with a form feed behind", b"27\f"),
    Case("length all of 64 bits", post(b"Content-Length: 18446744073709551615"), (413,)),
    Case("length one under 64 bits", post(b"Content-Length: 18446744073709551614"), (413,)),
    Case("length all of 63 bits", post(b"Content-Length: 9223372036854775807"), (413,)),
    Case("length with zeros in front", post(b"Content-Length: 00%d" % LENGTH), (200,), goes_on=True, engine=1),
    Case("length with blanks around", post(b"Content-Length:  \t%d \t" % LENGTH), (200,), goes_on=True, engine=1),
    Case("length all of 64 bits where no body is wanted", post(
        b"Content-Length: 18446744073709551615", target=b"/livez", method=b"GET", body=b""), (200,)),
    Case("length of nothing where no body is wanted", post(
        b"Content-Length:", target=b"/livez", method=b"GET", body=b""), (400,)),
]  # fmt: skip
BOTH = [
    Case("both, length first", post(OF_LENGTH, CHUNKED, body=chunk()), BAD),
    Case("both, coding first", post(CHUNKED, OF_LENGTH, body=chunk()), BAD),
    Case("both, the length hides a request", post(b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + HIDDEN), BAD),
    Case("both, the coding hides a request", post(CHUNKED, b"Content-Length: %d" % (5 + len(HIDDEN)),
        body=b"0\r\n\r\n" + HIDDEN), BAD),
    Case("both, length of zero", post(b"Content-Length: 0", CHUNKED, body=chunk()), BAD),
    Case("both, a coding that is none", post(OF_LENGTH, b"Transfer-Encoding: identity"), BAD),
    Case("both, an empty coding", post(OF_LENGTH, b"Transfer-Encoding:"), BAD),
    Case("both, an empty coding first", post(b"Transfer-Encoding:", OF_LENGTH), BAD),
    Case("both, on HTTP/1.0", post(OF_LENGTH, CHUNKED, body=chunk(), version=b"HTTP/1.0"), BAD),
    Case("both, other cases", post(b"content-LENGTH: 5", b"TRANSFER-encoding: CHUNKED", body=chunk()), BAD),
]  # fmt: skip
CODINGS = [
    _coding("of two, chunked last", b"Transfer-Encoding: gzip, chunked"),
    _coding("of two, chunked first", b"Transfer-Encoding: chunked, identity"),
    _coding("of identity first", b"Transfer-Encoding: identity, chunked"),
    _coding("of gzip alone", b"Transfer-Encoding: gzip"),
    _coding("of identity alone", b"Transfer-Encoding: identity"),
    _coding("with a letter in front", b"Transfer-Encoding: xchunked"),
    _coding("with a letter behind", b"Transfer-Encoding: chunkedx"),
    _coding("cut short", b"Transfer-Encoding: chunke"),
    _coding("in quotes", b'Transfer-Encoding: "chunked"'),
    _coding("with a parameter", b"Transfer-Encoding: chunked;q=1"),
    _coding("with an empty parameter", b"Transfer-Encoding: chunked;"),
    _coding("with a comma in front", b"Transfer-Encoding: , chunked"),
    _coding("with a comma behind", b"Transfer-Encoding: chunked,"),
    _coding("of nothing", b"Transfer-Encoding:"),
    _coding("twice", CHUNKED, CHUNKED),
    _coding("twice in one", b"Transfer-Encoding: chunked, chunked"),
    _coding("twice, another first", b"Transfer-Encoding: identity", CHUNKED),
    _coding("twice, another last", CHUNKED, b"Transfer-Encoding: identity"),
    _coding("folded", b"Transfer-Encoding:\r\n chunked"),
    _coding("folded behind", b"Transfer-Encoding: chunked\r\n , identity"),
    _coding("with a vertical tab", b"Transfer-Encoding: \x0bchunked"),
    _coding("with a NUL", b"Transfer-Encoding: chunked\0"),
    _coding("with a bare CR", b"Transfer-Encoding: chunked\rx"),
    _coding("with a bare LF", b"X: y\nTransfer-Encoding: chunked"),
    _coding("behind a bare CR", b"X: y\rTransfer-Encoding: chunked"),
    _coding("with a space before its colon", b"Transfer-Encoding : chunked"),
    _coding("with a tab before its colon", b"Transfer-Encoding\t: chunked"),
    _coding("with a space before its name", b" Transfer-Encoding: chunked"),
    _coding("with a look-alike letter", "Transfer-Encoding: \N{LATIN SMALL LETTER C WITH CEDILLA}hunked".encode()),
    Case("coding on HTTP/1.0", post(CHUNKED, body=chunk(), version=b"HTTP/1.0"), BAD),
    Case("coding in other letters", post(b"transfer-encoding: cHuNkEd", body=chunk()), (200,), goes_on=True, engine=1),
    Case("coding behind a tab", post(b"Transfer-Encoding:\tchunked", body=chunk()), (200,), goes_on=True, engine=1),
    Case("coding under a name with an underscore is none", sized(b"Transfer_Encoding: chunked"), (200,), goes_on=True,
        engine=1),
]  # fmt: skip
NO_CODING = post(b"Transfer-Encoding:", body=b"")
CODINGS += [
    Case("coding of nothing, and no body", NO_CODING, BAD),
    Case(
        "coding of nothing where no body is wanted", NO_CODING.replace(b"POST /v1/chat/completions", b"GET /livez"), BAD
    ),
]
CHUNKS = [
    _chunks("of a negative size", b"-1b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size with a plus", b"+1b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size with 0x", b"0x1b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size over 64 bits", b"1" + b"0" * 16 + b"\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size that comes round", b"1" + b"0" * 14 + b"1b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size with a space in front", b" 1b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size with a space inside", b"1 b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of a size with an underscore", b"1_b\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of no size", b"\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("of words", b"zz\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("longer than they say", chunk(MODEL + b"x").replace(b"1c", b"1b", 1)),
    _chunks("shorter than they say", b"1c\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("whose size line ends with LF", b"1b\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("whose size line ends with CR", b"1b\r" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("whose data ends with LF", b"1b\r\n" + MODEL + b"\n0\r\n\r\n"),
    _chunks("whose data ends with nothing", b"1b\r\n" + MODEL + b"0\r\n\r\n"),
    _chunks("whose data ends with other bytes", b"1b\r\n" + MODEL + b"XX0\r\n\r\n"),
    _chunks("whose last ends with LF", chunk(after=b"0\n\n")),
    _chunks("whose last ends with CR", chunk(after=b"0\r\r\n")),
    _chunks("with LF in an extension", b"1b;a\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("with CR in an extension", b"1b;a\rb\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("with NUL in an extension", b"1b;a\0\r\n" + MODEL + b"\r\n0\r\n\r\n"),
    _chunks("with LF in a quoted extension", b'1b;a="\n"\r\n' + MODEL + b"\r\n0\r\n\r\n"),
    Case("chunks with an endless extension", post(CHUNKED, body=b"1b;" + b"a" * 300_000), ()),
    Case("chunks with an endless trailer", post(CHUNKED, body=chunk(after=b"0\r\nA: " + b"a" * 300_000)), (431,)),
    Case("chunks with a broken trailer", post(CHUNKED, body=chunk(after=b"0\r\nA B: 1\r\n\r\n")), BAD),
    Case("chunks with an extension", post(CHUNKED, body=b"1b;a=b\r\n" + MODEL + b"\r\n0\r\n\r\n"), (200,),
        goes_on=True, engine=1),
    Case("chunks with zeros in front", post(CHUNKED, body=b"001B\r\n" + MODEL + b"\r\n0\r\n\r\n"), (200,),
        goes_on=True, engine=1),
    Case("chunks of one byte", post(CHUNKED, body=b"".join(chunk(bytes([byte]), b"") for byte in MODEL) + b"0\r\n\r\n"),
        (200,), goes_on=True, engine=1),
    Case("chunks of nothing", post(CHUNKED, body=b"0\r\n\r\n"), BAD, goes_on=True),
    Case("chunks that never end", post(CHUNKED, body=chunk(after=b"")), ()),
]  # fmt: skip
TRAILERS = [
    Case(
        f"trailer {name}{', a request behind it' if behind else ''}",
        post(CHUNKED, body=chunk(after=b"0\r\n" + field + b"\r\n\r\n") + behind),
        (200,),
        engine=1,
    )
    for name, field in [
        ("of a key", b"X-Api-Key: other"),
        ("of a type", b"Content-Type: text/html"),
        ("of any name", b"X-Sum: 1"),
        ("of several names", b"A: 1\r\nB: 2\r\nAuthorization: Bearer other"),
    ]
    for behind in (b"", HIDDEN)
]
TRAILERS += [
    Case("trailer of a host", post(CHUNKED, body=chunk(after=b"0\r\nHost: evil\r\n\r\n")), (200,), engine=1),
    Case(
        "trailer of a host, a request behind it",
        post(CHUNKED, body=chunk(after=b"0\r\nHost: evil\r\n\r\n") + HIDDEN),
        BAD,
    ),
    Case("trailer of a length", post(CHUNKED, body=chunk(after=b"0\r\nContent-Length: 3\r\n\r\n")), BAD),
    Case("trailer of a coding", post(CHUNKED, body=chunk(after=b"0\r\nTransfer-Encoding: chunked\r\n\r\n")), BAD),
]
LIES = [
    Case("a body longer than its length", sized(body=MODEL) + b"rubbish\r\n\r\n", BAD),
    Case("a body much longer than its length", post(b"Content-Length: 5"), BAD),
    Case("a body shorter than its length", post(b"Content-Length: 100"), ()),
    Case("a body that holds a request", sized(body=HIDDEN), BAD, goes_on=True),
    Case("a request behind a length that leaves it out", post(b"Content-Length: 0", body=HIDDEN), (400, 200),
        goes_on=True, engine=1),
    Case("a length that takes the next request in", post(b"Content-Length: %d" % (LENGTH + len(HIDDEN)),
        body=MODEL + HIDDEN), BAD, goes_on=True),
    Case("chunks that take the next request in", post(CHUNKED, body=chunk(MODEL + HIDDEN)), BAD, goes_on=True),
    Case("two requests at once", sized() + HIDDEN, (200, 200), goes_on=True, engine=2),
    Case("a broken one behind a good one", sized() + post(b"Content-Length: -1"), BAD),
    Case("a body where none is wanted", sized(target=b"/livez", method=b"GET"), (200,), goes_on=True),
    Case("a request as the body where none is wanted", sized(target=b"/livez", method=b"GET", body=HIDDEN), (200,),
        goes_on=True),
    Case("a body behind HEAD", sized(target=b"/livez", method=b"HEAD", body=HIDDEN), (200,), goes_on=True),
    Case("a body behind an unknown path", sized(target=b"/nowhere", body=HIDDEN), (404,), goes_on=True),
    Case("a body behind a wrong method", sized(method=b"GET", body=HIDDEN), (405,), goes_on=True),
    Case("a body behind OPTIONS", sized(method=b"OPTIONS", target=b"/v1/models", body=HIDDEN), (405,), goes_on=True),
    Case("a half body behind an unknown path", post(b"Content-Length: 100", target=b"/nowhere"), (404,)),
    Case("what follows a last request", sized(b"Connection: close") + HIDDEN, BAD),
    Case("what follows a request of HTTP/1.0", sized(version=b"HTTP/1.0") + HIDDEN, BAD),
]  # fmt: skip
FRAMING = [*TWO_LENGTHS, *ODD_LENGTHS, *BOTH, *CODINGS, *CHUNKS, *TRAILERS, *LIES]
