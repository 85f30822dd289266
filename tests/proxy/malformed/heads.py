"""Requests whose first line or headers are malformed, ambiguous or more than anybody needs."""

from tests.proxy.malformed.case import CHUNKED, HIDDEN, LENGTH, MODEL, OF_LENGTH, Case, chunk, line, post, sized

BAD = (400,)
TYPE = b"Content-Type: application/json"


def _line(name: str, first: bytes, status: int = 400) -> Case:
    return Case(f"line {name}", first + b"\r\nHost: x\r\n" + OF_LENGTH + b"\r\n\r\n" + MODEL, (status,))


def _target(name: str, target: bytes, status: int = 400, *, goes_on: bool = False, engine: int = 0) -> Case:
    return Case(f"target {name}", sized(target=target), (status,), goes_on=goes_on, engine=engine)


def _field(name: str, field: bytes) -> Case:
    return Case(f"field {name}", sized(field), BAD)


def _host(name: str, *fields: bytes, status: int = 400, version: bytes = b"HTTP/1.1") -> Case:
    sent = b"POST /v1/chat/completions " + version + b"\r\n" + b"".join(field + b"\r\n" for field in fields)
    is_fine = status == 200
    is_kept = is_fine and version != b"HTTP/1.0"
    return Case(f"host {name}", sent + OF_LENGTH + b"\r\n\r\n" + MODEL, (status,), goes_on=is_kept, engine=int(is_fine))


