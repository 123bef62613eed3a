"""Contradictions: signed statements of one log that cannot all be true, as a file for a third party.

What proves to a reader that a log misbehaved, if the reader has nothing but the log's verifier key:

- ``two-roots``: two checkpoints of one size with different roots, both signed by the log. At size 0 one
  checkpoint is enough, because the root of the empty tree is a constant.
- ``fork``: two signed checkpoints of different sizes, and a proof from the larger one's root that its first
  leaves have another root than the smaller one. A log that extends a second history sends such a proof
  itself: the proof is valid there, and leads to another root at the old size.

A consistency proof that does not verify proves nothing by itself: checkpoints are public, so any client can
send a genuine checkpoint with a wrong proof. The witness keeps both checkpoints as ``unproven``. They are no
evidence but a question to the log, which owes a valid proof from one to the other. If the witness later
cosigns that checkpoint, the question is answered and removed.

A smaller signed checkpoint after a larger one is no contradiction: old checkpoints stay public.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from veen_core.errors import DecodeError, EvidenceError, ProofError, SignatureError
from veen_core.ids import NodeHash, UnixTime
from veen_core.tlog.note import NoteKey, verified_signatures
from veen_core.tlog.tree import EMPTY_ROOT, roots_of_proof
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_core.wire import Wire, int_map

KIND: Final = "veen-log-contradiction"
TWO_ROOTS: Final = "two-roots"
FORK: Final = "fork"
UNPROVEN: Final = "unproven"
Claim = Literal["two-roots", "fork", "unproven"]


@int_map("log contradiction", section="C2SP tlog-witness")
@dataclass(frozen=True, slots=True, kw_only=True)
class LogContradiction(Wire):
    """Signed checkpoints of one log, the claim that they contradict each other, and when they were seen."""

    kind: Literal["veen-log-contradiction"] = KIND
    ver: Literal[1] = 1
    claim: Claim
    notes: tuple[str, ...]
    """The signed checkpoints, the smaller one first."""
    proof: tuple[NodeHash, ...] = ()
    """``fork``: leads from the larger checkpoint to another root at the smaller size."""
    seen_at: UnixTime

    @property
    def is_evidence(self) -> bool:
        """Whether the contradiction proves misbehaviour, rather than asking for a proof."""
        return self.claim != UNPROVEN

    @property
    def heads(self) -> tuple[SignedHead, ...]:
        return tuple(parse_signed_head(note.encode()) for note in self.notes)

    @property
    def id(self) -> str:
        """Hash of the signed statements: it does not depend on the time at which they were seen."""
        texts = [self.claim, *(head.note.text for head in self.heads)]
        return sha256("\n".join(texts).encode()).hexdigest()[:32]


def find_contradiction(
    known: SignedHead | None, new: SignedHead, proof: Iterable[bytes] | None, now: UnixTime
) -> LogContradiction | None:
    """Compare a signed checkpoint that was not cosigned with the newest cosigned one.

    ``proof`` is a consistency proof between the two that did not verify. It is None if none was checked; then
    only roots at equal sizes are compared.
    """
    new_text = new.encode().decode()
    if new.head.size == 0:
        if new.head.root == EMPTY_ROOT:
            return None
        return LogContradiction(claim=TWO_ROOTS, notes=(new_text,), seen_at=now)
    if known is None:
        return None
    notes = (known.encode().decode(), new_text)
    if new.head.size == known.head.size:
        if new.head.root == known.head.root:
            return None
        return LogContradiction(claim=TWO_ROOTS, notes=notes, seen_at=now)
    if proof is None or not 0 < known.head.size < new.head.size:
        return None
    hashes = tuple(map(NodeHash, proof))
    if _shows_fork(known.head, new.head, hashes):
        return LogContradiction(claim=FORK, notes=notes, proof=hashes, seen_at=now)
    return LogContradiction(claim=UNPROVEN, notes=notes, seen_at=now)


def _shows_fork(old: TreeHead, new: TreeHead, proof: tuple[NodeHash, ...]) -> bool:
    try:
        old_root, new_root = roots_of_proof(old.size, new.size, proof, old.root)
    except ProofError:
        return False
    return new_root == new.root and old_root != old.root


def verify_contradiction(found: LogContradiction, keys: Iterable[NoteKey]) -> None:
    """Raise unless the log with these keys signed statements that cannot all be true.

    ``keys`` are the log's verifier keys, from a source that the reader trusts. ``unproven`` is refused: it is
    a question to the log and proves nothing.
    """
    heads = _signed_heads(found, list(keys))
    match found.claim, heads:
        case "two-roots", [only]:
            if only.size != 0 or only.root == EMPTY_ROOT:
                raise EvidenceError("one checkpoint contradicts itself only at size 0 with a root of leaves")
        case "two-roots", [first, second]:
            if first.size != second.size:
                raise EvidenceError(
                    f"the sizes {first.size} and {second.size} differ: no two roots of one tree"
                )
            if first.root == second.root:
                raise EvidenceError("both checkpoints have the same size and root: no contradiction")
        case "fork", [old, new]:
            if not 0 < old.size < new.size or not _shows_fork(old, new, found.proof):
                raise EvidenceError(
                    f"the proof does not lead from the root at size {new.size} to another at size {old.size}"
                )
        case "unproven", _:
            raise EvidenceError(
                "the checkpoints need not contradict each other; ask the log for a consistency proof"
            )
        case _:
            raise EvidenceError(f"{found.claim} cannot be shown by {len(heads)} checkpoints")


def _signed_heads(found: LogContradiction, keys: list[NoteKey]) -> list[TreeHead]:
    try:
        signed = found.heads
    except DecodeError as exc:
        raise exc.within("log contradiction.notes") from None
    if len({each.head.origin for each in signed}) != 1:
        raise EvidenceError("the checkpoints are those of different logs")
    for each in signed:
        if not verified_signatures(each.note, keys):
            raise SignatureError(
                f"the checkpoint of {each.head.origin} at size {each.head.size} has no signature of the log"
            )
    return [each.head for each in signed]
