"""A hub's keys stay in its memory: neither the hub nor its helper processes leave a core file."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from .conftest import StartProcess
from .serving import until

HELPER = "veen_hub.pipeline.signer"
PROTECTED = """
import ctypes
from veen_hub.ops.process_memory import protect_memory

PR_GET_DUMPABLE = 3
libc = ctypes.CDLL(None)
before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
protect_memory()
print(before, libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
"""


def core_limit(pid: int) -> str:
    (line,) = [
        line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file size" in line
    ]
    return line.removeprefix("Max core file size").split()[1]


def test_a_protected_process_is_not_dumpable() -> None:
    done = subprocess.run([sys.executable, "-c", PROTECTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]


def test_a_running_hub_may_not_write_a_core_file(start_process: StartProcess) -> None:
    """Also if the user's limit allows one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        hub = start_process("data", "--open")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert core_limit(hub.process.pid) == "0"


def test_the_signer_process_may_not_write_a_core_file() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as helper:
        until(lambda: core_limit(helper.pid) == "0", "the helper process has protected itself")