CHAT = b"/v1/chat/completions"
LINES = [
    _line("without a version", b"POST " + CHAT, 505),
    _line("of HTTP/0.9", b"POST " + CHAT + b" HTTP/0.9", 505),
    _line("of HTTP/1.2", b"POST " + CHAT + b" HTTP/1.2"),
    _line("of HTTP/2.0", b"POST " + CHAT + b" HTTP/2.0", 505),
    _line("of HTTP/3", b"POST " + CHAT + b" HTTP/3"),
    _line("of HTTP/11", b"POST " + CHAT + b" HTTP/11"),
    _line("of HTTP/1.10", b"POST " + CHAT + b" HTTP/1.10"),
    _line("of http/1.1", b"POST " + CHAT + b" http/1.1"),
    _line("of HTTP/1,1", b"POST " + CHAT + b" HTTP/1,1"),
    _line("of another protocol", b"POST " + CHAT + b" SIP/2.0"),
    _line("with something behind", b"POST " + CHAT + b" HTTP/1.1 x"),
    _line("with a space behind", b"POST " + CHAT + b" HTTP/1.1 "),
    _line("with a tab before its target", b"POST\t" + CHAT + b" HTTP/1.1"),
    _line("with a tab before its version", b"POST " + CHAT + b"\tHTTP/1.1"),
    _line("with a form feed before its version", b"POST " + CHAT + b"\x0cHTTP/1.1"),
    _line("with a bare CR", b"POST " + CHAT + b"\rHTTP/1.1"),
    _line("with a space in front", b" POST " + CHAT + b" HTTP/1.1"),
    _line("without a target", b"POST HTTP/1.1"),
    _line("of nothing but a version", b"HTTP/1.1"),
    _line("of a reply", b"HTTP/1.1 200 OK"),
    Case("line that ends with LF", line().replace(b"\r\n", b"\n", 1) + OF_LENGTH + b"\r\n\r\n" + MODEL, BAD),
    Case("lines that end with LF", sized().replace(b"\r\n", b"\n"), BAD),
    Case("lines that end with CR", sized().replace(b"\r\n", b"\r"), BAD),
    Case("line of HTTP/0.9 as it was", b"GET " + CHAT + b"\r\n", (), leaves=True),
    Case("line with spaces before its target", sized().replace(b" ", b"  ", 1), (200,), goes_on=True, engine=1),
    Case("line with spaces before a version", sized().replace(b" HTTP", b"  HTTP", 1), (200,), goes_on=True, engine=1),
    Case("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", BAD),
    Case("greeting of TLS", bytes.fromhex("16030100ba010000b60303") + bytes(range(1, 180)), BAD),
    Case("greeting of SSH", b"SSH-2.0-OpenSSH_9.9\r\n", BAD),
    Case("greeting of SMTP", b"EHLO x\r\n", BAD),
    Case("proxy's greeting", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + sized(), BAD),
    Case("zeros", bytes(64), BAD),
    Case("empty lines in front", b"\r\n\r\n" + sized(), (200,), goes_on=True, engine=1),
    Case("endless empty lines", b"\r\n" * 50_000, (431,)),
]
METHODS = [
    _line("with a method in small letters", b"post " + CHAT + b" HTTP/1.1"),
    _line("with a mixed method", b"Post " + CHAT + b" HTTP/1.1"),
    _line("with an unknown method", b"BREW " + CHAT + b" HTTP/1.1"),
    _line("with a method that goes on", b"POSTX " + CHAT + b" HTTP/1.1"),
    _line("with a method cut short", b"POS " + CHAT + b" HTTP/1.1"),
    _line("with a method in quotes", b'"POST" ' + CHAT + b" HTTP/1.1"),
    _line("with a colon in its method", b"PO:ST " + CHAT + b" HTTP/1.1"),
    _line("with a NUL in its method", b"PO\0ST " + CHAT + b" HTTP/1.1"),
    _line("with an endless method", b"A" * 70_000 + b" " + CHAT + b" HTTP/1.1"),
    *(
        Case(f"method {method.decode()}", sized(method=method), (405,), goes_on=True)
        for method in (b"GET", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PROPFIND", b"PURGE")
    ),
    Case("method CONNECT to a host", b"CONNECT evil:443 HTTP/1.1\r\nHost: evil:443\r\n\r\n" + HIDDEN, (405,)),
    Case("method CONNECT to a path", post(method=b"CONNECT", body=HIDDEN), (405,)),
    Case("method CONNECT with a length", b"CONNECT evil:443 HTTP/1.1\r\nHost: evil:443\r\nContent-Length: 3\r\n\r\nabc"
        + HIDDEN, (405,)),
    Case("method TRACE echoes nothing", post(method=b"TRACE", body=b"", target=b"/livez"), (405,), goes_on=True),
]  # fmt: skip
TARGETS = [
    _target("of a whole URL", b"http://evil.example" + CHAT, 200, goes_on=True, engine=1),
    _target("of a whole URL with a key", b"http://user:pw@evil.example" + CHAT),
    _target("of a whole URL without a host", b"http://" + CHAT),
    _target("of a whole URL without a path", b"http://evil.example", 405, goes_on=True),
    _target("of another scheme", b"ftp://evil.example" + CHAT),
    _target("of a file", b"file:///etc/passwd"),
    _target("of a host alone", b"evil.example:80"),
    _target("of a path without a slash", b"v1/chat/completions"),
    _target("of a star", b"*"),
    _target("of a star with OPTIONS", CHAT + b"*", 404, goes_on=True),
    _target("with a fragment", CHAT + b"#x"),
    _target("with a fragment behind a query", CHAT + b"?a=1#x"),
    _target("with a tab in its query", CHAT + b"?a=\tb"),
    _target("with a form feed in its query", CHAT + b"?a=\x0cb"),
    _target("with a tab in its path", CHAT + b"\t"),
    _target("with a NUL", CHAT + b"\0"),
    _target("with DEL", CHAT + b"?a=\x7f"),
    _target("with a control character", CHAT + b"?a=\x01"),
    _target("with a packed NUL", CHAT + b"%00", 404, goes_on=True),
    _target("with a packed line end", CHAT + b"?a=%0d%0aX:%201", 200, goes_on=True, engine=1),
    _target("with a packed line end in its path", CHAT + b"%0d%0a", 404, goes_on=True),
    _target("with a packed slash", b"/v1%2fchat/completions", 404, goes_on=True),
    _target("with a packed letter", b"/v1/chat/completion%73", 404, goes_on=True),
    _target("with half a percent sign", CHAT + b"%", 404, goes_on=True),
    _target("with a wrong percent sign", CHAT + b"%zz", 404, goes_on=True),
    _target("with a wrong percent sign in its query", CHAT + b"?a=%zz", 200, goes_on=True, engine=1),
    _target("that goes up", b"/v1/../v1/chat/completions", 404, goes_on=True),
    _target("that goes up, packed", b"/v1/%2e%2e/v1/chat/completions", 404, goes_on=True),
    _target("that stays", b"/v1/./chat/completions", 404, goes_on=True),
    _target("with two slashes in front", b"/" + CHAT, 404, goes_on=True),
    _target("with two slashes inside", b"/v1//chat/completions", 404, goes_on=True),
    _target("with a slash behind", CHAT + b"/", 404, goes_on=True),
    _target("with a backslash", b"/v1\\chat\\completions", 404, goes_on=True),
    _target("with a parameter", CHAT + b";x=1", 404, goes_on=True),
    _target("that is no UTF-8", CHAT + b"\xff\xfe"),
    _target("that is an overlong slash", b"/v1\xc0\xafchat/completions"),
    _target("whose query is no UTF-8", CHAT + b"?a=\xff"),
    _target("in other letters", b"/V1/Chat/Completions", 404, goes_on=True),
    _target("of a response that goes up", b"/v1/responses/x/../../chat/completions", 404, goes_on=True),
    _target("that is endless", b"/" + b"a" * 70_000, 431),
    _target("whose query is endless", CHAT + b"?" + b"a" * 70_000, 431),
]
HOSTS = [
    _host("missing"),
    _host("missing on HTTP/1.0", status=200, version=b"HTTP/1.0"),
    _host("twice and the same", b"Host: x", b"Host: x"),
    _host("twice", b"Host: x", b"Host: evil"),
    _host("twice on HTTP/1.0", b"Host: x", b"Host: evil", version=b"HTTP/1.0"),
    _host("with a key", b"Host: user:pw@x"),
    _host("with a path", b"Host: x/evil"),
    _host("with a space", b"Host: x evil"),
    _host("with a comma and a space", b"Host: x, evil"),
    _host("with a port that is none", b"Host: x:port"),
    _host("with two ports", b"Host: x:1:2"),
    _host("with half an address", b"Host: [::1"),
    _host("with a backslash", b"Host: x\\evil"),
    _host("with a question mark", b"Host: x?evil"),
    _host("with a fragment", b"Host: x#evil"),
    _host("that is no ASCII", b"Host: \xff"),
    _host("with a NUL", b"Host: x\0"),
    _host("folded", b"Host: x\r\n evil"),
    _host("of nothing", b"Host:", status=200),
    _host("of an address", b"Host: [::1]:8090", status=200),
    _host("under a name with a space behind", b"Host : x"),
]
FIELDS = [
    _field("folded", b"X: a\r\n b"),
    _field("folded with a tab", b"X: a\r\n\tb"),
    _field("folded from nothing", b"X:\r\n b"),
    _field("folded to nothing", b"X: a\r\n "),
    _field("that begins with a space", b" X: a"),
    _field("without a colon", b"X"),
    _field("without a name", b": a"),
    _field("with a space before its colon", b"X : a"),
    _field("with a tab before its colon", b"X\t: a"),
    _field("with a space in its name", b"X Y: a"),
    _field("with a NUL in its name", b"X\0Y: a"),
    _field("with a NUL in its value", b"X: a\0b"),
    _field("with a bare CR in its value", b"X: a\rb"),
    _field("with a bare CR in its name", b"X\rY: a"),
    _field("with a bare LF in its value", b"X: a\nb"),
    _field("with a bare LF before another", b"X: a\nAuthorization: Bearer other"),
    _field("with two CRs behind", b"X: a\r"),
    _field("with DEL in its value", b"X: a\x7fb"),
    _field("with an escape in its value", b"X: \x1b[31m"),
    _field("with a control character in its name", b"X\x01: a"),
    _field("with a parenthesis in its name", b"X(y): a"),
    _field("with a quote in its name", b'"X": a'),
    _field("with a slash in its name", b"X/y: a"),
    _field("whose name is no ASCII", "Ä: a".encode()),
    _field("with a name of a dead protocol", b"Sec-WebSocket-Key1: x"),
    Case("field that is endless", line() + b"X: " + b"a" * 70_000 + b"\r\n\r\n", (431,)),
    Case("field whose name is endless", line() + b"X" * 70_000 + b": a\r\n\r\n", (431,)),
    Case("field of several that are too much", sized(*[b"X: " + b"a" * 1000] * 70), (431,)),
    Case("fields too many", sized(*[b"X: a"] * 300), (431,)),
    Case("fields too many and small", sized(*[b"X:"] * 5000), (431,)),
    Case("field that never ends", line() + b"X: a", ()),
    Case("field twice that may not be", sized(TYPE, b"Content-Type: text/plain"), BAD),
    Case("field whose value is no UTF-8", sized(b"X: \xff\xfe"), (200,), goes_on=True, engine=1),
    Case("field of nothing", sized(b"X:"), (200,), goes_on=True, engine=1),
]
LEGS = [
    Case("leg of a length", sized(b"Connection: Content-Length"), (200,), goes_on=True, engine=1),
    Case("leg of a host", sized(b"Connection: Host"), (200,), goes_on=True, engine=1),
    Case("leg of a coding", post(b"Connection: Transfer-Encoding", CHUNKED, body=chunk()), (200,), goes_on=True,
        engine=1),
    Case("leg of a type", sized(TYPE, b"Connection: Content-Type"), (200,), goes_on=True, engine=1),
    Case("leg of everything", sized(b"Connection: host, content-length, x-request-id, authorization, , x"), (200,),
        goes_on=True, engine=1),
    Case("leg that closes, in other letters", sized(b"Connection: X, ClOsE"), (200,), engine=1),
    Case("leg that closes, of two", sized(b"Connection: keep-alive", b"Connection: close"), (200,), engine=1),
    Case("leg that closes and does not, on HTTP/1.0", sized(b"Connection: keep-alive", b"Connection: close",
        version=b"HTTP/1.0") + HIDDEN, (200,), engine=1),
    Case("leg that goes on, on HTTP/1.0", sized(b"Connection: keep-alive", version=b"HTTP/1.0"), (200,), goes_on=True,
        engine=1),
    Case("leg that closes, with more behind", sized(b"Connection: close") + HIDDEN, BAD),
    Case("switch to h2c", sized(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x"), (200,),
        engine=1),
    Case("switch to h2c hides a request", sized(b"Connection: Upgrade", b"Upgrade: h2c") + HIDDEN, (200,), engine=1),
    Case("switch to h2c without a body", post(b"Connection: Upgrade", b"Upgrade: h2c", method=b"GET", target=b"/livez",
        body=HIDDEN), (200,)),
    Case("switch to websocket", sized(b"Connection: Upgrade", b"Upgrade: websocket") + HIDDEN, (200,), engine=1),
    Case("switch to websocket without a body", post(b"Connection: Upgrade", b"Upgrade: websocket", method=b"GET",
        target=b"/livez", body=HIDDEN), (200,)),
    Case("switch to what nobody knows", sized(b"Connection: upgrade", b"Upgrade: \xff"), (200,), engine=1),
    Case("switch behind chunks", post(b"Connection: Upgrade", b"Upgrade: h2c", CHUNKED, body=chunk()) + HIDDEN, (200,),
        engine=1),
    Case("switch that is not of this leg", sized(b"Upgrade: h2c"), (200,), goes_on=True, engine=1),
    Case("expectation of a continuation", sized(b"Expect: 100-continue"), (200,), goes_on=True, engine=1),
    Case("expectation of more", sized(b"Expect: 200-ok"), (417,), goes_on=True),
    Case("expectation of several", sized(b"Expect: 100-continue, magic"), (417,), goes_on=True),
    Case("expectation of nothing", sized(b"Expect:"), (417,), goes_on=True),
    Case("expectation on HTTP/1.0", sized(b"Expect: 100-continue", version=b"HTTP/1.0"), (200,), engine=1),
    Case("expectation without a body", post(b"Expect: 100-continue", body=b""), BAD, goes_on=True),
    Case("names that look alike reach no engine", sized(b"Content_Length: 3", b"Transfer_Encoding: chunked",
        b"X_Api_Key: x", b"X_Api-Key: x", b"Host_: evil"), (200,), goes_on=True, engine=1),
    Case("length of another name", post(b"Content_Length: %d" % LENGTH, body=b""), BAD, goes_on=True),
]  # fmt: skip
HEADS = [*LINES, *METHODS, *TARGETS, *HOSTS, *FIELDS, *LEGS]
