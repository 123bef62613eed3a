"""The Containerfile obeys the rules of hadolint, which is installed from PyPI."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CONTAINERFILE = Path(__file__).parents[3] / "k8s" / "images" / "Containerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")


def findings(text: str) -> list[str]:
    """Return what hadolint says of a Containerfile, one line for each rule that it breaks."""
    command = [HADOLINT, "--no-color", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert (done.returncode == 0) is (done.stdout == "")
    return done.stdout.splitlines()


def test_the_containerfile_obeys_every_rule() -> None:
    assert findings(CONTAINERFILE.read_text(encoding="utf-8")) == []


def test_the_base_image_is_pinned_by_digest() -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    assert re.search(r"(?m)^ARG BASE_IMAGE=\S+@sha256:[0-9a-f]{64}$", text), "hadolint does not look into ARG"


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("WORKDIR /work", "WORKDIR work", "DL3000"),
        ("USER 10001:10001", "USER root", "DL3002"),
        ("COPY wheels /wheels", "ADD wheels /wheels", "DL3020"),
        ('ENTRYPOINT ["veen-hub"]', "ENTRYPOINT veen-hub", "DL3025"),
    ],
)
def test_the_check_can_fail(right: str, wrong: str, rule: str) -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    assert right in text
    assert any(rule in line for line in findings(text.replace(right, wrong)))
