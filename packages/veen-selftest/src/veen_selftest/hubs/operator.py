"""An operator at a command line: runs `veen` in a folder that has the admin's identity."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningKey
from veen_core.keystore import Secrets
from veen_selftest.hubs.server_process import environment
from veen_selftest.runner.check import ClauseViolation

PROGRAM: Final = (sys.executable, "-P", "-c", "from veen_cli.frame.start import main; main()")
MAX_COMMAND_SECONDS: Final = 120


class Operator:
    """Runs `veen` with ``root`` as the working directory."""

    def __init__(self, root: Path, program: Sequence[str] = PROGRAM) -> None:
        """``program`` is `veen`, or a program that takes the same arguments."""
        self.root = root
        self.program = tuple(program)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `veen`; the caller looks at the exit code."""
        try:
            return subprocess.run(  # noqa: S603 - the program under test, arguments of a suite
                [*self.program, *arguments],
                cwd=self.root,
                capture_output=True,
                text=True,
                timeout=MAX_COMMAND_SECONDS,
                check=False,
                env=environment(),
            )
        except subprocess.TimeoutExpired:
            words = " ".join(arguments[:2])
            raise ClauseViolation(f"`veen {words}` has not ended after {MAX_COMMAND_SECONDS} s") from None

    def veen(self, *arguments: str) -> str:
        """Run `veen`; return its output, or raise ``ClauseViolation`` if the exit code is not 0."""
        done = self.run(*arguments)
        if done.returncode != 0:
            words = " ".join(arguments[:2])
            raise ClauseViolation(
                f"`veen {words}` ended with {done.returncode}: {done.stderr or done.stdout}"
            )
        return done.stdout

    def veen_object(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run `veen` with ``--json``; return the exit code and the result, which a failed command lacks."""
        done = self.run(*arguments, "--json")
        words = " ".join(arguments[:2])
        try:
            found = json.loads(done.stdout)
        except ValueError:
            raise ClauseViolation(f"`veen {words}` printed no result: {done.stderr or done.stdout}") from None
        return done.returncode, found

    def write_identity(self, name: str, key: SigningKey) -> None:
        """Write the folder of an identity that has this signing key."""
        folder = self.root / name
        folder.mkdir()
        secrets = Secrets(id_sign=key.seed, id_dh=DhSecret(bytes(range(32))), created_at=UnixTime(1))
        path = folder / "secrets.cbor"
        path.touch(0o600)
        path.write_bytes(secrets.encode())
