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


def test_two_builds_of_the_same_files_give_the_same_layers_and_a_history_without_other_builds(
    tag: str,
) -> None:
    """veen-hub and veen-witness install the same package, each in a build of its own."""
    images = [
        json.loads(podman("image", "inspect", f"localhost/{name}:{tag}").stdout)[0]
        for name in ("veen-hub", "veen-witness")
    ]
    layers = [each["RootFS"]["Layers"] for each in images]
    assert layers[0] == layers[1]
    for each in images:
        times = {step["created"] for step in steps_of_the_containerfile(each["History"])}
        assert times == {each["Created"]}, "the commit's time; a cached step has that of an earlier commit"


def steps_of_the_containerfile(history: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the history of an image without that of its base."""
    first = next(step for step in history if "PYTHONDONTWRITEBYTECODE" in step["created_by"])
    return history[history.index(first) :]


@pytest.mark.parametrize("name", TARGETS)
def test_the_program_of_an_image_starts_without_a_shell(name: str, tag: str) -> None:
    image = f"localhost/{name}:{tag}"
    where = ["--rm", "--network=none", "--read-only", "--cap-drop=all"]
    there = podman("run", *where, "--entrypoint=python3", image, "-c", EXISTING).stdout.split()
    hidden = [f"--volume=/dev/null:{path}:ro" for path in there]
    assert podman("run", *where, *hidden, "--entrypoint=sh", image, "-c", "true", check=False).returncode != 0
    assert "sage: " in podman("run", *where, *hidden, image, "--help").stdout


EXISTING = f"import os; print(*[path for path in {HIDDEN!r} if os.path.exists(path)])"
