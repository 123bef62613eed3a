"""What a hub serves to replicas besides the batches of its journal: the first copy, the hub checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from veen_core.tlog.tree_head import SignedHead
from veen_storage import Store
from veen_storage.copies.snapshot import send_snapshot


class ReplicaSource(Protocol):
    """Serves replicas; ``shards.merging`` does it for a hub with several shards."""

    @property
    def published(self) -> SignedHead | None:
        """The hub checkpoint that is served, if the journal that replicas read has its entries."""

    def send_snapshot(self, emit: Callable[[bytes], None]) -> None:
        """Send the first copy of the hub, in a thread of its own."""


@dataclass(frozen=True, slots=True)
class DirectorySource:
    """Serves the replicas of a hub with one shard."""

    store: Store

    @property
    def published(self) -> SignedHead | None:
        return self.store.hub_log.published

    def send_snapshot(self, emit: Callable[[bytes], None]) -> None:
        send_snapshot(self.store, emit)
