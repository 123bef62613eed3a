"""What a hub serves to replicas besides the batches of its journal: the first copy, and when to say more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from veen_storage import Store
from veen_storage.copies.snapshot import send_snapshot


class ReplicaSource(Protocol):
    """Serves replicas; ``shards.merging`` does it for a hub with several shards."""

    def has_hub_log(self, size: int) -> bool:
        """Return whether the journal that replicas read has the hub log up to a size."""

    def send_snapshot(self, emit: Callable[[bytes], None]) -> None:
        """Send the first copy of the hub, in a thread of its own."""


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """Serves the replicas of a hub with one shard."""

    store: Store

    def has_hub_log(self, size: int) -> bool:  # noqa: ARG002 - the hub log grows by batches of the journal
        return True

    def send_snapshot(self, emit: Callable[[bytes], None]) -> None:
        send_snapshot(self.store, emit)
