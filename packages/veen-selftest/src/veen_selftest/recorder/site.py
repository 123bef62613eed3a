"""A recorder at a hub, and `veen record` as its administrator and its producers use it (SDR0 3.5)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import Operator
from veen_selftest.runner.check import ClauseViolation
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

AUTH: Final = "record/security/auth"
ORDERS: Final = "record/app/orders"
PROFILE: Final = f"""\
profile: selftest
realm: selftest
streams:
  {AUTH}: [login]
  {ORDERS}: [order]
"""
COVER_SECONDS: Final = "10"


class RecorderSite(Operator):
    """One hub, a recorder_admin, and two producers: ``door`` writes logins, ``shop`` writes orders."""

    def __init__(self, root: Path, hub: HttpHub) -> None:
        super().__init__(root)
        self.hub = hub
        assert hub.admin is not None  # the selftest started the hub
        self.write_identity("issuer", hub.admin)
        (root / "recorder.yaml").write_text(PROFILE, encoding="utf-8")
        self._init("recorder_admin", "admin")
        for name, stream in (("door", AUTH), ("shop", ORDERS)):
            own = ("--stream", stream, "--origin", name, "--to", "admin/identity")
            self._init("recorder_producer", name, *own)

    def _init(self, role: str, name: str, *arguments: str) -> None:
        hub = ("--hub", self.hub.url, "--trust", self.hub.known.identity.hub_id.hex())
        where = ("--profile", "recorder.yaml", "--out", name, "--issuer", "issuer", "--no-passphrase")
        self.veen("record", "init", "--role", role, *hub, *where, *arguments, "-q")

    def emit(self, who: str, events: Sequence[dict[str, Any]]) -> None:
        """Record events as a producer."""
        path = self.root / f"{who}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
        self.veen("record", "emit", "--batch", "--file", path.name, "-c", f"{who}/recorder.yaml", "-q")

    def admin(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run a command of the administrator with ``--json``; return its exit code and its answer."""
        done = self.run("record", command, *arguments, "-c", "admin/recorder.yaml", "--json")
        if not done.stdout:
            raise ClauseViolation(f"`veen record {command}` ended with {done.returncode}: {done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer

    def checkpoint(self, folder: str) -> dict[str, Any]:
        """Make a checkpoint; return what it says."""
        code, made = self.admin("checkpoint", "--out", folder, "--cover-timeout", COVER_SECONDS)
        if code:
            raise ClauseViolation(f"`veen record checkpoint` ended with {code}")
        return made

    def replay(self, *arguments: str) -> list[dict[str, Any]]:
        """Run `veen record replay`; return all of its rows, with the header and the summary."""
        output = self.veen("record", "replay", *arguments, "-c", "admin/recorder.yaml")
        return [json.loads(line) for line in output.splitlines()]


def logins(count: int) -> list[dict[str, Any]]:
    return [{"event_type": "login", "subject_id": f"user:{n % 3}", "payload": {"n": n}} for n in range(count)]


def orders(count: int) -> list[dict[str, Any]]:
    return [{"event_type": "order", "subject_id": f"user:{n % 2}", "payload": {"n": n}} for n in range(count)]


@contextmanager
def recorder_site(context: CheckContext) -> Iterator[RecorderSite]:
    """Start a hub and set up a recorder; stop the hub at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-recorder-") as folder,
        context.own_hub(HUB_LOG).running() as hub,
    ):
        yield RecorderSite(Path(folder), hub)
