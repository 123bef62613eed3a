"""A real cluster for the tests of this folder: the one of KUBECONFIG, or one made from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "k8s" / "tests")]

from live_cluster import LiveCluster, older_kubectl, version_of
from node import podman, running
from podman import environment

from veen_hub.version import VERSION

TARGETS = ("veen-hub", "veen-cli", "veen-selftest", "veen-bridge", "veen-witness", "veen-query", "veen-spark")
LOCAL_BASE = "localhost/veen-base:trixie"
NEXT = f"{VERSION}-next"
PACKAGES = Path(os.environ.get("VEEN_CLUSTER_FOLDER", ROOT / ".tools" / "cluster"))
GIVEN = os.environ.get("KUBECONFIG")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needed = ["kubectl"] if GIVEN else ["kubectl", "podman", "mmdebstrap", "unshare", "nsenter"]
    missing = [name for name in needed if shutil.which(name) is None]
    if not GIVEN and os.geteuid() != 0:
        missing.append("root")
    if missing:
        reason = f"a cluster needs {', '.join(missing)}: see k8s/README.md"
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@contextmanager
def own_cluster() -> Iterator[LiveCluster]:
    """Make a cluster of one node, with images built from this checkout."""
    if os.environ.get("VEEN_IMAGES") != "built":
        base = ["--base", LOCAL_BASE] if podman_has(LOCAL_BASE) else []
        subprocess.run([ROOT / "bin" / "images", *base, *TARGETS], check=True, env=environment())
    subprocess.run([HERE / "make-kubernetes", PACKAGES], check=True)
    images = [f"localhost/{name}:{VERSION}" for name in TARGETS]
    for name in ("veen-hub", "veen-selftest"):
        podman("tag", f"localhost/{name}:{VERSION}", f"localhost/{name}:{NEXT}")
        images.append(f"localhost/{name}:{NEXT}")
    with running(PACKAGES) as node:
        archive = node.state / "images.tar"
        podman("save", "--quiet", "--multi-image-archive", f"--output={archive}", *images)
        node.import_images(archive)
        archive.unlink()
        os.environ["KUBECONFIG"] = str(node.kubeconfig)
        yield LiveCluster(version_of(), "localhost/", VERSION, NEXT, node)


def podman_has(image: str) -> bool:
    return bool(podman("images", "--quiet", image).strip())


@pytest.fixture(scope="session")
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="veen-kubectl-") as folder:
        if GIVEN is None:
            with own_cluster() as made:
                older_kubectl(Path(folder) / "bin", made.version)
                yield made
            return
        version = version_of()
        older_kubectl(Path(folder) / "bin", version)
        prefix = os.environ.get("VEEN_IMAGE_PREFIX")
        if prefix is None:
            pytest.fail("set VEEN_IMAGE_PREFIX to the registry from which the cluster takes our images")
        found = LiveCluster(
            version,
            prefix,
            os.environ.get("VEEN_IMAGE_TAG", VERSION),
            os.environ.get("VEEN_IMAGE_NEXT_TAG"),
            None,
        )
        if networks := found.veen("status")["networks"]:
            pytest.fail(
                f"the cluster has VEEN networks already ({networks[0]['namespace']}): use another one"
            )
        yield found
        for namespace in found.kubectl.select("namespaces", None, "app.kubernetes.io/part-of=veen"):
            found.kubectl.run("delete", "namespace", namespace["metadata"]["name"], "--wait=true")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name in ("passed", "failed"):
        for report in terminalreporter.getreports(name):
            if dict(report.user_properties).get("version"):
                terminalreporter.write_line(f"Kubernetes {dict(report.user_properties)['version']}")
                return


@pytest.fixture(autouse=True)
def _version(cluster: LiveCluster, record_property: Callable[[str, object], None]) -> None:
    record_property("version", cluster.version)
