"""Announcements: wake the connections of replicas when something new is durable (P9)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from veen_core.ids import Coid


@dataclass(slots=True, eq=False)
class ReplicaConnection:
    """One connected replica, and the items other than batches that it has not been sent yet."""

    coids: list[Coid] = field(default_factory=list)


class Announcements:
    """The connected replicas of a hub; used from the event loop only."""

    def __init__(self) -> None:
        self._connections: set[ReplicaConnection] = set()
        self.changed = asyncio.Event()
        """Set by the next announcement; take it before reading what is new."""

    @property
    def replicas(self) -> int:
        """Number of connected replicas."""
        return len(self._connections)

    def join(self) -> ReplicaConnection:
        connection = ReplicaConnection()
        self._connections.add(connection)
        return connection

    def leave(self, connection: ReplicaConnection) -> None:
        self._connections.discard(connection)

    def wake(self) -> None:
        """Announce durable batches, a published hub checkpoint or a handover."""
        if self._connections:
            self.changed.set()
            self.changed = asyncio.Event()

    def add_attachment(self, coid: Coid) -> None:
        """Announce an attachment that is durable."""
        for connection in self._connections:
            connection.coids.append(coid)
        self.wake()
