"""The keys of one label's client_ids: the one in use, and earlier ones (KEX0.2, KEX1+ 4.1).

The client draws a fresh client_id per label, so that an observer cannot link labels. A cap token names one
client_id (§6); if that is the identity's own key, the identity's key signs.
"""

from __future__ import annotations

import dataclasses

from veen_core.client_state import UNUSED, ClientBounds, ClientState
from veen_core.errors import StateError
from veen_core.ids import ClientId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.pipelined_client import PipelinedClient
from veen_hub.client.errors import BoundsReached
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.state.records import ClientKey


class KeyRing:
    """The signing keys of one label's client_ids."""

    def __init__(
        self, identity: Identity | None, records: tuple[ClientKey, ...], randomness: Randomness
    ) -> None:
        self._identity = identity
        self._randomness = randomness
        self._keys = {record.client_id: record for record in records}
        self._retired: set[ClientId] = set()
        """Client_ids whose keys were deleted at their bounds, since this process started."""
        self._signer: SigningKey | None = None
        """The key last used: to derive it from its seed costs as much as a signature."""

    def draw(self, now: UnixTime) -> ClientId:
        """Draw a fresh client_id and keep its key."""
        seed = SigningSeed(self._randomness(SigningSeed.SIZE))
        client_id = ClientId(SigningKey(seed).public)
        self._keys[client_id] = ClientKey(client_id=client_id, seed=seed, created_at=now, client_seq=UNUSED)
        return client_id

    def signer(self, client_id: ClientId) -> SigningKey:
        """Return the key that signs for a client_id."""
        record = self._keys.get(client_id)
        if record is not None and record.seed is not None:
            if self._signer is None or self._signer.seed != record.seed:
                self._signer = SigningKey(record.seed)
            return self._signer
        if self._identity is not None and client_id == self._identity.client_id:
            return self._identity.signing_key
        raise StateError(
            f"the key of client_id {client_id.hex()} is not in this state folder",
            action="connect with the identity that this state folder belongs to",
        )

    def holds(self, client_id: ClientId) -> bool:
        """Return whether the key of a client_id is in this ring."""
        own = self._identity.client_id if self._identity is not None else None
        return client_id in self._keys or client_id == own

    def usable(self, client_id: ClientId, state: ClientState, bounds: ClientBounds, now: UnixTime) -> bool:
        """Return whether a client_id's key is in this ring and within its bounds (KEX1+ 4.1)."""
        if client_id != state.client_id:
            record = self._keys.get(client_id)
            if record is None:
                return self.holds(client_id)
            state = dataclasses.replace(state, created_at=record.created_at, client_seq=record.client_seq)
        return not bounds.exhausted(state, now)

    def is_identity(self, client_id: ClientId) -> bool:
        return self._identity is not None and client_id == self._identity.client_id

    def record_usage(self, state: ClientState) -> None:
        """Record the client_seq and age of the client_id in use, before another one is used."""
        held = self._keys.get(state.client_id)
        seed = held.seed if held is not None else None
        self._keys[state.client_id] = ClientKey(
            client_id=state.client_id, seed=seed, created_at=state.created_at, client_seq=state.client_seq
        )

    def use(self, client: PipelinedClient, client_id: ClientId, now: UnixTime) -> None:
        """Switch ``client`` to a client_id whose key is in this ring; no message may be pending."""
        if client.state.client_id == client_id:
            return
        if client_id in self._retired:
            raise BoundsReached(client_id)
        if not self.holds(client_id):
            raise StateError(
                f"the token is for client_id {client_id.hex()}, and this identity does not have its key",
                action=f"ask for a token for this stream's client_id, {client.state.client_id.hex()} "
                "(`veen id client-id`), or for the identity's own key",
            )
        self.record_usage(client.state)
        record = self._keys.get(client_id)
        created_at, client_seq = (record.created_at, record.client_seq) if record else (now, UNUSED)
        client.switch(client_id, created_at, client_seq)

    def rotate(self, client: PipelinedClient, now: UnixTime, *, exhausted: bool = True) -> None:
        """Switch to a fresh client_id; delete an exhausted key, unless it is the identity's (KEX1+ 4.1)."""
        old = client.state
        client.rotate(self.draw(now), now)
        if self.is_identity(old.client_id) or not exhausted:
            self.record_usage(old)  # a token may name this client_id later; its bounds still apply
        else:
            del self._keys[old.client_id]
            self._retired.add(old.client_id)

    @property
    def records(self) -> tuple[ClientKey, ...]:
        """The keys as they are stored."""
        return tuple(self._keys.values())
