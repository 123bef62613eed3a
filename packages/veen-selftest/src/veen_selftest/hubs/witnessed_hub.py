"""A hub of the selftest's own, with a witness and a heads file as its memories (P2, P3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from veen_core.hub_log import origin_of
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.hubs.own_witness import OwnWitness
from veen_selftest.peers.note_verifier import LOG_KEY, verifier_key

RECOSIGN_SEC: Final = 1
"""Age at which the hub renews the cosignatures of an unchanged hub log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessedHub:
    """A running hub and its memories; ``origin`` is the name of its log."""

    own: OwnHub
    hub: HttpHub
    origin: str
    witness: OwnWitness
    heads_file: Path

    def hub_log_settings(self, *, witness: bool, heads_file: bool) -> dict[str, Any]:
        """Return the settings ``hub_log`` of a hub with these memories."""
        return hub_log_settings(
            witness=self.witness if witness else None, heads_file=self.heads_file if heads_file else None
        )


def hub_log_settings(*, witness: OwnWitness | None, heads_file: Path | None) -> dict[str, Any]:
    """Return settings that make a hub checkpoint after every commit, with these memories."""
    witnesses: list[Mapping[str, str]] = []
    if witness is not None:
        witnesses.append({"key": witness.key, "url": witness.url})
    memories = {"heads_file": str(heads_file)} if heads_file is not None else {}
    return {"max_entries": 1, "recosign_sec": RECOSIGN_SEC, "witnesses": witnesses, "memories": memories}


def hub_log_keys(hub: HttpHub) -> list[str]:
    """Return the verifier keys of a hub's log, as its operator publishes them."""
    identity = hub.known.identity
    origin = hub.known.hub_log_origin or origin_of(identity.hub_id)
    return [verifier_key(origin, LOG_KEY, bytes(key.hub_pk)) for key in identity.hub_keys]


def start_witnessed(own: OwnHub, make_witness: Callable[[Iterable[str]], OwnWitness]) -> WitnessedHub:
    """Start a witness for a new hub, and the hub with that witness and a heads file."""
    first = own.start()
    witness = make_witness(hub_log_keys(first))
    origin = origin_of(first.known.identity.hub_id)
    own.stop()
    witness.start()
    heads_file = own.log.with_name("heads")
    own.change({"hub_log": hub_log_settings(witness=witness, heads_file=heads_file)})
    return WitnessedHub(own=own, hub=own.start(), origin=origin, witness=witness, heads_file=heads_file)
