"""Whether pieces of evidence hold, each by itself and all of them together, without a hub.

What is signed by a hub counts only under the identity that the verifier pinned. Receipts that hold name
roots; checkpoints too; proofs are judged against those roots. Two receipts that contradict each other
convict the hub. What cannot be judged is not said to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from veen_cli.evidence.found import Found
from veen_core import hub_identity
from veen_core import pow as proof_of_work
from veen_core.cap import CapToken, verify_token
from veen_core.card import IdentityCard, verify_card
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry, verify_authorize
from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import peak_heights
from veen_core.msg import Msg, verify_msg
from veen_core.pow import PowCookie
from veen_core.proof import MmrProof, own_peak, verify_inclusion
from veen_core.receipt import Receipt
from veen_hub.client.label.evidence import find_equivocation
from veen_hub.client.trust import check_signatures

T = TypeVar("T")
PIN: Final = "say whose it must be: --trust HUB_ID"
KEYS: Final = (
    "the keys of the pinned hub are missing: give its hub-identity.cbor too (`veen hub keys --hub URL --out "
    "hub-identity.cbor`), or a --client that knows the hub"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``holds`` is None where there is not enough to judge by; ``why`` says what was established, or not."""

    where: str
    what: str
    holds: bool | None
    why: str


@dataclass(slots=True)
class Roots:
    """What signed objects say of the trees: by label and size, the root."""

    known: dict[Label, dict[int, MmrRoot]] = field(default_factory=dict)

    def add(self, label: Label, size: int, root: MmrRoot) -> None:
        if self.known.setdefault(label, {}).setdefault(size, root) != root:
            raise VerificationError(
                f"another root for {size} entries of the same label is signed too: the hub lies"
            )


class Undecided(Exception):  # noqa: N818 - a verdict, not an error
    """There is not enough here to judge by."""


