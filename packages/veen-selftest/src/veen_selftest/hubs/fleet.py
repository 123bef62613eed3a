"""The hubs of a run: hubs that it starts, or one that runs at a URL.

A check asks for a kind of hub (``HubSetup``) and gets one that fits, or ``Skip``, which says
what is missing. All checks share a running hub, but a check that stops, kills or rotates a hub has its own.
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
from veen_selftest.hubs.http_hub import CBOR, JSON, HttpHub
from veen_selftest.hubs.operator import PROGRAM as VEEN
from veen_selftest.hubs.own_hub import PROGRAM, OwnHub
from veen_selftest.hubs.own_witness import OwnWitness
from veen_selftest.hubs.server_process import START_STOP_SECONDS
from veen_selftest.hubs.witnessed_hub import WitnessedHub
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.check import ClauseViolation, Skip
from veen_selftest.runner.hub_setup import HUB_LOG, HubSetup


class Fleet(Protocol):
    """The hubs of one run: hubs that the run starts, or one that runs already."""

    run: str
    """Prefix of the stream names of this run; no other run uses it."""

    starts_hubs: bool
    """Whether the run starts its hubs; otherwise the hub's settings are known only from its status."""

    veen: tuple[str, ...]
    """The program `veen`, with which checks operate the hubs that they start."""

    def hub(self, setup: HubSetup) -> HttpHub:
        """Return a running hub of this kind, shared by all checks."""

    def own_hub(self, setup: HubSetup) -> OwnHub:
        """Return a new hub for one check, not started yet."""

    def restore(self, own: OwnHub, setup: HubSetup) -> OwnHub:
        """Return a copy of one of this fleet's hubs as it is now, with other settings, not started yet."""

    def witnessed_hub(self) -> WitnessedHub:
        """Return a running hub with a witness and a heads file, shared by all checks."""

    def forget_witnessed_hub(self) -> None:
        """Discard the witnessed hub, which may be damaged; the next check gets a new one."""

    def describe(self) -> str: ...

    def close(self) -> None: ...


class OwnFleet:
    """Hubs that the run starts, in a temporary folder."""

    def __init__(
        self,
        seed: bytes,
        program: Sequence[str] = PROGRAM,
        *,
        veen: Sequence[str] = VEEN,
        timeout: float = START_STOP_SECONDS,
    ) -> None:
        self.run = "selftest"
        self.starts_hubs = True
        self.veen = tuple(veen)
        self._program = tuple(program)
        self._timeout = timeout
        self._admin = key_of(seed, "admin")
        self._folder = tempfile.TemporaryDirectory(prefix="veen-selftest-")
        self._count = itertools.count(1)
        self._made: list[OwnHub | OwnWitness] = []
        self._running: dict[HubSetup, HttpHub] = {}
        self._failed: dict[HubSetup, str] = {}
        self._witnessed: WitnessedHub | None = None

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def hub(self, setup: HubSetup) -> HttpHub:
        if setup in self._failed:
            raise ClauseViolation(self._failed[setup])
        if setup not in self._running:
            try:
                self._running[setup] = self.own_hub(setup).start()
            except ClauseViolation as exc:  # do not try again for every check
                self._failed[setup] = str(exc)
                raise
        return self._running[setup]

    def _new_folder(self, name: str) -> Path:
        return self.folder / f"{next(self._count):02}-{name}"

    def own_hub(self, setup: HubSetup) -> OwnHub:
        own = OwnHub(self._program, self._new_folder(setup.name), setup, self._admin, self._timeout)
        self._made.append(own)
        return own

    def restore(self, own: OwnHub, setup: HubSetup) -> OwnHub:
        root = self._new_folder(setup.name)
        copy = OwnHub(self._program, root, setup, self._admin, self._timeout, snapshot_of=own)
        self._made.append(copy)
        return copy

    def witnessed_hub(self) -> WitnessedHub:
        if self._witnessed is None:
            witness = OwnWitness(self._new_folder("witness"), self._timeout)
            self._made.append(witness)
            self._witnessed = WitnessedHub(self.own_hub(HUB_LOG), witness)
        return self._witnessed

    def forget_witnessed_hub(self) -> None:
        if self._witnessed is not None:
            self._witnessed.own.kill()
            self._witnessed.witness.kill()
            self._witnessed = None

    def describe(self) -> str:
        return "its own hubs (" + " ".join(Path(word).name for word in self._program) + ")"

    def close(self) -> None:
        """Kill all hubs and witnesses, and remove the folder."""
        for made in self._made:
            made.kill()
        self._folder.cleanup()


HTTP_OK: Final = 200
NEEDS_OWN_HUB: Final = "needs a hub that the selftest may start, stop and kill: run it without --hub"


class NoHub(Exception):  # noqa: N818 - a finding, not an error
    """The server at the URL is not a hub."""


class KeyRefused(Exception):  # noqa: N818 - the hub's answer
    """The hub refuses requests signed with the admin key."""


class RemoteFleet:
    """A running hub; the selftest writes only to its own streams."""

    def __init__(
        self,
        url: str,
        run: str,
        admin: SigningKey | None = None,
        tls: Tls | None = None,
        *,
        probes_url: str | None = None,
    ) -> None:
        self.run = f"selftest/{run}"
        self.starts_hubs = False
        self.veen: tuple[str, ...] = VEEN
        self._hub = HttpHub(url, admin, tls, foreign=True, probes_url=probes_url)

    def reach(self) -> Status:
        """Read the status; raises ``NoHub`` if the answer is not in CBOR or JSON."""
        answer = self._hub.get("/v1/status")
        kind = answer.headers.get("content-type", "").split(";", maxsplit=1)[0]
        if answer.status != HTTP_OK or kind not in (CBOR, JSON):
            raise NoHub(f"HTTP {answer.status}, {kind or 'no content type'}")
        return self._hub.known

    def check_admin(self) -> None:
        """Check the admin key with a request that changes nothing; raises ``KeyRefused``."""
        if self._hub.admin is None:
            return
        nothing = LabelRequest(label=Label(H(self.run.encode())))
        answer = self._hub.admin_post("/tooling/checkpoint", nothing.encode())
        if answer.status in (HTTP_STATUS[Code.UNAUTHORIZED], HTTP_STATUS[Code.FORBIDDEN]):
            raise KeyRefused(answer.reason)

    def hub(self, setup: HubSetup) -> HttpHub:
        if (why := setup.unfit(self._hub.known)) is not None:
            raise Skip(why)
        return self._hub

    def own_hub(self, setup: HubSetup) -> OwnHub:
        del setup
        raise Skip(NEEDS_OWN_HUB)

    def restore(self, own: OwnHub, setup: HubSetup) -> OwnHub:
        del own, setup
        raise Skip(NEEDS_OWN_HUB)

    def witnessed_hub(self) -> WitnessedHub:
        raise Skip(NEEDS_OWN_HUB)

    def forget_witnessed_hub(self) -> None:
        """Do nothing: a running hub has no witness of the selftest's own."""

    def describe(self) -> str:
        return self._hub.url

    def close(self) -> None:
        """Do nothing: the hub keeps running."""
