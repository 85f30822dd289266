"""What `pharos.yaml` may hold: one frozen record per group, each field with unit, reason and meaning of `None`.

Forbidden here: reading anything, and knowing what a value is used for beyond its meaning to the operator. The name of
a field in the file is its name here, or the one given with `name=` where ours carries a unit. The sentences below are
the published ones: `pharos config schema` and the documents take them from here.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, field

Seconds = Annotated[float, Meta(ge=0, extra={"form": "duration"})]
"""Written as `5s`, `10m`, `1h30m`; where the field may be `None`, 0 is read as `None` (off)."""
Bytes = Annotated[int, Meta(ge=0, extra={"form": "size"})]
"""Written as `32MiB`, or as a plain number of bytes."""
Address = Annotated[str, Meta(extra={"form": "address"})]
"""Where to listen: `:8090`, `127.0.0.1:8090`, `[::1]:8090`."""
Url = Annotated[str, Meta(extra={"form": "url"})]
"""`http://gpu-box:8000`: scheme, host, port and, where a reverse proxy needs it, a path."""
Sha256 = Annotated[str, Meta(extra={"form": "sha256"})]
"""64 hexadecimal digits."""
KeyName = Annotated[str, Meta(extra={"form": "name"})]
BackendName = Annotated[str, Meta(extra={"form": "backend_name"})]
HeaderName = Annotated[str, Meta(extra={"form": "header"})]
Variable = Annotated[str, Meta(extra={"form": "variable"})]
"""Name of an environment variable."""
LogPlace = Annotated[str, Meta(extra={"form": "log"})]
"""`docker://NAME` or `file:///PATH`."""
Origin = Annotated[str, Meta(extra={"form": "origin"})]
"""Of a web page, as browsers write it: `https://chat.example.org`; or `*`."""
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all groups of settings share: they cannot change, and a name they do not know is an error."""


class Log(Group, frozen=True):
    """What Pharos logs, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug` adds one line per request. Prompts, replies and keys are logged at no level."""
    format: Literal["text", "json"] = "text"
    """`json`: one object per line, for log collectors. Text by default, since the first reader is a person at a
    terminal."""


class Limits(Group, frozen=True):
    """What a client may ask of Pharos at once."""

    body_bytes: Annotated[int, Meta(ge=1, extra={"form": "size"})] = field(name="body", default=32 * 1024**2)
    """Largest request body in bytes; above it the answer is 413. 32 MiB holds a long chat with a few images in it."""
    header_bytes: Annotated[int, Meta(ge=1024, extra={"form": "size"})] = field(name="header", default=64 * 1024)
    """Largest request head in bytes; above it the answer is 431. 64 KiB holds the tracing headers and cookies that
    gateways add."""
    buffered_bytes: Annotated[int, Meta(ge=1, extra={"form": "size"})] = field(name="buffered", default=256 * 1024**2)
    """All request bodies in memory together, in bytes; above it the answer is 503 with `Retry-After`. 256 MiB stays
    well below the 512 MiB that a container should have: running out of memory would end every stream at once."""
    connections: Count = 10_000
    """Client connections at once; above it the answer is 503. As many as one process keeps open within its memory
    budget."""


class Deadlines(Group, frozen=True):
    """How long Pharos waits for an engine."""

    connect_s: Seconds | None = field(name="connect", default=5.0)
    """Seconds to open a connection to an engine. 5 s is far above any local network and below a person's patience.
    `None` (0): as long as the system tries."""
    first_byte_warm_s: Seconds | None = field(name="first_byte_warm", default=None)
    """Seconds to the first byte of a reply from a loaded model. `None` (0): no limit, because an engine that answers
    in one piece sends its first byte when all is done."""
    first_byte_cold_s: Seconds | None = field(name="first_byte_cold", default=None)
    """The same where the model must be loaded first, and where nobody knows whether it is loaded. `None` (0): no limit,
    because loading a large model takes minutes."""
    idle_s: Seconds | None = field(name="idle", default=None)
    """Seconds between two pieces of a reply, kept to about a second. `None` (0): no limit, because engines that answer
    at once with a head are silent while they process a long prompt."""


class Retry(Group, frozen=True):
    """Sending a request to another engine, before the client saw a byte."""

    attempts: Annotated[int, Meta(ge=0, le=5)] = 1
    """How often one request is sent again. 1: a second engine failing the same way is rarely chance. 0: never."""
    budget: Share = 0.2
    """Retries as a share of the requests of the last minute. 0.2 keeps a failing fleet from getting twice the work."""


