"""The handover record: a hub names its successor and the exact point at which it ends (RESOLUTIONS P9).

    handover = {1: ver, 2: old_hub, 3: new_hub, 4: hub_ts, 5: checkpoint, 6: attachments,
                7: attachments_hash, 8: url, 9: sig}
    sig      = Sig(a key of the old hub that is active at hub_ts,
                   Ht("veen/handover", CBOR(handover with sig = 64 zero bytes)))

``checkpoint`` is the old hub's last hub checkpoint: it commits to the head of every label, and the old hub
signs nothing after it. ``attachments_hash`` is Ht("veen/handover-attachments", all content ids, ascending).
The successor forks from exactly this point (ADR 0007) and never continues a label of the old hub.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from veen_core import hub_identity, hub_log
from veen_core.errors import IdentityError, SignatureError, VerificationError
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Coid, HubId, NodeHash, Signature, UnixTime
from veen_core.keys import is_valid
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map

UNSIGNED: Final = Signature(bytes(Signature.SIZE))
_WHERE: Final = "handover (RESOLUTIONS P9)"


@int_map("handover", section="RESOLUTIONS P9")
@dataclass(frozen=True, slots=True, kw_only=True)
class Handover(Wire):
    """The last statement of a hub: its successor, and its own last hub checkpoint."""

    ver: Literal[1] = 1
    old_hub: HubId
    new_hub: HubId
    hub_ts: UnixTime
    checkpoint: bytes
    """The signed note of the last hub checkpoint."""
    attachments: int
    """Number of attachments that the old hub holds."""
    attachments_hash: NodeHash
    url: str
    """Address of the successor; empty if it is not known yet."""
    sig: Signature

    @property
    def digest(self) -> bytes:
        """The digest that the old hub signs."""
        return Ht("veen/handover", replace(self, sig=UNSIGNED).encode())

    @property
    def signed_head(self) -> SignedHead:
        """The last hub checkpoint; raises ``DecodeError``."""
        return parse_signed_head(self.checkpoint)


def attachments_hash(ascending: Iterable[Coid]) -> NodeHash:
    """Return the hash over all content ids, which must be in ascending order."""
    return NodeHash(Ht("veen/handover-attachments", b"".join(ascending)))


def verify_handover(record: Handover, old: HubIdentity, *, origin: str | None = None) -> SignedHead:
    """Verify that the old hub signed the record and its hub checkpoint; return the checkpoint.

    ``origin`` is the name of the old hub's log, if it is not the one that follows from its hub_id.
    """
    hub_identity.verify_identity(old, pinned=record.old_hub)
    if record.new_hub == record.old_hub:
        raise VerificationError(f"{_WHERE}: a hub cannot be its own successor")
    digest = record.digest
    active = old.active_at(record.hub_ts)
    if not active:
        raise IdentityError(f"{_WHERE}: no key of the old hub is active at {record.hub_ts}")
    if not any(is_valid(key.hub_pk, digest, record.sig) for key in active):
        raise SignatureError(f"{_WHERE}: no key of the old hub that is active at {record.hub_ts} signed it")
    signed = record.signed_head
    hub_log.verify_hub_checkpoint(old, signed, origin=origin)
    return signed
