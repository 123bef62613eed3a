"""Advertising: keeps the hub's descriptor in a directory (spec-5 §4.1, RESOLUTIONS P16).

The hub's key signs: as the client's key if a token names it, otherwise through a record that links the
client_id of the messages to it. Which records these are, an extension decides; the hub only sends them. A
directory that cannot be reached never stops the hub: the attempt is logged and repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from veen_core.cap import CapToken
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError, DecodeError, StateError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, DhPublicKey, ProfileId, SchemaId, Signature, StreamId, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey
from veen_core.stream import stream_id
from veen_hub import extension
from veen_hub.ops.config.discovery import SPEC_5, DiscoverySettings
from veen_hub.ops.logs import log
from veen_hub.version import VERSION

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub
    from veen_hub.client.identity import Identity

RETRY_SEC: Final = 30.0
"""Longest pause after a failed attempt."""
REQUEST_SEC: Final = 5.0
"""Longest time that one attempt waits for the directory, also at a planned end."""


class RecordToSend(NamedTuple):
    """One record of the directory."""

    schema: SchemaId
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFacts:
    """The facts that a hub knows about itself; ``settings`` adds those of its operator."""

    identity: HubIdentity
    identity_sig: Signature
    profile_id: ProfileId
    endpoints: tuple[str, ...]
    version: str
    settings: DiscoverySettings


class HubDescriber(Protocol):
    """Makes the records of a directory; found by entry point in the group ``veen_hub.descriptors``."""

    def recipient(self, stream: StreamId) -> DhPublicKey:
        """Return the reader key of a directory's stream."""

    def advertise(self, facts: HubFacts, now: UnixTime) -> list[RecordToSend]:
        """Return the hub's descriptor, and the records that prove the key that signs it."""

    def link(self, key: SigningKey, client: ClientId) -> RecordToSend:
        """Return the record that links a client_id to the hub's key."""

    def retire(self, facts: HubFacts) -> RecordToSend:
        """Return the record that withdraws the descriptor."""


class HubAdvertiser:
    """Publishes the descriptor while the hub runs, and withdraws it at a planned end."""

    def __init__(
        self,
        settings: DiscoverySettings | None,
        *,
        identity: HubIdentity,
        identity_sig: Callable[[], Signature],
        profile_id: ProfileId,
        signing_key: Callable[[UnixTime], SigningKey | None],
        hub_ts: Callable[[], UnixTime],
        state: Path,
    ) -> None:
        self._settings, self._identity, self._identity_sig = settings, identity, identity_sig
        self._profile_id, self._signing_key, self._hub_ts = profile_id, signing_key, hub_ts
        self._state = state
        self._own_urls: tuple[str, ...] = ("",)
        self._linked: set[ClientId] = set()
        self._may_be_listed = False
        """Whether a descriptor was sent; the answer of the directory may still be on its way."""
        self._task: asyncio.Task[None] | None = None
        self.published = asyncio.Event()
        """Set once the descriptor is in the directory."""
        if settings is not None:
            self._describer: HubDescriber = extension.make(extension.DESCRIPTORS, SPEC_5, "discovery")
            self._token = _read_token(settings.token)

    def start(self, *own_urls: str) -> None:
        """Start publishing; ``own_urls`` are the hub's addresses on all transports, HTTP first."""
        if self._settings is not None:
            self._own_urls = own_urls
            self._task = asyncio.create_task(self._run(self._settings))

    async def stop(self) -> None:
        """Withdraw the descriptor, if one was sent; call it while the hub still accepts messages."""
        task, self._task = self._task, None
        if task is None or self._settings is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if not self._may_be_listed:
            return
        try:
            async with asyncio.timeout(REQUEST_SEC):
                await self._send(self._settings, [self._describer.retire(self._facts(self._settings))])
            log(logging.INFO, "discovery_retired", stream=self._settings.stream)
        except (VeenError, TimeoutError, OSError) as exc:
            log(logging.WARNING, "discovery_retire_failed", error=f"{type(exc).__name__}: {exc}")

    async def _run(self, settings: DiscoverySettings) -> None:
        while True:
            pause = settings.ttl_sec / 3
            try:
                records = self._describer.advertise(self._facts(settings), self._hub_ts())
                await self._send(settings, records)
                self.published.set()
                log(logging.INFO, "discovery_advertised", stream=settings.stream, ttl_sec=settings.ttl_sec)
            except Exception as exc:  # noqa: BLE001 - the hub serves its clients without a directory too
                log(logging.WARNING, "discovery_failed", error=f"{type(exc).__name__}: {exc}")
                pause = min(pause, RETRY_SEC)
            await asyncio.sleep(pause)

    def _facts(self, settings: DiscoverySettings) -> HubFacts:
        return HubFacts(
            identity=self._identity,
            identity_sig=self._identity_sig(),
            profile_id=self._profile_id,
            endpoints=settings.endpoints or self._own_urls,
            version=VERSION,
            settings=settings,
        )

    async def _send(self, settings: DiscoverySettings, records: list[RecordToSend]) -> None:
        key = self._signing_key(self._hub_ts())
        if key is None:
            raise StateError("the hub's key is not in this process, so it cannot sign a descriptor")
        async with self._connect(settings, key) as directory:
            to = self._describer.recipient(stream_id(settings.stream))
            stream = directory.stream(settings.stream, to=to)
            if self._token is None and (client := await stream.client_id()) not in self._linked:
                link = self._describer.link(key, client)
                await stream.send(link.body, schema=link.schema)
                self._linked.add(client)
            self._may_be_listed = True
            for record in records:
                await stream.send(record.body, schema=record.schema, cap=self._token)

    def _connect(self, settings: DiscoverySettings, key: SigningKey) -> AbstractAsyncContextManager[Hub]:
        # Imported here: only a hub that advertises itself needs the client.
        from veen_hub.client.connecting import connect  # noqa: PLC0415
        from veen_hub.client.wire.retry import Retry  # noqa: PLC0415
        from veen_hub.client.wire.transport import Tls  # noqa: PLC0415

        bounds = ClientBounds(max_client_id_lifetime_sec=self._token.allow.ttl) if self._token else None
        return connect(
            settings.url or self._own_urls[0],
            _client_identity(key),
            trust=settings.pinned or self._identity.hub_id,
            tls=Tls(ca=settings.ca) if settings.ca is not None else None,
            state=self._state,
            retry=Retry(max_attempts=3, deadline=REQUEST_SEC),
            bounds=bounds,
        )


def _client_identity(key: SigningKey) -> Identity:
    """The hub as a client: its own key signs; it opens nothing, so its second key is thrown away."""
    from veen_hub.client.identity import Identity  # noqa: PLC0415 - as above

    return Identity(signing_key=key, dh_keys=(DhKey(DhSecret(os.urandom(32))),))


def _read_token(path: Path | None) -> CapToken | None:
    if path is None:
        return None
    try:
        return CapToken.decode(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"discovery.token: {path} cannot be read: {exc.strerror}") from None
    except DecodeError:
        raise ConfigError(f"discovery.token: {path} does not contain a cap token in CBOR") from None
