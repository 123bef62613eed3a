"""podman as a child process, and what this machine needs to run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

CONF: Final = Path(__file__).with_name("containers.conf")
"""Settings for machines whose cgroups or limits are not podman's defaults, such as those of CI."""


class PodmanError(Exception):
    """podman failed; the message has the end of its errors."""


def environment() -> dict[str, str]:
    return {"CONTAINERS_CONF": str(CONF), **os.environ}


def podman(*arguments: str, check: bool = True, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run podman; with ``check`` a failure raises."""
    runtime = ["--runtime=runc"] if shutil.which("runc") else []  # crun needs cgroups of one version only
    done = subprocess.run(
        ["podman", *runtime, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=environment(),
    )
    if check and done.returncode != 0:
        raise PodmanError(f"podman {' '.join(arguments[:3])}: {done.stderr.strip()[-800:]}")
    return done
