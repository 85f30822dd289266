"""Fixtures: a cluster, the images in it, and a namespace of each module's own."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import objects
from e2e.cluster import ROOT, Namespace, new_namespace, run


@pytest.fixture(scope="session")
def cluster() -> str:
    """The kubeconfig."""
    if "KUBECONFIG" not in os.environ:
        pytest.exit("KUBECONFIG names no cluster: `make e2e` starts one", returncode=2)
    return os.environ["KUBECONFIG"]


@pytest.fixture(scope="session")
def images(cluster: str) -> None:
    """Pharos and the engine, on every node. E2E_IMAGES=ready: they are there already."""
    del cluster
    if os.environ.get("E2E_IMAGES") == "ready":
        return
    make = str(ROOT / "hack" / "image")
    run(make, objects.PHAROS, objects.NEXT, objects.PLAIN)
    run(make, "--ref", previous(), objects.PREVIOUS)
    run(make, "--engine", objects.ENGINE)


def previous() -> str:
    """What people upgrade from: what E2E_PREVIOUS names, else the last release, else the first commit with peers."""
    if named := os.environ.get("E2E_PREVIOUS"):
        return named
    if tags := run("git", "-C", str(ROOT), "tag", "--merged", "HEAD^", "--sort=-version:refname").split():
        return tags[0]
    oldest = run("git", "-C", str(ROOT), "log", "--diff-filter=A", "--format=%H", "--", "pharos/peer/wire.py").split()
    return oldest[-1]


@pytest.fixture
def plain(cluster: str) -> Iterator[Namespace]:
    """A namespace for one test that runs no Pod, and so needs no image."""
    del cluster
    name = f"plain-{uuid.uuid4().hex[:6]}"
    yield new_namespace(name)
    run("kubectl", "delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def namespace(images: None, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for one module, gone after it."""
    del images
    name = f"{Path(request.path).stem.removeprefix('test_').replace('_', '-')}-{uuid.uuid4().hex[:6]}"
    yield new_namespace(name)
    if os.environ.get("E2E_KEEP") != "1":
        run("kubectl", "delete", "namespace", name, "--wait=false")
