"""Cap tokens of one connection: authorized once, stored, and chosen when a message needs one (§6, H5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from veen_core.cap import CapToken, verify_token
from veen_core.entry import authorize_leaf
from veen_core.errors import StateError
from veen_core.ids import AuthRef, ClientId, HubId, StreamId
from veen_core.receipt import Receipt
from veen_core.status import AuthorizeResponse
from veen_hub.client.errors import BoundsReached, Misbehaved
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.state.records import HeldToken, HeldTokens, decode_record
from veen_hub.client.state.store import StateStore, update
from veen_hub.client.wire.connection import HubConnection

TOKENS_RECORD: Final = "tokens"
TokenSource = Callable[[ClientId, StreamId], Awaitable[CapToken]]
"""Returns a token for a client_id and a stream: asks an issuer, or mints one with the issuer's key."""


def _decode(content: bytes | None) -> dict[AuthRef, HeldToken]:
    held = decode_record(HeldTokens, content, TOKENS_RECORD).tokens if content is not None else ()
    return {one.token.auth_ref: one for one in held}


def held_tokens(store: StateStore, hub: HubId) -> tuple[CapToken, ...]:
    """The tokens that a state store holds for a hub."""
    return tuple(one.token for one in _decode(store.load(hub, TOKENS_RECORD)).values())


class Tokens:
    """The authorized tokens; ``source`` is asked for another if none of them fits."""

    def __init__(self, connection: HubConnection, control: LabelLog, source: TokenSource | None) -> None:
        self._connection = connection
        self._control = control
        self.source = source
        self._asking = asyncio.Lock()
        self._held = _decode(connection.store.load(connection.hub_id, TOKENS_RECORD))

    async def authorize(self, token: CapToken) -> Receipt:
        """Authorize a token at the hub; returns the verified receipt, whose hub_ts is ``issued_at`` (H5)."""
        verify_token(token, self._connection.limits)
        wire = token.encode()
        response = await self._connection.ask(lambda: self._connection.api.authorize(wire))
        receipt = self._checked_receipt(token, wire, response)
        await self._control.verify(receipt)
        self._connection.time.observe(receipt.hub_ts)
        self._held[token.auth_ref] = HeldToken(token=token, expires_at=token.expires_at(receipt.hub_ts))
        await self._store_held()
        return receipt

    async def hold(self, token: CapToken) -> None:
        """Keep the token of an access grant, which no hub authorizes: hubs of level access fold the grant."""
        now = self._connection.time.now()
        self._held[token.auth_ref] = HeldToken(token=token, expires_at=token.expires_at(now))
        await self._store_held()

    async def _store_held(self) -> None:
        connection = self._connection
        await connection.workers.run(
            update,
            connection.store,
            connection.hub_id,
            TOKENS_RECORD,
            self._with_ours,
            lock_timeout=connection.lock_timeout,
        )

    def _checked_receipt(self, token: CapToken, wire: bytes, response: AuthorizeResponse) -> Receipt:
        receipt = response.receipt
        if response.auth_ref != token.auth_ref or receipt.leaf_hash != authorize_leaf(token.auth_ref, wire):
            raise Misbehaved("the hub's answer to authorize concerns another token (RESOLUTIONS H5)")
        if response.expires_at > token.expires_at(receipt.hub_ts):
            raise Misbehaved("the hub lets the token expire later than its ttl allows (core §6)")
        return receipt

    def _with_ours(self, content: bytes | None) -> bytes:
        """Merge the stored tokens, to which other processes may have added, with those held here.

        A token is dropped once a receipt shows that it has expired. A status is not signed, so it does not
        count.
        """
        known = _decode(content) | self._held
        alive = tuple(one for one in known.values() if one.expires_at >= self._connection.time.signed)
        return HeldTokens(tokens=alive).encode()

    async def choose(
        self, log: LabelLog, stream_id: StreamId, cap: CapToken | AuthRef | None
    ) -> CapToken | None:
        """Choose the token to send with: the one given, else one that fits, else one from the source."""
        if isinstance(cap, CapToken):
            if cap.auth_ref not in self._held:
                await (self.authorize(cap) if cap.sig_chain else self.hold(cap))
            return cap
        if cap is not None:
            if (named := self._held.get(cap)) is None:
                raise StateError(
                    f"auth_ref {cap.hex()} belongs to no token in this state folder",
                    action="authorize the token first (hub.authorize)",
                )
            return named.token
        if (found := self._longest_valid(log, stream_id)) is not None:
            return found
        if self.source is None or not self._connection.status.gating:
            return None
        async with self._asking:  # senders that wait get the token that the first one asked for
            if (found := self._longest_valid(log, stream_id)) is not None:
                return found
            if self._connection.bounds.exhausted(log.client.state, self._connection.time.now()):
                raise BoundsReached(log.client_id)
            token = await self.source(log.client_id, stream_id)
            await self.authorize(token)
            return token

    def _longest_valid(self, log: LabelLog, stream_id: StreamId) -> CapToken | None:
        """Return the token for this stream that expires last and whose client_id is ours and may sign.

        Without a source of other tokens, a token that has expired by the unsigned time alone is tried.
        """
        now, bounds, state = self._connection.time.now(), self._connection.bounds, log.client.state
        end = now if self.source is not None else self._connection.time.signed
        usable = [
            one
            for one in self._held.values()
            if stream_id in one.token.allow.stream_ids
            and one.expires_at >= end
            and log.ring.usable(one.token.subject_pk, state, bounds, now)
        ]
        return max(usable, key=lambda one: one.expires_at).token if usable else None
