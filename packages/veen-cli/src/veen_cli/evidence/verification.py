"""Verify pieces of evidence without a hub: each piece alone, then all of them together.

Each rule cites the function of veen-core that checks it; nothing of the protocol is checked here. This module
adds what concerns several files: objects that a hub signed count only under the identity of the hub that the
verifier pinned; receipts and checkpoints that verify name roots, and proofs are verified against those roots;
two statements that contradict each other fail. With a client's state, what the client has verified before
counts as one more statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from veen_cli.evidence.client_comparison import ClientComparison
from veen_cli.evidence.hub_log import (
    HubLogs,
    is_pinned,
    names_hub,
    verify_checkpoint_note,
    verify_fork,
    verify_hub_evidence,
)
from veen_cli.evidence.proof_candidates import first_that_verifies, fits
from veen_cli.evidence.query_result import verify_query_result
from veen_cli.evidence.recognition.recognized import Recognized
from veen_cli.evidence.rpc_transcript import verify_rpc_transcript
from veen_cli.evidence.verdicts import Roots, Undecided, Verdict
from veen_cli.frame.output import plural
from veen_cli.identity.verified_roots import KnownRoot
from veen_core import hub_identity
from veen_core import pow as proof_of_work
from veen_core.cap import CapToken, verify_token
from veen_core.card import IdentityCard, verify_card
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry, verify_authorize
from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_fork import HubLogFork, LabelFork
from veen_core.hub_identity import HubIdentity, verify_checkpoint_signers
from veen_core.hub_log import note_keys
from veen_core.ids import HubId, Label, LeafHash, StreamSeq, UnixTime
from veen_core.msg import Msg, verify_msg
from veen_core.pow import PowCookie
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_core.tlog.policy import WitnessPolicy
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.label.evidence import find_equivocation
from veen_hub.witness.contradiction import LogContradiction, verify_contradiction
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.rpc.transcript import Transcript

NO_PIN: Final = "cannot be verified without the hub's id: give --trust HUB_ID"
NO_KEYS: Final = (
    "cannot be verified without the hub's keys: give its hub-identity.cbor too (`veen hub keys --hub URL "
    "--out hub-identity.cbor`), or a --client that knows the hub"
)


class EvidenceVerifier:
    """Verifies all files of one call; ``identity`` is the pinned hub's, if it is known."""

    def __init__(
        self,
        found: Sequence[Recognized],
        pin: HubId | None,
        identity: HubIdentity | None,
        now: UnixTime,
        *,
        client: ClientComparison | None = None,
        policy: WitnessPolicy | None = None,
    ) -> None:
        self._found = found
        self._pin = pin
        self._identity = identity
        self._now = now
        self._policy = policy
        self._roots = Roots()
        self._hub_logs = HubLogs()
        # Verified receipts, by position and by message, because a chunk has tens of thousands of them.
        self._by_position: dict[tuple[Label, StreamSeq], Receipt] = {}
        self._by_message: dict[LeafHash, Receipt] = {}
        self._client = client
        if client is not None:
            for root in client.roots:
                self._roots.add(root)
            if client.hub_checkpoint is not None:
                self._hub_logs.add(client.hub_checkpoint, f"what {client.client} has accepted")
            for receipt in client.receipts:
                self._by_position[receipt.label, receipt.stream_seq] = receipt

    def verdicts(self) -> list[Verdict]:
        """Verify receipts first, then what depends on them; return verdicts in the order of the files."""
        made = {id(each): self._verify(each) for each in sorted(self._found, key=_order)}
        return [self._compared(each, made[id(each)]) for each in self._found]

    def _verify(self, found: Recognized) -> Verdict:
        rule = RULES.get(type(found.thing))
        try:
            if rule is None:
                raise Undecided("is not evidence: there is nothing to verify; `veen inspect` shows it")
            proved = rule(self, found)
        except Undecided as exc:
            return Verdict(found.where, found.name, None, str(exc))
        except VeenError as exc:
            return Verdict(found.where, found.name, False, str(exc))
        why, steps = proved if isinstance(proved, tuple) else (proved, [])
        return Verdict(found.where, found.name, True, why, steps=tuple(steps))

    def _pinned_identity(self) -> HubIdentity:
        if self._identity is None:
            raise Undecided(NO_PIN if self._pin is None else NO_KEYS)
        return self._identity

    def _receipts_given(self) -> Iterator[Receipt]:
        """Yield the receipts among the files, whether they verify or not."""
        for each in self._found:
            if isinstance(each.thing, Receipt):
                yield each.thing
            elif isinstance(each.thing, Entry):
                yield each.thing.receipt

    def _compared(self, found: Recognized, verdict: Verdict) -> Verdict:
        """Add to a valid receipt or checkpoint how it was compared; all proofs have been verified by now."""
        match found.thing:
            case Receipt(label=label, stream_seq=size) | Checkpoint(label_curr=label, upto_seq=size):
                if self._client is not None and verdict.holds:
                    remark, skipped = self._client.result(label, size)
                    return replace(verdict, why=verdict.why + remark, skipped=skipped)
        return verdict

    # --- what hubs sign

    def identity(self, found: Recognized) -> str:
        """Verify a hub-identity (§8.4)."""
        shown = found.thing
        assert isinstance(shown, HubIdentity)
        hub_identity.verify_identity(shown)
        if self._pin is None:
            raise Undecided(
                f"is the identity of hub {shown.hub_id.hex()}: give --trust with this id to accept it"
            )
        if self._identity is None or shown.hub_id != self._identity.hub_id:
            raise VerificationError(f"belongs to hub {shown.hub_id.hex()}, but {self._pin.hex()} is pinned")
        count = len(shown.hub_keys)
        chain = ", each endorsed by the one before" if count > 1 else ""
        return f"the pinned hub with {plural(count, 'key')}{chain}"

    def receipt(self, found: Recognized) -> str:
        """Verify a receipt (§4.3)."""
        assert isinstance(found.thing, Receipt)
        return self._receipt(found.thing, found.where)

    def _receipt(self, receipt: Receipt, where: str) -> str:
        hub_identity.verify_receipt(self._pinned_identity(), receipt)
        self._refuse_equivocation(receipt)
        self._roots.add(
            KnownRoot(receipt.label, receipt.stream_seq, receipt.mmr_root, f"the receipt in {where}")
        )
        self._by_position.setdefault((receipt.label, receipt.stream_seq), receipt)
        self._by_message.setdefault(receipt.leaf_hash, receipt)
        return f"the hub signed entry {receipt.stream_seq} of label {receipt.label.hex()[:16]}…"

    def _refuse_equivocation(self, receipt: Receipt) -> None:
        other = self._by_position.get((receipt.label, receipt.stream_seq))
        if other is not None and find_equivocation(self._pinned_identity(), other, receipt) is not None:
            client = self._client
            is_held = client is not None and other in client.receipts
            held = f", which {client.client} holds" if client is not None and is_held else ""
            raise VerificationError(
                f"the hub signed another receipt for entry {receipt.stream_seq} too{held}",
                action="keep both as evidence: together they convict the hub",
            )

    def checkpoint(self, found: Recognized) -> str:
        """Verify a checkpoint (§4.4.1).

        Without the hub's profile, the epoch does not tell when the checkpoint was made. It was made after
        every entry it covers, so the receipts given bound the time at which its keys must have been active.
        """
        made = found.thing
        assert isinstance(made, Checkpoint)
        identity = self._pinned_identity()
        times = (
            each.hub_ts
            for each in self._by_position.values()
            if each.label == made.label_curr and each.stream_seq <= made.upto_seq
        )
        since = max(times, default=min(key.valid_from for key in identity.hub_keys))
        verify_checkpoint_signers(identity, made, 0, since=since, now=self._now)
        self._roots.add(
            KnownRoot(made.label_curr, made.upto_seq, made.mmr_root, f"the checkpoint in {found.where}")
        )
        covered = plural(made.upto_seq, "entry", "entries")
        return f"the hub signed the root of {covered} of label {made.label_curr.hex()[:16]}…"

    def entry(self, found: Recognized) -> str:
        """Verify a log entry: its receipt, and that the receipt is for its message (I2)."""
        entry = found.thing
        assert isinstance(entry, Entry)
        signed = self._receipt(entry.receipt, found.where)
        if entry.is_authorize:
            verify_token(verify_authorize(entry))
            return f"{signed}, and it is for this token"
        _, leaf = verify_msg(entry.msg_bytes)
        if leaf != entry.receipt.leaf_hash:
            raise VerificationError("the RECEIPT is for another MSG than the one in the same entry (I2)")
        return f"{signed}, and it is for this message"

    def equivocation(self, found: Recognized) -> str:
        """Verify evidence of equivocation (spec-1 §14)."""
        assert isinstance(found.thing, Equivocation)
        verify_evidence(found.thing, self._identity)
        hub = "the pinned hub" if self._identity is not None else found.thing.first.hub_pk.hex()
        return f"two signed receipts for one position convict {hub}"

    # --- the hub log

    def hub_checkpoint(self, found: Recognized) -> str:
        """Verify a hub checkpoint under the pinned hub's keys and the witness policy (P1, P2)."""
        assert isinstance(found.thing, SignedHead)
        proved = verify_checkpoint_note(self._pinned_identity(), found.thing, self._policy)
        self._hub_logs.add(found.thing, f"the hub checkpoint in {found.where}")
        return proved

    def hub_evidence(self, found: Recognized) -> tuple[str, list[str]]:
        """Verify hub evidence; the policy pins the hub if it names the hub's log (P1, P2)."""
        evidence = found.thing
        assert isinstance(evidence, HubEvidence)
        hub, signed = evidence.identity.hub_id, evidence.signed_head
        if self._pin is not None and not is_pinned(evidence.identity, self._pin):
            raise VerificationError(f"the hub is {hub.hex()}, but {self._pin.hex()} is pinned")
        proved = verify_hub_evidence(evidence, self._identity, self._policy)
        if self._pin is None and not names_hub(self._policy, evidence.identity, signed.head.origin):
            raise Undecided(
                f"verifies for hub {hub.hex()}: give --trust with this id, if that is the hub you mean"
            )
        source = f"the hub evidence in {found.where}"
        head, receipt = evidence.head, evidence.receipt
        self._roots.add(KnownRoot(head.label, head.upto_seq, head.mmr_root, source))
        self._roots.add(KnownRoot(receipt.label, receipt.stream_seq, receipt.mmr_root, source))
        self._hub_logs.add(signed, source)
        return proved

    def query_result(self, found: Recognized) -> tuple[str, list[str]]:
        """Verify a query result, also against the receipts that verified before it (query-api §6, P13)."""
        assert isinstance(found.thing, ResultFile)
        held = tuple(self._by_position.values())
        return verify_query_result(found.thing, self._pin, self._identity, self._policy, held)

    def transcript(self, found: Recognized) -> tuple[str, list[str]]:
        """Verify the transcript of a call (RPC0.1, P15)."""
        assert isinstance(found.thing, Transcript)
        return verify_rpc_transcript(found.thing, self._pin, self._identity, self._policy)

    def fork(self, found: Recognized) -> str:
        """Verify evidence that a hub signed two histories (P1)."""
        evidence = found.thing
        assert isinstance(evidence, HubLogFork | LabelFork)
        hub = evidence.identity.hub_id
        if self._pin is not None and not is_pinned(evidence.identity, self._pin):
            raise VerificationError(f"convicts hub {hub.hex()}, but {self._pin.hex()} is pinned")
        name = "the pinned hub" if self._pin is not None else f"hub {hub.hex()}"
        return verify_fork(evidence, self._identity, name)

    def contradiction(self, found: Recognized) -> str:
        """Verify what a witness kept, with the log's keys from the policy or of the pinned hub (P2)."""
        evidence = found.thing
        assert isinstance(evidence, LogContradiction)
        origin = evidence.heads[0].head.origin if evidence.notes else ""
        keys = [log.key for log in self._policy.logs if log.key.name == origin] if self._policy else []
        if self._identity is not None:
            keys += note_keys(self._identity, origin)
        if not keys:
            raise Undecided(
                "cannot be verified without the log's key: give --witnesses with a policy that names it, "
                "or --trust and the hub's hub-identity.cbor"
            )
        verify_contradiction(evidence, keys)
        return f"signed checkpoints that contradict each other convict the log {origin}"

    # --- proofs

    def inclusion(self, found: Recognized) -> str:
        """Verify an inclusion proof against each signed root whose size fits (§5.4)."""
        proof = found.thing
        assert isinstance(proof, MmrProof)
        receipt = self._by_message.get(proof.leaf_hash)
        if receipt is None:
            if any(each.leaf_hash == proof.leaf_hash for each in self._receipts_given()):
                self._pinned_identity()
                raise Undecided("cannot be verified: the receipt of its entry does not verify")
            raise Undecided("cannot be verified without the receipt of its entry: give the receipt too")
        later = {size: r for size, r in self._roots.of(receipt.label).items() if size >= receipt.stream_seq}
        fitting = [size for size in sorted(later, reverse=True) if fits(proof, receipt.stream_seq, size)]
        if not fitting:
            sizes = ", ".join(map(str, sorted(later)))
            raise Undecided(
                f"cannot be verified with the given roots of {sizes} entries: give the receipt or checkpoint "
                "of the tree that the proof was made for (`veen proof get` prints its size)"
            )
        size = first_that_verifies(
            fitting,
            lambda size: verify_inclusion(
                proof, later[size].root, receipt.stream_seq, receipt.leaf_hash, size
            ),
        )
        tree = plural(size, "entry", "entries")
        return f"entry {receipt.stream_seq} is among the first {tree}, whose root the hub signed"

    def consistency(self, found: Recognized) -> str:
        """Verify a consistency proof between two known roots (B11)."""
        proof = found.thing
        assert isinstance(proof, MmrConsistency)
        trees = self._roots.known.items()
        fitting = [(label, tree) for label, tree in trees if proof.from_seq in tree and proof.to_seq in tree]
        if not fitting:
            if any(isinstance(each.thing, Receipt | Entry | Checkpoint) for each in self._found):
                self._pinned_identity()
            raise Undecided(
                f"cannot be verified without the roots at {proof.from_seq} and {proof.to_seq}: give "
                "receipts or checkpoints of both"
            )
        label, _tree = first_that_verifies(
            fitting,
            lambda each: verify_consistency(proof, each[1][proof.from_seq].root, each[1][proof.to_seq].root),
        )
        if self._client is not None:
            self._client.note_consistency(label, proof.from_seq, proof.to_seq)
        size = plural(proof.from_seq, "entry", "entries")
        return f"the log of {size} is a prefix of the log of {proof.to_seq}"

    # --- what clients and issuers sign

    def msg(self, found: Recognized) -> str:
        msg, leaf = verify_msg(found.data)
        receipt = self._by_message.get(leaf)
        where = f", entry {receipt.stream_seq} by its receipt" if receipt is not None else ""
        return f"signed by client_id {msg.client_id.hex()[:16]}…{where}"

    def token(self, found: Recognized) -> str:
        assert isinstance(found.thing, CapToken)
        verify_token(found.thing)
        return (
            f"signed by issuer {found.thing.issuer_pk.hex()[:16]}…; each hub decides which issuers it accepts"
        )

    def card(self, found: Recognized) -> str:
        assert isinstance(found.thing, IdentityCard)
        verify_card(found.thing)
        return f"signed by the identity that it names, {found.thing.id_sign.hex()[:16]}…"

    def cookie(self, found: Recognized) -> str:
        cookie = found.thing
        assert isinstance(cookie, PowCookie)
        proof_of_work.verify_cookie(cookie, cookie.challenge, cookie.difficulty)
        return f"solves its challenge with {cookie.difficulty} bits"


