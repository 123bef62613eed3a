"""What every image promises: a bill of materials, labels, its user, and a program that needs no shell."""

from __future__ import annotations

import json

import pytest
from conftest import TARGETS
from podman import podman

HIDDEN = ("/usr/bin/dash", "/usr/bin/bash", "/usr/bin/busybox")


@pytest.mark.parametrize("name", TARGETS)
def test_an_image_has_labels_an_unprivileged_user_and_a_bill_of_materials(name: str, tag: str) -> None:
    image = f"localhost/{name}:{tag}"
    shown = json.loads(podman("image", "inspect", image, "--format={{json .Config}}").stdout)
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in shown["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == (name, tag, "Apache-2.0")
    assert len(labels["revision"]) == 40
    assert shown["User"] == "10001:10001"
    command = ["-c", "print(open('/opt/veen/sbom.json').read())"]
    done = podman("run", "--rm", "--network=none", "--entrypoint=python3", image, *command)
    bill = json.loads(done.stdout)
    assert bill["bomFormat"] == "CycloneDX"
    assert "veen-core" in {each["name"] for each in bill["components"]}


@pytest.mark.parametrize("name", TARGETS)
def test_the_program_of_an_image_starts_without_a_shell(name: str, tag: str) -> None:
    image = f"localhost/{name}:{tag}"
    where = ["--rm", "--network=none", "--read-only", "--cap-drop=all"]
    there = podman("run", *where, "--entrypoint=python3", image, "-c", EXISTING).stdout.split()
    hidden = [f"--volume=/dev/null:{path}:ro" for path in there]
    assert podman("run", *where, *hidden, "--entrypoint=sh", image, "-c", "true", check=False).returncode != 0
    assert "sage: " in podman("run", *where, *hidden, image, "--help").stdout


EXISTING = f"import os; print(*[path for path in {HIDDEN!r} if os.path.exists(path)])"
