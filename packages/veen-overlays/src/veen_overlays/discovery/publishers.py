"""Which publishers may speak for an id: the authenticity of descriptors (RESOLUTIONS P16, spec-5 8.2).

A message is signed by a client_id. It speaks as that key, and as every identity key that a
``record.continuity.v1`` of the same log links to it, because both keys have signed the link.

- **Hub**: a record counts if its signer speaks as a key of the hub. The first key needs no record: hub_id is
  its hash (RESOLUTIONS B13). Later keys are in ``disc.hub.identity.v1``, each endorsed by the one before it.
  The key must have been active at the message's hub_ts.
- **Overlay, service**: the owner is the publisher that advertised the id first in log order. The owner may
  speak for the id. So may the publishers in its ``disc.publishers.v1``, those in their lists, and so on.

Of the records that count, the last in log order is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veen_core.errors import IdentityError, SignatureError
from veen_core.hub_identity import HubIdentity, verify_successor
from veen_core.ids import HubPk, UnixTime
from veen_core.stream import hub_id
from veen_overlays.discovery.records import HubKeys, Kind, Publishers
from veen_overlays.fold.monoid import StampedValue

NOT_A_HUB_KEY: Final = "the signer is not a key of the hub that was active then"
NOT_A_PUBLISHER: Final = "another publisher advertised the id first and has not named the signer"
UNKNOWN_SIGNER: Final = "the signer of the message is not known"
TOO_LARGE: Final = "the descriptor is larger than 65536 bytes"


class SignerRecords(NamedTuple):
    """The records of one key about one id."""

    first: int | None = None
    """Position of its first advertisement; None if it has only retired the id."""
    records: int = 0
    seq: int = 0
    hub_ts: int = 0
    retires: bool = False
    body: bytes = b""
    """The last record; empty if it is larger than ``MAX_DESCRIPTOR_BYTES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims about one id by signing key, with the records that decide which claims count."""

    kind: Kind
    id: bytes
    claims: Mapping[bytes, SignerRecords]
    named: Mapping[bytes, StampedValue] = field(default_factory=dict)
    keys: Mapping[bytes, StampedValue] = field(default_factory=dict)
    links: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)

    def voices(self, signer: bytes) -> frozenset[bytes]:
        """The keys that a signer speaks as; none if the reader did not know the signer."""
        return self.links.get(signer, frozenset()) | {signer} if signer else frozenset()


Refusal = Callable[[bytes], str]
"""Why a signer's records do not count; empty if they do."""


class PublisherVerdict(NamedTuple):
    """Which signer's last record is in force, and why the records of others do not count."""

    in_force: bytes | None
    rejected: Mapping[bytes, str]


def resolve(known: Claims) -> PublisherVerdict:
    """Decide which record of an id is in force."""
    rule = _hub_rule(known) if known.kind == "hub" else _owner_rule(known)
    rejected = {signer: why for signer in known.claims if (why := _refusal(known, signer, rule))}
    counting = [(claim.seq, signer) for signer, claim in known.claims.items() if signer not in rejected]
    return PublisherVerdict(max(counting)[1] if counting else None, rejected)


def _refusal(known: Claims, signer: bytes, rule: Refusal) -> str:
    if not signer:
        return UNKNOWN_SIGNER
    return rule(signer) or ("" if known.claims[signer].body else TOO_LARGE)


# --- hubs


def _hub_rule(known: Claims) -> Refusal:
    identity = hub_identity(known.keys)

    def refusal(signer: bytes) -> str:
        voices = known.voices(signer)
        if identity is None:
            own = any(hub_id(HubPk(key)) == known.id for key in voices)
        else:
            active = identity.active_at(UnixTime(known.claims[signer].hub_ts))
            own = any(bytes(key.hub_pk) in voices for key in active)
        return "" if own else NOT_A_HUB_KEY

    return refusal


def hub_identity(keys: Mapping[bytes, StampedValue]) -> HubIdentity | None:
    """The newest identity of a hub: the first record in log order, and those that continue it (§8.4)."""
    held: HubIdentity | None = None
    for _stamp, body in sorted(keys.values()):
        shown = HubKeys.decode(body)  # the record's rule has verified identity and signature
        identity = HubIdentity.decode(shown.identity)
        if held is not None:
            try:
                verify_successor(held, identity, shown.sig)
            except (IdentityError, SignatureError):
                continue
        held = identity
    return held


# --- overlays and services


def _owner_rule(known: Claims) -> Refusal:
    allowed = allowed_publishers(known)
    return lambda signer: "" if known.voices(signer) & allowed else NOT_A_PUBLISHER


def allowed_publishers(known: Claims) -> frozenset[bytes]:
    """The keys that may speak for an overlay or service: its owner, and each key that such a key names."""
    firsts = [(c.first, signer) for signer, c in known.claims.items() if signer and c.first is not None]
    if not firsts:
        return frozenset()
    allowed: set[bytes] = set()
    waiting = set(known.voices(min(firsts)[1]))
    while waiting:
        allowed |= waiting
        named = {
            bytes(key)
            for signer, (_stamp, body) in known.named.items()
            if known.voices(signer) & allowed
            for key in Publishers.decode(body).publishers
        }
        waiting = named - allowed
    return frozenset(allowed)
