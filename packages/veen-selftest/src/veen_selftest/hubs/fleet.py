"""Where a run's hubs come from: it starts its own, or there is one at a URL.

A check asks for a kind of hub (``Setup``) and gets one that fits, or ``Skip`` with what is missing. Hubs that
are only talked to are shared by all checks; one that a check stops, kills or rotates is its own.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from veen_core.hashing import H
from veen_core.ids import Label
from veen_core.keys import SigningKey
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.status import LabelRequest, Status
from veen_hub.client import Tls
from veen_selftest.hubs.http_hub import CBOR, JSON, Hub
from veen_selftest.hubs.own_hub import PATIENCE, PROGRAM, OwnHub
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.check import Skip, Violation
from veen_selftest.runner.hub_setup import Setup


class Fleet(Protocol):
    """Both kinds."""

    run: str
    """What names of streams begin with: nobody else's, and no earlier run's."""

    starts_hubs: bool
    """Whether a hub is what its setup says; of one that is there, only what it tells is known."""

    def hub(self, setup: Setup) -> Hub:
        """One that fits, running, shared."""

    def own(self, setup: Setup) -> OwnHub:
        """A new one, not started, for the check to do with as it likes."""

    def describe(self) -> str: ...

    def close(self) -> None: ...


class OwnFleet:
    """Hubs of the run's own, in a folder that is removed."""

    def __init__(self, seed: bytes, program: Sequence[str] = PROGRAM, *, patience: float = PATIENCE) -> None:
        self.run = "selftest"
        self.starts_hubs = True
        self._program = tuple(program)
        self._patience = patience
        self._admin = key_of(seed, "admin")
        self._place = tempfile.TemporaryDirectory(prefix="veen-selftest-")
        self._count = itertools.count(1)
        self._made: list[OwnHub] = []
        self._running: dict[Setup, Hub] = {}
        self._failed: dict[Setup, str] = {}

    @property
    def folder(self) -> Path:
        return Path(self._place.name)

    def hub(self, setup: Setup) -> Hub:
        if setup in self._failed:
            raise Violation(self._failed[setup])
        if setup not in self._running:
            try:
                self._running[setup] = self.own(setup).start()
            except Violation as exc:  # it is not waited for again and again
                self._failed[setup] = str(exc)
                raise
        return self._running[setup]

    def own(self, setup: Setup) -> OwnHub:
        root = self.folder / f"{next(self._count):02}-{setup.name}"
        self._made.append(OwnHub(self._program, root, setup, self._admin, self._patience))
        return self._made[-1]

    def describe(self) -> str:
        return "its own (" + " ".join(Path(word).name for word in self._program) + ")"

    def close(self) -> None:
        """Nothing stays behind: no process, no file."""
        for made in self._made:
            made.kill()
        self._place.cleanup()


OK: Final = 200
OTHERS: Final = "it takes a hub that the selftest may start, stop and kill: run it without --hub"


class NoHub(Exception):  # noqa: N818 - what was found, not what went wrong
    """Something answers, and it is no hub."""


class KeyRefused(Exception):  # noqa: N818 - the hub's answer
    """The hub takes no orders of that key."""


class HubAt:
    """A hub that is there already; the selftest writes to streams of its own and leaves all else alone."""

    def __init__(self, url: str, run: str, admin: SigningKey | None = None, tls: Tls | None = None) -> None:
        self.run = f"selftest/{run}"
        self.starts_hubs = False
        self._hub = Hub(url, admin, tls, others=True)

    def reach(self) -> Status:
        """Before anything is judged: is there a hub at all; what answers in another language is none."""
        answer = self._hub.get("/v1/status")
        kind = answer.headers.get("content-type", "").split(";", maxsplit=1)[0]
        if answer.status != OK or kind not in (CBOR, JSON):
            raise NoHub(f"HTTP {answer.status}, {kind or 'of no content type'}")
        return self._hub.known

    def check_admin(self) -> None:
        """Does the hub take orders of the key that was given? Asked with an order that changes nothing."""
        if self._hub.admin is None:
            return
        nothing = LabelRequest(label=Label(H(self.run.encode())))
        answer = self._hub.order("/tooling/checkpoint", nothing.encode())
        if answer.status in (HTTP_STATUS[Code.UNAUTHORIZED], HTTP_STATUS[Code.FORBIDDEN]):
            raise KeyRefused(answer.words)

    def hub(self, setup: Setup) -> Hub:
        if (why := setup.unfit(self._hub.known)) is not None:
            raise Skip(why)
        return self._hub

    def own(self, setup: Setup) -> OwnHub:
        del setup
        raise Skip(OTHERS)

    def describe(self) -> str:
        return self._hub.url

    def close(self) -> None:
        """Nothing was opened."""
