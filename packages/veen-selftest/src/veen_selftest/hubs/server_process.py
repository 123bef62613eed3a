"""A server process of the selftest's own: it prints one line when it listens, and is stopped or killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from veen_selftest.runner.check import ClauseViolation

START_STOP_SECONDS: Final = 60
"""Longest time that a server may take to start, and to stop."""


class ServerProcess:
    """One program in one folder, and its process while it runs."""

    def __init__(
        self, what: str, program: Sequence[str], log: Path, timeout: float = START_STOP_SECONDS
    ) -> None:
        """``what`` names the server in errors; ``log`` takes what it writes to stderr."""
        self.log = log
        self._what = what
        self._program = tuple(program)
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run_once(self, *arguments: str) -> str:
        """Run the program to its end, with arguments that do not start a server; returns its output."""
        try:
            done = subprocess.run(  # noqa: S603 - the program under test
                [*self._program, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=self._timeout,
                env=environment(),
            )
        except subprocess.TimeoutExpired:
            raise ClauseViolation(
                f"{self._program[-1]} {arguments[0]} has not ended after {self._timeout} s"
            ) from None
        if done.returncode != 0:
            raise ClauseViolation(f"{self._program[-1]} {arguments[0]} failed: {done.stderr.strip()[-300:]}")
        return done.stdout

    def start(self, announcement: str, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        """Start the process and return the rest of the line that begins with ``announcement``.

        ``variables`` are added to its environment.
        The process has its own session: Ctrl-C reaches only the selftest, which stops its servers.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - as above
                [*self._program, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=environment() | dict(variables or {}),
            )
        line = self._first_line(self._process.stdout)
        if not line.startswith(announcement):
            self.kill()
            raise ClauseViolation(f"{self._what} did not start: {line.strip()} {self._log_tail()}")
        return line.removeprefix(announcement).strip()

    def _first_line(self, said: IO[str] | None) -> str:
        assert said is not None
        ready, _, _ = select.select([said], [], [], self._timeout)
        return said.readline() if ready else f"no output in {self._timeout} s"

    def _log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace").strip()[-300:]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the process and its children, if it runs: they answer nothing, and write nothing."""
        if self._process is None:
            yield
            return
        os.killpg(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """Let a suspended process go on."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Stop with SIGTERM, as an operator would; returns the exit code."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._wait()

    def _wait(self) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        try:
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code


def environment() -> dict[str, str]:
    """Return the environment without VEEN_ variables: VEEN_KEYS_DIR would mix keys of several hubs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
