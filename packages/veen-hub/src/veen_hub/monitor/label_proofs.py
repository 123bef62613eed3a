"""Two statements about a label: whether the hub proves that the later extends the earlier (P1, B11).

A hub that cannot prove it is not convicted by that: proofs have no signature. What convicts it are its own
answers, if they lead to one signed root and away from the other. These are tried, together with the receipts
that the hub now has in the places of the two statements:

1. the tree that its consistency proof describes, which may lead to the later root but not to the earlier;
2. its receipt for the last entry of the earlier statement, which may have another root;
3. its receipt for the last entry of the later statement, likewise.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.errors import ProofError, SignatureError
from veen_core.hub_fork import LabelFork, LabelStatement
from veen_core.hub_identity import HubIdentity, verify_receipt
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, MmrRoot, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.monitor.hub_source import DOES_NOT_FIT, HubSource, Withheld
from veen_hub.monitor.rules import cut_of, first_that_convicts


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRoot:
    """Size and root of a label's tree that a hub signed, and the way to prove that it did."""

    label: Label
    upto_seq: StreamSeq
    root: MmrRoot
    prove: Callable[[], Awaitable[LabelStatement]]


def claim_of_receipt(receipt: Receipt) -> SignedRoot:
    async def prove() -> LabelStatement:
        return LabelStatement(receipt=receipt)

    return SignedRoot(label=receipt.label, upto_seq=receipt.stream_seq, root=receipt.mmr_root, prove=prove)


def claim_of_head(head: LabelHead, prove: Callable[[], Awaitable[LabelStatement]]) -> SignedRoot:
    return SignedRoot(label=head.label, upto_seq=head.upto_seq, root=head.mmr_root, prove=prove)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The hub does not prove that two statements agree."""

    why: str
    evidence: LabelFork | None


@dataclass(slots=True)
class LabelProofs:
    """Compares statements about the labels of one hub."""

    source: HubSource

    async def compare(
        self, identity: HubIdentity, origin: str, earlier: SignedRoot, later: SignedRoot
    ) -> Contradiction | None:
        """Return None if the hub proves that the later tree extends the earlier one."""
        proofs: list[MmrConsistency] = []
        why = ""
        for _ in range(2):  # two attempts: a proof is not signed, so a proxy may have damaged it
            try:
                await self._prove(earlier, later, proofs)
            except DOES_NOT_FIT as exc:
                why = exc.message
            else:
                return None
        statements: list[LabelStatement] = []
        for claim in (earlier, later):
            with contextlib.suppress(Withheld):
                statements.append(await claim.prove())
        for claim in (earlier, later):
            receipt = await self.receipt(identity, claim.label, claim.upto_seq)
            statements += [LabelStatement(receipt=receipt)] if receipt is not None else []
        evidence = first_that_convicts(
            identity, origin, itertools.combinations(statements, 2), map(cut_of, proofs)
        )
        return Contradiction(why, evidence)

    async def _prove(self, earlier: SignedRoot, later: SignedRoot, proofs: list[MmrConsistency]) -> None:
        """Raise unless the hub proves that ``later`` extends ``earlier``; collect the hub's proofs."""
        if earlier.upto_seq == later.upto_seq:
            if earlier.root != later.root:
                raise ProofError(f"there are two roots of {later.upto_seq} entries")
            return
        proof = await self.source.consistency(later.label, earlier.upto_seq, later.upto_seq)
        proofs.append(proof)
        verify_consistency(proof, earlier.root, later.root)

    async def receipt(self, identity: HubIdentity, label: Label, stream_seq: StreamSeq) -> Receipt | None:
        """Return the receipt that the hub has for an entry, if the hub signed it."""
        try:
            receipt = await self.source.receipt(label, stream_seq)
            verify_receipt(identity, receipt)
        except (*DOES_NOT_FIT, SignatureError):
            return None
        return receipt
