"""Every way in which a configuration can be wrong: where it is told, and what."""

import pytest

from pharos.config import reader
from pharos.config.load import parse
from pharos.config.problems import SHOWN, ConfigError

A = "a" * 64

CASES = [
    # names
    ("lissten: :80", "lissten", "did you mean listen?"),
    ("discovery: {kubernetes: {namespaces: [a/b]}}", "discovery.kubernetes.namespaces[0]", "'a/b' is no namespace"),
    (
        "discovery: {kubernetes: {namespaces: [a], cluster_wide: true}}",
        "discovery.kubernetes.cluster_wide",
        "leave `namespaces` empty",
    ),
    ("xx: 1", "xx", "pharos config schema"),
    ("retries: 1", "retries", "did you mean retry?"),
    ("key: []", "key", "did you mean keys?"),
    ("backend: []", "backend", "did you mean backends?"),
    ("logging: {}", "logging", "did you mean log?"),
    ("queue: {maxWait: 5s}", "queue.maxWait", "did you mean max_wait?"),
    ("queue: {absent-wait: 5s}", "queue.absent-wait", "did you mean absent_wait?"),
    ("drain: {foo: 1}", "drain.foo", "there are grace, timeout"),
    ("drain: {x-foo: 1}", "drain.x-foo", "no such field"),
    ("backends: [{url: http://a, capcity: 4}]", "backends[0].capcity", "did you mean capacity?"),
    ("listen: :1\nlisten: :2", "listen", "is given twice, first on line 1"),
    ("log:\n  level: info\n  level: debug", "log.level", "is given twice, first on line 2"),
    ("? [a]\n: 1", "", "a name must be plain text"),
    # shapes
    ("[1]", "", "expected named fields"),
    ("text", "", "expected named fields"),
    ("log: debug", "log", "expected named fields (level, format …), got 'debug'"),
    ("backends: http://a", "backends", "expected a list, got 'http://a': write [http://a]"),
    ("backends: {url: http://a}", "backends", "expected a list, got named fields"),
    ("cors: {origins: '*'}", "cors.origins", """got '*': write ["*"]"""),
    ("backends: [http://a]", "backends[0]", "write {url: http://a}"),
    ("backends: [[]]", "backends[0]", "got a list"),
    ("backends: [null]", "backends[0]", "got nothing"),
    ("backends: [{name: a}]", "backends[0].url", "is missing"),
    ("backends: [{url: }]", "backends[0].url", "is missing"),
    ("listen: [a]", "listen", "expected an address like :8090, got a list"),
    ("policy: {a: 1}", "policy", "expected cost or least-load, got named fields"),
    ("credentials: []", "credentials", "expected names with values, got a list"),
    # values
    ("listen: 8090", "listen", "write :8090"),
    ("policy: fastest", "policy", "expected cost or least-load, got 'fastest'"),
    ("log: {level: loud}", "log.level", "got 'loud'"),
    ("limits: {body: lots}", "limits.body", "like 32MiB"),
    ("limits: {body: 0}", "limits.body", "must be of at least 1, got 0"),
    ("limits: {header: 10}", "limits.header", "must be of at least 1024"),
    ("limits: {connections: '10'}", "limits.connections", "remove the quotes"),
    ("limits: {connections: 1.5}", "limits.connections", "expected a whole number of at least 1, got 1.5"),
    ("limits: {connections: 99999999999999999999}", "limits.connections", "expected a whole number"),
    ("deadlines: {connect: 5}", "deadlines.connect", "write 5s"),
    ("deadlines: {connect: -5s}", "deadlines.connect", "is no duration"),
    ("deadlines: {connect: true}", "deadlines.connect", "is no duration"),
    ("retry: {attempts: 9}", "retry.attempts", "must be from 0 to 5, got 9"),
    ("retry: {budget: 2}", "retry.budget", "must be from 0 to 1, got 2"),
    ("retry: {budget: 1e999}", "retry.budget", "must be from 0 to 1"),
    ("retry: {budget: .nan}", "retry.budget", "expected a number"),
    ("queue: {size: -1}", "queue.size", "must be of at least 0, got -1"),
    ("backends: [{url: gpu}]", "backends[0].url", "write http://gpu"),
    ("backends: [{url: http://a, memory_gb: 0}]", "backends[0].memory_gb", "must be from 0.01 to 100000, got 0"),
    (
        "backends: [{url: http://a, memory_gb: 1e308}]",
        "backends[0].memory_gb",
        "must be from 0.01 to 100000, got 1e308",
    ),
    (
        "backends: [{url: http://a, memory_gb: 24GB}]",
        "backends[0].memory_gb",
        "expected a number from 0.01 to 100000, got '24GB'",
    ),
    (
        "decision_log: {path: /a, keep: 100000000000}",
        "decision_log.keep",
        "must be from 0 to 1000, got 100000000000",
    ),
    ("backends: [{url: http://a, capacity: 0}]", "backends[0].capacity", "must be of at least 1"),
    ("backends: [{url: http://a, name: a b}]", "backends[0].name", "goes into headers"),
    ("backends: [{url: http://a, name: Jürgen}]", "backends[0].name", "goes into headers"),
    ("backends: [{url: http://a, name: ''}]", "backends[0].name", "1 to 128 characters"),
    ("backends: [{url: http://a, kind: ''}]", "backends[0].kind", "is empty"),
    (f"keys: [{{name: _a, sha256: {A}}}]", "keys[0].name", "start with _"),
    (f"keys: [{{name: phk-a, sha256: {A}}}]", "keys[0].name", "a key itself"),
    (f'keys: [{{name: "a\\n", sha256: {A}}}]', "keys[0].name", "no line breaks"),
    ("keys: [{name: a, sha256: abc}]", "keys[0].sha256", "must be 64 hexadecimal digits, got 3 characters"),
    (f"keys: [{{name: a, sha256: {'g' * 64}}}]", "keys[0].sha256", "64 hexadecimal digits"),
    (f"keys: [{{name: a, sha256: {A}, admin: yes}}]", "keys[0].admin", "expected true or false, got 'yes': write true"),
    (f"keys: [{{name: a, sha256: {A}, admin: 'true'}}]", "keys[0].admin", "write it without quotes"),
    (f"keys: [{{name: a, sha256: {A}, models: qwen}}]", "keys[0].models", "write [qwen]"),
    (f"keys: [{{name: a, sha256: {A}, models: ['']}}]", "keys[0].models[0]", "is empty"),
    (f"keys: [{{name: a, sha256: {A}, models: [true]}}]", "keys[0].models[0]", "put it into quotes ('true')"),
    (f"keys: [{{name: a, sha256: {A}, weight: 0}}]", "keys[0].weight", "must be from 1 to 1000, got 0"),
    (f"keys: [{{name: a, sha256: {A}, rpm: -1}}]", "keys[0].rpm", "must be of at least 1, got -1"),
    (f"keys: [{{name: a, sha256: {A}, tokens_per_day: -5}}]", "keys[0].tokens_per_day", "of at least 1, got -5"),
    (
        "discovery: {docker: {enabled: maybe}}",
        "discovery.docker.enabled",
        "expected true or false or auto, got 'maybe'",
    ),
    # what no single value shows
    ("backends: [{url: http://a}, {url: 'http://a:80/x'}]", "backends[1].url", "is the name of backends[0] too"),
    ("backends: [{url: http://a, name: x}, {url: http://b, name: x}]", "backends[1].name", "give one of them another"),
    ("backends: [{url: http://a, kind: lamacpp}]", "backends[0].kind", "did you mean llamacpp?"),
    ("backends: [{url: http://a, kind: zzz}]", "backends[0].kind", "there are auto, "),
    (f"keys: [{{name: a, sha256: {A}}}, {{name: a, sha256: {'b' * 64}}}]", "keys[1].name", "names are unique"),
    (
        f"keys: [{{name: a, sha256: {A}}}, {{name: b, sha256: {A.upper()}}}]",
        "keys[1].sha256",
        "the same key as keys[0]",
    ),
    ("limits: {body: 1GiB}", "limits.buffered", "256MiB is below limits.body (1GiB)"),
    ("metrics_listen: 127.0.0.1:8090", "metrics_listen", "is taken by listen (:8090)"),
    ("metrics_listen: ':8091'", "metrics_listen", "is taken by admin_listen (127.0.0.1:8091)"),
    # YAML
    ("a: [", "", "line 1: it is not YAML"),
    ("a: [", "", "something opened with [, { or a quote is not closed"),
    ("backends:\n  - url: http://a\n   name: x", "", "do all lines of one group begin in the same column?"),
    ("log:\n\tlevel: info", "", "line 2: YAML indents with spaces"),
    ("log:\n - a: b: c", "", "not in quotes?"),
    ("peers: {listen: :80}", "", "needs quotes"),
    ("log: *nowhere", "", "an anchor (&name) must come before"),
    ("listen: :1\n---\nlisten: :2", "", "line 2: it holds a second document"),
    ("listen: \x01", "", "character U+0001 is not allowed"),
    ("[" * 50_000, "", "nested too deeply"),
    ("x-a: " + "[" * 41 + "]" * 41, "", "nested too deeply"),
    ("{a: " * 50_000, "", "nested too deeply"),
    ("listen: !!python/object/apply:os.system [id]", "listen", "means nothing here"),
    ("listen: !mine :80", "listen", "the tag !mine means nothing here"),
    ("drain: {<<: 5}", "drain", "<< takes an anchor of named fields"),
    ("drain: &d {<<: *d}", "drain", "goes too deep"),
    ("keys: &k [*k]", "keys[0]", "got a list"),
]


