"""Approvals of a transfer by several signers (WAL §9)."""

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
    """The approvers whose signature of the transfer is among ``signatures`` (WAL §9).

    Each approver counts once. An m-of-n policy compares the size of the result with m.
    """
    digest = approval_hash(
        transfer.wallet_id, transfer.to_wallet_id, transfer.amount, transfer.ts, transfer.transfer_id
    )
    given = tuple(signatures)
    return frozenset(key for key in approvers if any(_is_valid(key, digest, sig) for sig in given))


def _is_valid(key: VerifyKey, digest: bytes, signature: Signature) -> bool:
    try:
        verify(key, digest, signature, "approval (WAL §9)")
    except SignatureError:
        return False
    return True