class Queue(Group, frozen=True):
    """Requests that wait in Pharos for a free slot."""

    size: Annotated[int, Meta(ge=0)] = 1000
    """Requests that may wait; the next one gets 429 with `Retry-After`. 1000 is minutes of work for any fleet. 0:
    nobody waits."""
    max_wait_s: Seconds | None = field(name="max_wait", default=None)
    """Seconds a request may wait; then it gets 503. `None` (0): no limit, because the client knows better when to give
    up."""
    absent_wait_s: Seconds = field(name="absent_wait", default=30.0)
    """Seconds a request waits while every backend of its model is gone, though one was there within 5 minutes. 30 s
    covers an engine's restart. 0: it gets 503 at once."""


class PromProbe(Group, frozen=True):
    """Where an own probe finds its value in a Prometheus text."""

    metric: Text
    """Name of the series, without its labels."""
    path: Text = "/metrics"
    """Path on the engine. `/metrics` is where engines have it."""
    per_model: Text | None = None
    """Label that holds the model's name. `None`: the value speaks of the whole engine."""


class LogProbe(Group, frozen=True):
    """Where an own probe finds its value in a line of the engine's log."""

    match: Text
    r"""Regular expression, for lines of at most 1024 bytes; groups `model` and `value` count: `(?P<value>\d+)`."""
    value: Text | None = None
    """What a matching line means. `None`: the group `value` holds it."""


class OwnProbe(Group, frozen=True):
    """One signal read the operator's way; it goes ahead of the built-in probes of its signal."""

    name: KeyName
    """Shown by `pharos doctor`; different from every other probe's name."""
    signal: Text
    """Which signal it reads: running, waiting, kv_usage, capacity, residency …"""
    prom: PromProbe | None = None
    """Read from a Prometheus text. `None`: it is a `log` probe."""
    log: LogProbe | None = None
    """Read from the engine's log. `None`: it is a `prom` probe."""


class Backend(Group, frozen=True):
    """One engine, by its URL."""

    url: Url
    """Base URL of the engine, without `/v1`."""
    name: BackendName | None = None
    """Name in metrics, logs and answers, where URLs are not shown. Unique. `None`: host and port of the URL."""
    kind: Text = "auto"
    """What software it is. `auto`: told from what it answers, which is safe and costs a few small requests at
    start."""
    memory_gb: Annotated[float, Meta(ge=0.01, le=100_000)] | None = None
    """Memory for models in GiB, for engines that do not report it. `None`: unknown, so no model is ever said not to
    fit."""
    capacity: Count | None = None
    """Requests it runs at once per model (slots), used only where the engine does not report it.
    `None`: unknown; Pharos then assumes 2, which floods no engine."""
    aliases: dict[str, Text] = {}
    """Engine's model name to the name clients use instead of it, for builds of the same weights. It wins over a model
    that the engine lists by that name. Empty: names are as the engine has them."""
    logs: LogPlace | None = None
    """Its log, for signals found only there: `docker://NAME` or `file:///PATH`. `None`: no log is read."""
    probes: tuple[OwnProbe, ...] = ()
    """Signals read your way, each ahead of the built-in probes. Empty: the built-in ones."""
    credential: Text | None = None
    """Name of an entry of `credentials` sent to this engine. `None`: no credential is sent; a client's key never
    is."""
    ca_file: Text | None = None
    """PEM file of certificates that its TLS certificate must descend from, read again when it changes. `None`: the
    system's own."""
    headers: dict[str, str] = {}
    """Headers that every request to it carries, in place of a client's of the same name. No secrets: `credential` is
    for those. Empty: none."""

    @property
    def memory_bytes(self) -> int | None:
        """`memory_gb` in bytes."""
        return None if self.memory_gb is None else round(self.memory_gb * 1024**3)


class Credential(Group, frozen=True):
    """A key that an engine asks for. The key itself is never in this file."""

    NEVER_SHOWN: ClassVar[bool] = True
    """What is written in its place may be the key: no message repeats it."""

    api_key_file: Text | None = None
    """File that holds it and nothing else, read again when it changes. `None`: see `api_key_env`."""
    api_key_env: Variable | None = None
    """Environment variable that holds it when Pharos starts. `None`: see `api_key_file`."""
    header: HeaderName = "Authorization"
    """Header that carries it. In `Authorization` it is sent as a bearer token, which is what engines ask for."""


