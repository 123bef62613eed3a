"""Multisignature approvals of a transfer (WAL §9): who has signed the approval hash."""

from __future__ import annotations

from collections.abc import Iterable

from veen_core.errors import SignatureError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import verify
from veen_overlays.identifiers import approval_hash
from veen_overlays.wallet.records import Transfer


def approved_by(
    transfer: Transfer, signatures: Iterable[Signature], approvers: Iterable[VerifyKey]
) -> frozenset[VerifyKey]:
    """The approvers of whom a signature is there, each once; a policy of m of n counts them."""
    digest = approval_hash(
        transfer.wallet_id, transfer.to_wallet_id, transfer.amount, transfer.ts, transfer.transfer_id
    )
    held = tuple(signatures)
    return frozenset(key for key in approvers if any(_holds(key, digest, sig) for sig in held))


def _holds(key: VerifyKey, digest: bytes, signature: Signature) -> bool:
    try:
        verify(key, digest, signature, "approval (WAL §9)")
    except SignatureError:
        return False
    return True
