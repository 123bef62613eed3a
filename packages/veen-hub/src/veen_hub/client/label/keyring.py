"""The client_ids of one label: the one in use, and those put aside (KEX0.2, KEX1+ 4.1).

A client_id is drawn fresh per label and never linked to another in the open. A cap token names one client_id
(§6): where that is the identity's own key, the identity's key signs.
"""

from __future__ import annotations

import dataclasses

from veen_core.client_state import UNUSED, ClientBounds, ClientState
from veen_core.errors import StateError
from veen_core.ids import ClientId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.label.label_client import PipelinedClient
from veen_hub.client.state.records import ClientKey


class KeyRing:
    """Keys by client_id; ``records`` is what to persist."""

    def __init__(
        self, identity: Identity | None, records: tuple[ClientKey, ...], randomness: Randomness
    ) -> None:
        self._identity = identity
        self._randomness = randomness
        self._keys = {record.client_id: record for record in records}

    def draw(self, now: UnixTime) -> ClientId:
        """A fresh client_id."""
        seed = SigningSeed(self._randomness(SigningSeed.SIZE))
        client_id = ClientId(SigningKey(seed).public)
        self._keys[client_id] = ClientKey(client_id=client_id, seed=seed, created_at=now, client_seq=UNUSED)
        return client_id

    def signer(self, client_id: ClientId) -> SigningKey:
        record = self._keys.get(client_id)
        if record is not None and record.seed is not None:
            return SigningKey(record.seed)
        if self._identity is not None and client_id == self._identity.client_id:
            return self._identity.signing_key
        raise StateError(f"client_id {client_id.hex()}: its key is not here")

    def holds(self, client_id: ClientId) -> bool:
        own = self._identity.client_id if self._identity is not None else None
        return client_id in self._keys or client_id == own

    def usable(self, client_id: ClientId, state: ClientState, bounds: ClientBounds, now: UnixTime) -> bool:
        """Whether it is held and may still sign (KEX1+ 4.1)."""
        if client_id != state.client_id:
            record = self._keys.get(client_id)
            if record is None:
                return self.holds(client_id)
            state = dataclasses.replace(state, created_at=record.created_at, client_seq=record.client_seq)
        return not bounds.exhausted(state, now)

    def is_identity(self, client_id: ClientId) -> bool:
        return self._identity is not None and client_id == self._identity.client_id

    def put_aside(self, state: ClientState) -> None:
        """Note how far the client_id in use has come."""
        held = self._keys.get(state.client_id)
        seed = held.seed if held is not None else None
        self._keys[state.client_id] = ClientKey(
            client_id=state.client_id, seed=seed, created_at=state.created_at, client_seq=state.client_seq
        )

    def use(self, client: PipelinedClient, client_id: ClientId, now: UnixTime) -> None:
        """Switch ``client`` to a client_id that is held; nothing may be pending."""
        if client.state.client_id == client_id:
            return
        if not self.holds(client_id):
            raise StateError(
                f"the token is for client_id {client_id.hex()}, and this identity does not hold its key",
                action=f"ask for a token for this stream's client_id, {client.state.client_id.hex()} "
                "(`veen id client-id`), or for the identity's own key",
            )
        self.put_aside(client.state)
        record = self._keys.get(client_id)
        created_at, client_seq = (record.created_at, record.client_seq) if record else (now, UNUSED)
        client.switch(client_id, created_at, client_seq)

    def rotate(self, client: PipelinedClient, now: UnixTime, *, worn: bool = True) -> None:
        """Go on under a fresh client_id; a drawn one's key that is worn out is needed no more (KEX1+ 4.1)."""
        old = client.state
        client.rotate(self.draw(now), now)
        if self.is_identity(old.client_id) or not worn:
            self.put_aside(old)  # a token may name it again: its bounds still count
        else:
            del self._keys[old.client_id]

    @property
    def records(self) -> tuple[ClientKey, ...]:
        """What to persist."""
        return tuple(self._keys.values())