class Key(Group, frozen=True):
    """One person's or program's access. Made by `pharos keys new`."""

    name: KeyName
    """Shown in metrics, usage and the status page. Unique."""
    sha256: Sha256
    """SHA-256 of the key in hexadecimal; the key itself is never stored."""
    models: tuple[Text, ...] = ()
    """Models it may use, as names or globs (`qwen*`). Empty: all."""
    weight: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Share of the queue relative to other keys while requests wait. 1: all alike."""
    admin: bool = False
    """May open `/status` and other pages that tell about everybody's requests. Off, since most keys belong to
    clients."""
    rpm: Count | None = None
    """Requests in any 60 s, over all instances; the next one gets 429 with `Retry-After`. `None`: no limit."""
    tokens_per_day: Count | None = None
    """Prompt and reply tokens in a day of `usage.timezone`, over all instances; then 429 until the day ends.
    `None`: no limit."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """While requests wait, those of keys with a higher one go first, whatever the weights; a request that has waited
    for 60 s counts as one of the highest. 0: all alike."""
    queue_events: bool = False
    """Whether its waiting streams are told their place in the queue. Off: not every client expects such comments."""
    cache_salt: Text | None = None
    """Any text that parts its prompts from those of other keys when engines' caches are predicted, so that nobody
    learns from a fast first token what others asked. Keys with the same one share. `None`: shared with all that have
    none."""


class Docker(Group, frozen=True):
    """Finding engines by Docker labels."""

    enabled: bool | Literal["auto"] = "auto"
    """`auto`: when the socket is there, so that labels work without a switch."""
    socket: Text = "/var/run/docker.sock"
    """Docker's socket; where Docker puts it by default."""


class Kubernetes(Group, frozen=True):
    """Finding engines by annotations on Pods and Services."""

    enabled: bool = False
    """Off, because it needs rights in the cluster; the chart turns it on together with them."""
    namespaces: tuple[Text, ...] = ()
    """Namespaces to look in. Empty: the one Pharos runs in."""
    cluster_wide: bool = False
    """Look in all namespaces. Off: it needs rights over the whole cluster."""
    pod_logs: bool = False
    """Read engine logs for signals found only there. Off: it needs the right `pods/log`."""
    allow_url: bool = False
    """Accept `pharos.url` annotations. Off: whoever may annotate could have Pharos send requests anywhere."""
    kubeconfig: Text | None = None
    """Login file for use outside a cluster. `None`: the service account, else the usual places."""
    context: Text | None = None
    """Context of that file. `None`: its current one."""


class Discovery(Group, frozen=True):
    """Where backends come from besides the list."""

    docker: Docker = Docker()
    """Docker labels."""
    kubernetes: Kubernetes = Kubernetes()
    """Kubernetes annotations."""


class Usage(Group, frozen=True):
    """Token usage by key and model."""

    timezone: Text | None = None
    """Where days end, for `tokens_per_day` and `/usage`, as in `Europe/Berlin`; the same on all instances. `None`: the
    zone of the machine."""
    retention_days: Count = 400
    """Days of usage kept, today included. 400: a year and the month it is compared with."""


class Drain(Group, frozen=True):
    """What happens between SIGTERM and the end."""

    grace_s: Seconds = field(name="grace", default=5.0)
    """Seconds in which `/healthz` already fails while requests are still accepted. 5 s is what a load balancer needs
    to notice; Ctrl-C leaves it out."""
    timeout_s: Seconds = field(name="timeout", default=600.0)
    """Seconds that running requests then get to finish. 10 minutes is longer than nearly every reply. 0: they are cut
    at once."""


class Tls(Group, frozen=True):
    """TLS between peers, each side with a certificate; names in it are not compared. Files are read again."""

    cert_file: Text
    """Own certificate, PEM."""
    key_file: Text
    """Its private key, PEM."""
    ca_file: Text
    """Certificates that a peer's must descend from, PEM."""


class Peers(Group, frozen=True):
    """Other instances of Pharos that share state with this one."""

    secret_file: Text
    """File with the secret that all instances share, of at least 16 characters; read again when it changes. A second
    line holds another one that is taken too, while it is exchanged; so is, for 15 minutes, the one of before."""
    listen: Address = ":8081"
    """Where peers reach this instance; keep it on a private network."""
    members: tuple[Text, ...] = ()
    """`host:port` of every instance; this one may be among them, and finds that out itself. Empty: see `dns`."""
    dns: Text | None = None
    """Name that resolves to all instances (A, AAAA; SRV for a name such as `_peer._tcp.pharos`), with an optional port;
    without one it is that of `listen`. Asked again when its TTL is over, every 10 s at the latest. `None`: see
    `members`."""
    tls: Tls | None = None
    """`None`: plain HTTP, authenticated by the secret."""


