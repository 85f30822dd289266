"""Annotations of a Pod and of its Service to one backend, or to everything that is wrong with them.

The rules for a value are those of Docker's labels (`discovery.labels`). What differs here: a port may be named, logs
are a switch, and there is no `pharos.url`, since whoever may annotate could have credentials sent anywhere.

Forbidden here: asking anybody.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pharos.config.forms import short
from pharos.config.schema import Credential
from pharos.control.discovery import labels
from pharos.control.discovery.kubernetes.objects import Meta
from pharos.core.fleet.backend import BackendSpec

ENABLE: Final = "pharos.enable"
LOGS: Final = "pharos.logs"
PORT: Final = "pharos.port"
URL: Final = "pharos.url"
NO_URL: Final = (
    "pharos.url is not accepted in Kubernetes, where it could send credentials anywhere: leave it out, "
    "or set discovery.kubernetes.allow_url where everybody who may annotate is trusted"
)
KNOWN: Final = (*(name for name in labels.KNOWN if name != "url"), "logs")
"""The annotations that there are, without the prefix; `url` is left out, though a switch allows it."""
OTHERS: Final = frozenset({"pharos.dev"})
"""Domains of annotations that begin like ours and are Pharos's own chart's."""


def of(meta: Meta) -> dict[str, str]:
    """The annotations that speak to Pharos; `pharos.enable` may be a label too, so that it can be selected by."""
    found = {name: text for name, text in (meta.annotations or {}).items() if _is_ours(name)}
    enable = (meta.labels or {}).get(ENABLE)
    if enable is not None:
        found.setdefault(ENABLE, enable)
    return found


def _is_ours(name: str) -> bool:
    return name.startswith(labels.PREFIX) and name.partition("/")[0] not in OTHERS


class Wanted(msgspec.Struct, frozen=True):
    """Annotations that mean a backend."""

    values: tuple[tuple[str, str], ...]
    """Sorted, without those that only Kubernetes has."""
    port: str | None
    """As written: a number or a name; `None`: not said."""
    logs: bool
    """Whether its log may be read, where Pharos has the right to."""


def wanted(given: Mapping[str, str], *, allow_url: bool) -> Wanted | None:
    """What is asked for; `None` when it is no backend. Raises `LabelsError`."""
    if given.get(ENABLE) in {None, "false"}:
        return None
    if URL in given and not allow_url:
        raise labels.LabelsError([NO_URL])
    logs = given.get(LOGS, "true")
    if logs not in {"true", "false"}:
        raise labels.LabelsError([f'{LOGS} is {short(logs)!r}: write "true" or "false"'])
    rest = {name: text for name, text in given.items() if name not in {LOGS, PORT}}
    return Wanted(tuple(sorted(rest.items())), given.get(PORT), logs == "true")


class Form(msgspec.Struct, frozen=True):
    """What annotations make but for the address: the same for all Pods of one template."""

    spec: BackendSpec
    url: str | None
    """The whole address, where it is given."""
    scheme: str
    path: str

    def at(self, name: str, address: str, port: int, logs: str | None, *, drain: bool) -> BackendSpec:
        """The backend there. `port` counts only without a whole address, `logs` is where its log may be read."""
        host = f"[{address}]" if ":" in address else address
        return msgspec.structs.replace(
            self.spec,
            name=name,
            url=self.url if self.url is not None else f"{self.scheme}://{host}:{port}{self.path}",
            logs=logs,
            drain=self.spec.drain or drain,
        )


def form(asked: Wanted, credentials: Mapping[str, Credential]) -> Form:
    """What the annotations make. Raises `LabelsError`."""
    given = labels.marks(dict(asked.values), (*KNOWN, "url"))
    if given is None:
        raise ValueError("these annotations mean no backend")
    path = given.path.rstrip("/")
    url = given.url if given.url is not None else f"{given.scheme}://pod:8080{path}"
    made = labels.spec("backend", url, given, credentials, None)
    return Form(made, made.url if given.url is not None else None, given.scheme, path)
