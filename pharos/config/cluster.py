"""What can be wrong with how engines are looked for in Kubernetes. Forbidden here: asking a cluster."""

import re
from collections.abc import Iterator
from typing import Final

from pharos.config.forms import short
from pharos.config.problems import Problem
from pharos.config.schema import Config

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
FIELD: Final = "discovery.kubernetes"


def check(config: Config) -> Iterator[Problem]:
    """Everything wrong with `discovery.kubernetes`."""
    wanted = config.discovery.kubernetes
    for index, name in enumerate(wanted.namespaces):
        if _NAMESPACE.fullmatch(name) is None:
            text = f"{short(name)!r} is no namespace: small letters, digits and -, at most 63"
            yield Problem(f"{FIELD}.namespaces[{index}]", text)
    if wanted.namespaces and wanted.cluster_wide:
        yield Problem(f"{FIELD}.cluster_wide", "looks in all namespaces: leave `namespaces` empty, or this off")