class Judge:
    """All the files of one call; ``identity`` is the pinned hub's, if there is one."""

    def __init__(
        self, found: Sequence[Found], pin: HubId | None, identity: HubIdentity | None, now: UnixTime
    ) -> None:
        self._found = found
        self._pin = pin
        self._identity = identity
        self._now = now
        self._roots = Roots()
        # Those that hold. By place and by message: a chunk has tens of thousands of them.
        self._at: dict[tuple[Label, StreamSeq], Receipt] = {}
        self._for: dict[LeafHash, Receipt] = {}

    def verdicts(self) -> list[Verdict]:
        """Receipts first, then what they help to judge; told in the order in which the files were given."""
        made = {id(each): self._judge(each) for each in sorted(self._found, key=_turn)}
        return [made[id(each)] for each in self._found]

    def _judge(self, found: Found) -> Verdict:
        rule = RULES.get(type(found.thing))
        try:
            if rule is None:
                raise Undecided("is no evidence: there is nothing to verify; see `veen inspect`")
            why = rule(self, found)
        except Undecided as exc:
            return Verdict(found.where, found.name, None, str(exc))
        except VeenError as exc:
            return Verdict(found.where, found.name, False, str(exc))
        return Verdict(found.where, found.name, True, why)

    def _trusted(self) -> HubIdentity:
        if self._identity is None:
            raise Undecided(f"cannot be judged: {PIN if self._pin is None else KEYS}")
        return self._identity

    def _shown_receipts(self) -> Iterator[Receipt]:
        """Those among the files, whether they hold or not."""
        for each in self._found:
            if isinstance(each.thing, Receipt):
                yield each.thing
            elif isinstance(each.thing, Entry):
                yield each.thing.receipt

    # --- what hubs sign

    def identity(self, found: Found) -> str:
        shown = found.thing
        assert isinstance(shown, HubIdentity)
        hub_identity.verify_identity(shown)
        if self._pin is None:
            raise Undecided(f"of hub {shown.hub_id.hex()}: if you mean that one, --trust it")
        if self._identity is None or shown.hub_id != self._identity.hub_id:
            raise VerificationError(f"is of hub {shown.hub_id.hex()}, pinned is {self._pin.hex()}")
        return f"the pinned hub, {len(shown.hub_keys)} key(s), each endorsed by the one before"

    def receipt(self, found: Found) -> str:
        assert isinstance(found.thing, Receipt)
        return self._receipt(found.thing)

    def _receipt(self, receipt: Receipt) -> str:
        hub_identity.verify_receipt(self._trusted(), receipt)
        self._contradicts_none(receipt)
        self._roots.add(receipt.label, receipt.stream_seq, receipt.mmr_root)
        self._at.setdefault((receipt.label, receipt.stream_seq), receipt)
        self._for.setdefault(receipt.leaf_hash, receipt)
        return f"the hub signed entry {receipt.stream_seq} of label {receipt.label.hex()[:16]}…"

    def _contradicts_none(self, receipt: Receipt) -> None:
        other = self._at.get((receipt.label, receipt.stream_seq))
        if other is not None and find_equivocation(self._trusted(), other, receipt) is not None:
            raise VerificationError(
                f"the hub signed another receipt for entry {receipt.stream_seq} too: "
                "keep both, they convict it"
            )

    def checkpoint(self, found: Found) -> str:
        made = found.thing
        assert isinstance(made, Checkpoint)
        # Offline the profile is not known: its epoch says nothing of when it was made. But that was after
        # every entry it covers, so the receipts at hand bound the moment at which its keys were active.
        identity = self._trusted()
        covered = (
            each.hub_ts
            for each in self._at.values()
            if each.label == made.label_curr and each.stream_seq <= made.upto_seq
        )
        since = max(covered, default=min(key.valid_from for key in identity.hub_keys))
        check_signatures(identity, made, 0, since=since, now=self._now)
        self._roots.add(made.label_curr, made.upto_seq, made.mmr_root)
        return f"the hub signed the root of {made.upto_seq} entries of label {made.label_curr.hex()[:16]}…"

    def entry(self, found: Found) -> str:
        entry = found.thing
        assert isinstance(entry, Entry)
        told = self._receipt(entry.receipt)
        if entry.is_authorize:
            verify_token(verify_authorize(entry))
            return f"{told}, and it is for this token"
        _, leaf = verify_msg(entry.msg_bytes)
        if leaf != entry.receipt.leaf_hash:
            raise VerificationError("the RECEIPT is for another MSG than the one beside it (I2)")
        return f"{told}, and it is for this message"

    def equivocation(self, found: Found) -> str:
        assert isinstance(found.thing, Equivocation)
        verify_evidence(found.thing, self._identity)
        whose = "the pinned hub" if self._identity is not None else found.thing.first.hub_pk.hex()
        return f"two signed receipts for one place: it convicts {whose}"

    # --- proofs

    def inclusion(self, found: Found) -> str:
        proof = found.thing
        assert isinstance(proof, MmrProof)
        receipt = self._for.get(proof.leaf_hash)
        if receipt is None:
            if any(each.leaf_hash == proof.leaf_hash for each in self._shown_receipts()):
                self._trusted()
                raise Undecided("cannot be judged: the receipt of its entry does not hold")
            raise Undecided("cannot be judged: give the receipt of the entry it is about as well")
        later = {s: r for s, r in self._roots.known[receipt.label].items() if s >= receipt.stream_seq}
        fitting = [size for size in sorted(later, reverse=True) if _fits(proof, receipt.stream_seq, size)]
        if not fitting:
            raise Undecided(
                "cannot be judged: it is of a log of another length than those whose roots are here (the "
                f"longest is {max(later)}); give the checkpoint or receipt that it leads to"
            )
        size = _first_that_holds(
            fitting,
            lambda size: verify_inclusion(proof, later[size], receipt.stream_seq, receipt.leaf_hash, size),
        )
        return f"entry {receipt.stream_seq} is among the {size} entries that the hub signed"

    def consistency(self, found: Found) -> str:
        proof = found.thing
        assert isinstance(proof, MmrConsistency)
        trees = self._roots.known.values()
        fitting = [tree for tree in trees if proof.from_seq in tree and proof.to_seq in tree]
        if not fitting:
            if any(isinstance(each.thing, Receipt | Entry | Checkpoint) for each in self._found):
                self._trusted()
            raise Undecided(
                f"cannot be judged: give receipts or checkpoints at {proof.from_seq} and {proof.to_seq} too"
            )
        _first_that_holds(
            fitting, lambda tree: verify_consistency(proof, tree[proof.from_seq], tree[proof.to_seq])
        )
        return f"the log of {proof.from_seq} entries is the beginning of the log of {proof.to_seq}"

    # --- what others sign

    def msg(self, found: Found) -> str:
        msg, leaf = verify_msg(found.data)
        placed = self._for.get(leaf)
        where = f", entry {placed.stream_seq} by its receipt" if placed is not None else ""
        return f"signed by client_id {msg.client_id.hex()[:16]}…{where}"

    def token(self, found: Found) -> str:
        assert isinstance(found.thing, CapToken)
        verify_token(found.thing)
        return f"signed by issuer {found.thing.issuer_pk.hex()[:16]}…; each hub decides whom it accepts"

    def card(self, found: Found) -> str:
        assert isinstance(found.thing, IdentityCard)
        verify_card(found.thing)
        return f"signed by the identity it names, {found.thing.id_sign.hex()[:16]}…"

    def cookie(self, found: Found) -> str:
        cookie = found.thing
        assert isinstance(cookie, PowCookie)
        proof_of_work.verify_cookie(cookie, cookie.challenge, cookie.difficulty)
        return f"does the work of {cookie.difficulty} bits for its challenge"


RULES: Final[dict[type, Callable[[Judge, Found], str]]] = {
    HubIdentity: Judge.identity,
    Receipt: Judge.receipt,
    Checkpoint: Judge.checkpoint,
    Entry: Judge.entry,
    Equivocation: Judge.equivocation,
    MmrProof: Judge.inclusion,
    MmrConsistency: Judge.consistency,
    Msg: Judge.msg,
    CapToken: Judge.token,
    IdentityCard: Judge.card,
    PowCookie: Judge.cookie,
}


def _fits(proof: MmrProof, seq: int, size: int) -> bool:
    """Whether a proof of that entry in a tree of that size has so many hashes (§5.3)."""
    return (len(proof.path), len(proof.peaks_after)) == (
        own_peak(seq - 1, size)[0],
        len(peak_heights(size)) - 1,
    )


def _first_that_holds(candidates: Sequence[T], verify: Callable[[T], object]) -> T:
    """The first candidate that verifies; what was wrong with the last, if none does."""
    why: VerificationError | None = None
    for each in candidates:
        try:
            verify(each)
        except VerificationError as exc:
            why = exc
        else:
            return each
    assert why is not None  # there is at least one candidate
    raise why


def _turn(found: Found) -> int:
    """Receipts bound when checkpoints were made; both name the roots that proofs are judged against."""
    if isinstance(found.thing, MmrProof | MmrConsistency | Msg):
        return 2
    return 1 if isinstance(found.thing, Checkpoint) else 0
