"""A hub of the selftest's own, with a witness and a heads file as its memories (P2, P3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from veen_core.hub_log import origin_of
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.hubs.own_witness import OwnWitness
from veen_selftest.hubs.server_process import START_STOP_SECONDS
from veen_selftest.peers.note_verifier import LOG_KEY, verifier_key
from veen_selftest.runner.check import ClauseViolation

RECOSIGN_SEC: Final = 1
"""Age at which the hub renews the cosignatures of an unchanged hub log."""
POLL_SEC: Final = 0.02


class WitnessedHub:
    """A running hub, its witness and its heads file. ``hub`` changes with each ``restart``."""

    def __init__(self, own: OwnHub, witness: OwnWitness) -> None:
        """Start both; the hub's verifier key is known only once the hub runs, so the witness is second."""
        self.own = own
        self.witness = witness
        self.heads_file = own.log.with_name("heads")
        self.heads_file.touch()
        own.change({"hub_log": self.hub_log_settings(witness=True, heads_file=True)})
        self.hub = own.start()
        identity = self.hub.known.identity
        self.origin = origin_of(identity.hub_id)
        """The name of the hub's log."""
        witness.watch([verifier_key(self.origin, LOG_KEY, bytes(key.hub_pk)) for key in identity.hub_keys])
        witness.start()
        self._wait_for_witness()

    def _wait_for_witness(self) -> None:
        """Wait until the hub has asked its witness, which was not there at first."""
        deadline = time.monotonic() + START_STOP_SECONDS
        while self.witness.newest(self.origin) is None:
            if time.monotonic() > deadline:
                raise ClauseViolation(f"the hub has not asked its witness after {START_STOP_SECONDS} s (P2)")
            time.sleep(POLL_SEC)

    def restart(self) -> None:
        """Start the hub again, after it was killed."""
        self.hub = self.own.start()

    def hub_log_settings(self, *, witness: bool, heads_file: bool) -> dict[str, Any]:
        """Return settings that make a hub checkpoint after every commit, with these memories."""
        witnesses: list[Mapping[str, str]] = []
        if witness:
            witnesses.append({"key": self.witness.key, "url": self.witness.url})
        memories = {"heads_file": str(self.heads_file)} if heads_file else {}
        return {"max_entries": 1, "recosign_sec": RECOSIGN_SEC, "witnesses": witnesses, "memories": memories}
