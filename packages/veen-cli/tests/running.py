"""Run ``veen`` in this process, as a process of its own, or in a shell."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veen_cli.frame.main import run
from veen_storage import lock_owner

SCRIPTS = Path(sys.executable).parent
MAX_SECONDS = 300


@dataclass(frozen=True)
class Done:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        assert self.out.count("\n") == 1, "one object, one line"
        return json.loads(self.out)

    def ok(self) -> Done:
        assert (self.code, self.err) == (0, ""), self
        return self

    def failed(self, code: int) -> str:
        """Check that the command failed with this exit code and one line on stderr; return the line."""
        assert self.code == code, self
        assert self.err.startswith(("veen: ", '{"error": {')), self
        assert self.err.count("\n") == 1, self
        return self.err


def veen(*args: object, stdin: bytes = b"") -> Done:
    """Run in this process; only the start of the interpreter is left out."""
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(arg) for arg in args])
    finally:
        sys.stdin = before
    content = out.buffer
    assert isinstance(content, io.BytesIO)
    return Done(code, content.getvalue().decode(), err.getvalue())


def environment(config: Path) -> dict[str, str]:
    """Return an environment without VEEN_* variables, with ``veen`` on the PATH and its own contexts."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
    return {**inherited, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "VEEN_CONFIG_DIR": str(config)}


def process(cwd: Path, *args: object, stdin: bytes = b"") -> Done:
    """Run ``veen`` as a process of its own."""
    done = subprocess.run(
        ["veen", *map(str, args)],
        cwd=cwd,
        env=environment(cwd / ".config"),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=MAX_SECONDS,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def shell(cwd: Path, lines: list[str]) -> str:
    """Run lines in a shell; stop every hub that they leave running."""
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
            cwd=cwd,
            env=environment(cwd / ".config"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=MAX_SECONDS,
        )
    finally:
        end_hubs(cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def end_hubs(below: Path) -> None:
    for version in below.rglob("VERSION"):
        if pid := lock_owner(version.parent):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


@contextlib.contextmanager
def ending_hubs(below: Path) -> Iterator[None]:
    try:
        yield
    finally:
        end_hubs(below)


@dataclass
class Witness:
    """A ``veen-witness`` process."""

    url: str
    process: subprocess.Popen[str]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def start_witness(folder: Path) -> Witness:
    """Run the witness of a folder on a free port."""
    process = subprocess.Popen(
        [SCRIPTS / "veen-witness", "--dir", folder, "--listen=127.0.0.1:0", "--log-level=error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line, before = process.stdout.readline(), "veen-witness listening on "
    assert line.startswith(before), line
    return Witness(line.removeprefix(before).strip(), process)
