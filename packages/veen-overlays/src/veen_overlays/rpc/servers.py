"""The servers of a stream, from their announcements in stream order (ADR 0026)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from veen_core.ids import ClientId
from veen_overlays.rpc.records import ServerLease, is_authentic


@dataclass(frozen=True, slots=True)
class AnnouncedServer:
    """One announced server."""

    client_id: bytes
    principal: ClientId
    methods: frozenset[str]
    until: int
    """The first second, in the hub's time, at which its lease has ended."""
    seen_at: int
    """The stream_seq of the announcement."""

    def is_live(self, now: int) -> bool:
        return now < self.until


class Servers:
    """The servers announced so far; ``trusted`` are the principals that count, None counts all."""

    def __init__(self, trusted: Iterable[bytes] | None = None) -> None:
        self.trusted = None if trusted is None else frozenset(bytes(each) for each in trusted)
        self._known: dict[bytes, AnnouncedServer] = {}

    def add(
        self, lease: ServerLease, client_id: bytes | None, hub_ts: int, seq: int
    ) -> AnnouncedServer | None:
        """Take in the next announcement; None if it does not count."""
        if self.trusted is not None and bytes(lease.principal_id) not in self.trusted:
            return None
        known = self._known.get(bytes(client_id or b""))
        if known is not None and known.principal != lease.principal_id:
            return None  # the first principal that announced a client_id stays
        renews = known is not None and (known.principal, known.client_id) == (
            lease.principal_id,
            lease.client_id,
        )
        if client_id is None or not (renews or is_authentic(lease, client_id)):
            return None
        server = AnnouncedServer(
            bytes(client_id), lease.principal_id, frozenset(lease.methods), hub_ts + lease.lease_sec, seq
        )
        self._known[server.client_id] = server
        return server

    def withdraw(self, client_id: bytes, principal: bytes) -> bool:
        """End the lease of a client_id that the same principal has replaced; False if it has none."""
        known = self._known.get(bytes(client_id))
        if known is None or known.principal != principal:
            return False
        self._known[known.client_id] = replace(known, until=0)
        return True

    def get(self, client_id: bytes | None) -> AnnouncedServer | None:
        """The server that writes as ``client_id``, alive or not."""
        return None if client_id is None else self._known.get(client_id)

    def live(self, now: int) -> list[AnnouncedServer]:
        """The servers whose lease has not ended, in the order of their client_ids."""
        return sorted((s for s in self._known.values() if s.is_live(now)), key=lambda s: s.client_id)

    def offering(self, method: str, now: int) -> list[AnnouncedServer]:
        """The live servers that offer a method; all live servers if none of them does."""
        live = self.live(now)
        return [server for server in live if method in server.methods] or live
