"""An operator at a command line: runs `veen` in a folder, and has the admin's identity there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningKey
from veen_core.keystore import Secrets
from veen_selftest.runner.check import Violation

PROGRAM: Final = (sys.executable, "-P", "-c", "from veen_cli.frame.start import main; main()")
COMMAND_SECONDS: Final = 120


class Operator:
    """Runs `veen` with ``root`` as the working directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `veen`; the caller looks at the exit code."""
        return subprocess.run(  # noqa: S603 - this Python, arguments of a suite
            [*PROGRAM, *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def veen(self, *arguments: str) -> str:
        """Run `veen`, which must succeed; return its output."""
        done = self.run(*arguments)
        if done.returncode != 0:
            words = " ".join(arguments[:2])
            raise Violation(f"`veen {words}` ended with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def write_identity(self, name: str, key: SigningKey) -> None:
        """Write the folder of an identity that has this signing key."""
        folder = self.root / name
        folder.mkdir()
        secrets = Secrets(id_sign=key.seed, id_dh=DhSecret(bytes(range(32))), created_at=UnixTime(1))
        path = folder / "secrets.cbor"
        path.touch(0o600)
        path.write_bytes(secrets.encode())