class DecisionLog(Group, frozen=True):
    """One JSON line per request with every candidate and its cost, for `pharos replay`."""

    path: Text
    """File to append to."""
    max_size_bytes: Bytes = field(name="max_size", default=100 * 1024**2)
    """Size in bytes at which a new file begins. 100 MiB still opens in an editor."""
    keep: Annotated[int, Meta(ge=0, le=1000)] = 3
    """Full files kept beside the current one."""


class Cors(Group, frozen=True):
    """Web pages that may call Pharos from a browser."""

    origins: tuple[Origin, ...] = ()
    """Their origins, as in `https://chat.example.org`; `*` is every page, which without `keys` lets any page that
    somebody opens use the engines. Cookies are never asked for: a page sends its key in a header. Empty: none."""


class ResponseHeaders(Group, frozen=True):
    """What a reply tells about its way. Off by default: clients need not know the fleet."""

    target: bool = False
    """Send `X-Pharos-Target`: the backend's name."""
    reason: bool = False
    """Send `X-Pharos-Reason`: why it was chosen."""


class Metrics(Group, frozen=True):
    """Bounds on what `/metrics` lists; what is beyond them is counted together as `_other`."""

    max_models: Count = 200
    """Models with series of their own. 200 is more than one fleet usually serves, and keeps a scrape small."""
    max_keys: Count = 200
    """Keys with series of their own. The same reason."""


class Config(Group, frozen=True):
    """The whole of `pharos.yaml`. Every field is optional; names that start with `x-` hold YAML anchors."""

    listen: Address = ":8090"
    """Where clients reach Pharos. `:8090` is every interface of the machine; the port is no engine's usual one."""
    admin_listen: Address = "127.0.0.1:8091"
    """Where `pharos doctor`, `explain` and `backend`, and a browser on this machine, reach the running process. This
    machine only (a loopback address), since it needs no key. Where it is taken, Pharos warns and serves without."""
    metrics_listen: Address | None = None
    """A listener of its own for `/metrics`, which then is not on the public one. It needs no key: keep it on a private
    network. `None`: it is served beside the API."""
    policy: Literal["cost", "least-load"] = "cost"
    """How a target is chosen. `cost`: lowest estimated time to first token. `least-load`: fewest requests, the way out
    when estimates mislead."""
    log: Log = Log()
    """What is logged."""
    limits: Limits = Limits()
    """What a client may ask at once."""
    deadlines: Deadlines = Deadlines()
    """How long to wait for engines."""
    retry: Retry = Retry()
    """Trying another engine."""
    queue: Queue = Queue()
    """Waiting for a slot."""
    backends: tuple[Backend, ...] = ()
    """The engines. Empty: Pharos starts, and answers 503 until it has some."""
    aliases: dict[str, tuple[Text, ...]] = {}
    """Client's model name to engines' names, each optionally as `kind:name`; a backend serves the first that it lists.
    It comes beside the engines' names, and never hides a model listed by that name. Empty: clients use the engines'
    names."""
    rewrite_reply_model: bool = False
    """Whether a reply names the model as its client did where the engine has another name for it. Off: it keeps the
    engine's name, and costs nothing more."""
    credentials: dict[str, Credential] = {}
    """Keys that engines ask for, by the name that backends refer to. Empty: none."""
    keys: tuple[Key, ...] = ()
    """Who may use Pharos. Empty: everybody who reaches it, with a warning at start."""
    keys_file: Text | None = None
    """A file with more entries as under `keys`, such as a mounted Secret, read again when it changes. `None`: only
    those above."""
    discovery: Discovery = Discovery()
    """Finding engines."""
    usage: Usage = Usage()
    """Counting tokens."""
    drain: Drain = Drain()
    """Ending without cutting a stream."""
    peers: Peers | None = None
    """Sharing state between instances. `None`: this one is alone."""
    state_file: Text | None = None
    """File that keeps usage and what was learned over a restart; written every 30 s and at the end. `None`: it starts
    anew, with what its peers know."""
    decision_log: DecisionLog | None = None
    """Recording decisions. `None`: only the last ones are kept, in memory."""
    cors: Cors = Cors()
    """Calls from web pages."""
    response_headers: ResponseHeaders = ResponseHeaders()
    """Headers that tell about the choice."""
    metrics: Metrics = Metrics()
    """Bounds of `/metrics`."""
