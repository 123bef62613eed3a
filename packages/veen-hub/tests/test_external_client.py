"""A client written from the specification, without veen code, can submit, read and verify."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import StartHub
from .serving import PATIENCE

CLIENT = Path(__file__).with_name("external_client.py")


def test_a_client_without_veen_code_submits_reads_and_verifies(start_hub: StartHub) -> None:
    hub = start_hub(gating=False)
    ran = subprocess.run(
        [sys.executable, str(CLIENT), str(hub.port), hub.hub_id.hex(), "orders", "13"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "verified 13 messages\n"), ran.stderr


def test_the_external_client_is_short_and_imports_no_veen_package() -> None:
    lines = CLIENT.read_text().splitlines()
    assert len(lines) < 120
    assert not [line for line in lines if line.lstrip().startswith(("import veen", "from veen"))]
