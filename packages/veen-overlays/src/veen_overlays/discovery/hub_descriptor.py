"""The descriptor that a hub publishes about itself: the hub's extension ``spec-5`` (spec-5 4.1, P16).

A hub finds ``HubDescriptor`` by entry point in the group ``veen_hub.descriptors``. The hub signs and sends
the records. They contain ``expires_at``, so that the signature covers the time at which the descriptor
expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from veen_core.hashing import U64_MAX
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, DhPublicKey, ProfileId, SchemaId, Signature, StreamId, UnixTime
from veen_core.keys import SigningKey
from veen_overlays.discovery.identifiers import overlay_named
from veen_overlays.discovery.records import Endpoint, HubAdvertise, HubKeys, HubRetire
from veen_overlays.discovery.streams import public_reader
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.schema.record import Record


class DescriptorSettings(Protocol):
    """The operator's settings: the section ``discovery`` of hub.yaml."""

    @property
    def region(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def overlays(self) -> Sequence[str]: ...
    @property
    def ttl_sec(self) -> int: ...


class Facts(Protocol):
    """The hub's facts about itself; has the shape of veen-hub's ``HubFacts``."""

    @property
    def identity(self) -> HubIdentity: ...
    @property
    def identity_sig(self) -> Signature: ...
    @property
    def profile_id(self) -> ProfileId: ...
    @property
    def endpoints(self) -> Sequence[str]: ...
    @property
    def version(self) -> str: ...
    @property
    def settings(self) -> DescriptorSettings: ...


class RecordToSend(NamedTuple):
    """One record of the directory."""

    schema: SchemaId
    body: bytes


def _to_send(record: Record) -> RecordToSend:
    return RecordToSend(record.schema_id, record.encode())


class HubDescriptor:
    """Makes the records with which a hub advertises and withdraws itself."""

    def recipient(self, stream: StreamId) -> DhPublicKey:
        """The public reader key of a directory's stream."""
        return public_reader(stream).public

    def advertise(self, facts: Facts, now: UnixTime) -> list[RecordToSend]:
        """The hub's descriptor; for a hub that has rotated its key, its identity first."""
        identity, settings = facts.identity, facts.settings
        descriptor = HubAdvertise(
            hub_id=identity.hub_id,
            hub_pk=identity.signing_key_at(now).hub_pk,
            profile_id=facts.profile_id,
            region=settings.region,
            tags=tuple(settings.tags),
            endpoints=tuple(Endpoint(kind=_kind_of(url), url=url) for url in facts.endpoints),
            overlays=tuple(map(overlay_named, settings.overlays)),
            ttl_sec=settings.ttl_sec,
            version=facts.version,
            expires_at=UnixTime(min(now + settings.ttl_sec, U64_MAX)),
        )
        keys = HubKeys(hub_id=identity.hub_id, identity=identity.encode(), sig=facts.identity_sig)
        records: list[Record] = [keys, descriptor] if len(identity.hub_keys) > 1 else [descriptor]
        return [_to_send(record) for record in records]

    def link(self, key: SigningKey, client: ClientId) -> RecordToSend:
        """The record that links a client_id to the hub's key (KEX0.2)."""
        return _to_send(sign_continuity(key, client))

    def retire(self, facts: Facts) -> RecordToSend:
        """The record that withdraws the descriptor."""
        return _to_send(HubRetire(hub_id=facts.identity.hub_id, reason="the hub was stopped"))


def _kind_of(url: str) -> str:
    """Return the kind of an endpoint (spec-5 4.1): ``tls://`` addresses are of NATS, ``h3://`` of QUIC."""
    scheme = urlsplit(url).scheme
    return {"tls": "nats", "h3": "quic"}.get(scheme, scheme)