Proved = str | tuple[str, list[str]]
"""What an object proves and, for some, the steps of the proof."""
RULES: Final[dict[type, Callable[[EvidenceVerifier, Recognized], Proved]]] = {
    HubIdentity: EvidenceVerifier.identity,
    Receipt: EvidenceVerifier.receipt,
    Checkpoint: EvidenceVerifier.checkpoint,
    Entry: EvidenceVerifier.entry,
    Equivocation: EvidenceVerifier.equivocation,
    SignedHead: EvidenceVerifier.hub_checkpoint,
    HubEvidence: EvidenceVerifier.hub_evidence,
    ResultFile: EvidenceVerifier.query_result,
    Transcript: EvidenceVerifier.transcript,
    HubLogFork: EvidenceVerifier.fork,
    LabelFork: EvidenceVerifier.fork,
    LogContradiction: EvidenceVerifier.contradiction,
    MmrProof: EvidenceVerifier.inclusion,
    MmrConsistency: EvidenceVerifier.consistency,
    Msg: EvidenceVerifier.msg,
    CapToken: EvidenceVerifier.token,
    IdentityCard: EvidenceVerifier.card,
    PowCookie: EvidenceVerifier.cookie,
}


def _order(found: Recognized) -> int:
    """Sort receipts before checkpoints, whose time they bound; proofs and query results need the receipts."""
    if isinstance(found.thing, MmrProof | MmrConsistency | Msg | ResultFile):
        return 2
    return 1 if isinstance(found.thing, Checkpoint) else 0
