"""Images and networks for the tests that run containers."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import Cluster, Namespace
from podman import environment, podman

from veen_cli.kube.keys import ADMIN, admin_secret, hub_secret
from veen_cli.kube.tenant import KubeNetwork, objects_of
from veen_hub.version import VERSION

ROOT = Path(__file__).parents[2]
LOCAL_BASE = "localhost/veen-base:trixie"
"""Base image for machines without a registry, made by `k8s/tests/make-base`."""
TARGETS = ("veen-hub", "veen-cli", "veen-selftest", "veen-bridge", "veen-witness", "veen-query")


REQUIRED = os.environ.get("VEEN_CONTAINERS") == "required"
"""Whether tests that cannot run fail, as in CI, instead of being skipped."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if REQUIRED or (shutil.which("podman") is not None and os.geteuid() == 0):
        return
    reason = "containers need podman and root: see k8s/README.md"
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tag() -> str:
    """The tag of the images, built from this checkout."""
    found = podman("image", "exists", LOCAL_BASE, check=False).returncode == 0
    base = os.environ.get("VEEN_BASE_IMAGE", LOCAL_BASE if found else "")
    if os.environ.get("VEEN_IMAGES") != "built":  # by an earlier run, of the same files
        subprocess.run(
            [ROOT / "bin" / "images", *(["--base", base] if base else []), *TARGETS],
            check=True,
            env=environment(),
        )
    return VERSION


@pytest.fixture(scope="session")
def cluster(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    del tag
    made = Cluster(f"veen-test-{secrets.token_hex(4)}", tmp_path_factory.mktemp("cluster"))
    made.create()
    try:
        yield made
    finally:
        made.delete()


def apply(cluster: Cluster, network: KubeNetwork) -> Namespace:
    """Make the Secrets and apply the objects of a network, as `veen kube apply` does."""
    namespace = cluster.namespace(network.namespace)
    if ("Secret", network.key_secret) not in namespace.objects:
        namespace.apply([hub_secret(network), admin_secret(network)])
    admin = namespace.objects["Secret", "veen-admin-keys"]["metadata"]["annotations"][ADMIN]
    namespace.apply(objects_of(replace(network, admin=admin)))
    return namespace


@pytest.fixture(scope="session")
def authority(cluster: Cluster, tag: str) -> Namespace:
    namespace = apply(cluster, KubeNetwork(tenant=None, tag=tag, image_prefix="localhost/"))
    namespace.start("StatefulSet", "veen-authority-hub")
    return namespace
