"""A forked process that works and kills itself with SIGKILL at one of its effects.

An effect is a system call that makes something durable, or a request that changes a hub: nothing else of an
export or an import survives the process. Whatever happens between two effects has the same result.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from veen_hub.client.wire.http_transport import HttpTransport

DURABLE = ("fsync", "fdatasync", "rename", "unlink", "truncate")
CHANGING = ("/v1/submit", "/v1/attachment/", "/tooling/authorize")
"""Paths of the requests that change a hub; other requests ask."""
NEVER = 10**9


class Executioner:
    """Counts the effects of this process, and kills it right before or after one of them."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.effects, self._at, self._after = 0, at, after
        for name in DURABLE:
            setattr(os, name, self._watched(getattr(os, name)))
        HttpTransport.call = self._watched_call(HttpTransport.call)  # type: ignore[method-assign]

    def _begin(self) -> bool:
        """Count an effect; return whether this process ends with it."""
        self.effects += 1
        now = self.effects == self._at
        if now and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        return now

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            now = self._begin()
            result = call(*args, **kwargs)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return watched

    def _watched_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(transport: HttpTransport, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
            if method == "GET" or not path.startswith(CHANGING):
                return await call(transport, method, path, *args, **kwargs)
            now = self._begin()
            result = await call(transport, method, path, *args, **kwargs)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return watched


def run_and_die(work: Callable[[], object], at: int, *, after: bool = False) -> tuple[bool, int]:
    """Work in a forked process; return whether it was killed, and how many effects it had if not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            executioner = Executioner(at, after=after)
            work()
            os.write(writing, str(executioner.effects).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True, 0
    assert os.WEXITSTATUS(status) == 0
    return False, int(told)


def crash_rounds(default: int) -> int:
    """Return the number of kills of a test; ``VEEN_CRASH_ROUNDS`` asks for more."""
    return int(os.environ.get("VEEN_CRASH_ROUNDS", default))