@pytest.mark.parametrize(("text", "path", "told"), CASES, ids=[text[:60] for text, _, _ in CASES])
def test_a_mistake_is_told_at_its_place(text: str, path: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    assert any(path in (problem.path, problem.path.split(" ")[0]) for problem in caught.value.problems)
    assert told in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = (
        "listen: 80\nbackends:\n  - url: gpu\n    capacity: four\n  - {url: http://b, knd: x}\ndrain: {timeout: 30}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, {}, source="my.yaml")
    assert str(caught.value).splitlines() == [
        "my.yaml has 5 problems:",
        "  line 1, listen: 80 is no address: write :80 for every interface, or 127.0.0.1:80 for this machine only",
        "  line 3, backends[0].url: 'gpu' has no scheme: write http://gpu",
        "  line 4, backends[0].capacity: expected a whole number of at least 1, got 'four'",
        "  line 5, backends[1].knd: no such field; did you mean kind?",
        "  line 6, drain.timeout: 30 has no unit: write 30s for seconds, or 30m for minutes",
    ]


def test_a_problem_between_fields_names_the_line_of_the_field() -> None:
    with pytest.raises(ConfigError, match=r"line 2, limits.buffered"):
        parse("limits:\n  buffered: 1MiB\n", {})


def test_more_problems_than_fit_on_a_screen_are_counted() -> None:
    text = "backends:\n" + "  - gpu\n" * (SHOWN + 5)
    with pytest.raises(ConfigError, match="and 5 more"):
        parse(text, {})


def test_a_key_pasted_in_place_of_its_hash_is_never_repeated() -> None:
    with pytest.raises(ConfigError, match="never belongs here") as caught:
        parse("keys: [{name: a, sha256: phk-verysecret}]", {})
    assert "verysecret" not in str(caught.value)


def test_a_long_value_is_cut_in_a_message() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("policy: " + "x" * 5000, {})
    assert len(str(caught.value)) < 200


def test_anchors_cannot_make_a_small_file_mean_a_huge_one() -> None:
    width = 100
    text = f"x-k: &k {{name: a, sha256: {A}, models: &m [{', '.join('m' for _ in range(width))}]}}\n"
    text += "keys: [" + ", ".join("*k" for _ in range(reader.MAX_NODES // width)) + "]"
    with pytest.raises(ConfigError, match="anchors make this too large"):
        parse(text, {})


def test_merges_cannot_make_a_small_file_mean_a_huge_one() -> None:
    lines = ["x-0: &m0 {level: info}"]
    lines += [f"x-{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 30)}]}}" for i in range(1, 6)]
    with pytest.raises(ConfigError, match="anchors make this too large"):
        parse("\n".join([*lines, "log: *m5"]), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("backend:\n\n  - url: http://a", "line 1, backend: no such field"),
        ("drain:\n  grade:\n    5s", "line 2, drain.grade: no such field"),
        ("x: &x\n  levl: info\nlog:\n  <<: *x", "line 2, log.levl: no such field"),
        ("usage:\n  retention_days: 0", "line 2, usage.retention_days: must be of at least 1, got 0"),
        ("aliases:\n  a: [b]\n  b: [a]", "line 2, aliases.a: stands for an alias that leads back to it"),
        ("log:\n  level: info\nlog:\n  level: info", "line 3, log: is given twice, first on line 1"),
    ],
)
def test_a_name_is_told_with_its_own_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    assert told in str(caught.value)


def test_a_problem_of_a_variable_is_not_one_of_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", {"PHAROS_QUEUE__SIZE": "many"}, source="my.yaml")
    assert str(caught.value).startswith("PHAROS_QUEUE__SIZE, queue.size: expected a whole number")
    with pytest.raises(ConfigError) as caught:
        parse("xx: 1", {"PHAROS_QUEUE__SIZE": "many", "PHAROS_LISTEN": "80"}, source="my.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("my.yaml: line 1, xx: no such field")
    assert lines[1] == "the environment has 2 problems:"
    assert sorted(line.split(",")[0] for line in lines[2:]) == ["  PHAROS_LISTEN", "  PHAROS_QUEUE__SIZE"]
