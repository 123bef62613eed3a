"""The rules that every log obeys: one sentence and one clause per rule, and the checks of a single entry.

``RULES`` lists them in the order in which they are checked. ``examine`` and ``examine_pruned`` check the
rules that need no other entry, and return the ``LogStep`` that the entry adds to the log. ``check_position``,
``check_writer`` and ``check_token`` compare a step with facts about the entries before it. The caller passes
these facts in: ``LogVerifier`` keeps them in memory, a replica reads them from its index.

Not here, because a log alone cannot show it: I5 needs the opened message (``attachment``), I7 needs the hub's
admission record (``cap``, ``rate``), I13 is about refusals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veen_core import ciphertext, stream
from veen_core.checkpoint import LabelOrigin
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry, verify_authorize
from veen_core.errors import DecodeError, InvariantError, VerificationError
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    Label,
    LeafHash,
    MmrRoot,
    ProfileId,
    StreamSeq,
    UnixTime,
)
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.msg import Msg
from veen_core.profile import Profile
from veen_core.receipt import Receipt


class Rule(NamedTuple):
    """One rule of a log: its name in errors, the clause that states it, and its text."""

    name: str
    clause: str
    says: str

    def broken(self, found: str, seq: int) -> InvariantError:
        """Return the error for an entry at ``seq`` that breaks this rule."""
        return InvariantError(self.name, found, clause=self.clause, seq=seq)


FRAME: Final = Rule("§4.8.1", "core §4.8.1", "The frame names the label and stream_seq of its RECEIPT.")
CANONICAL: Final = Rule("I10", "core §7", "MSG, cap token and RECEIPT are canonical CBOR.")
SIZES: Final = Rule("I11", "core §7", "MSG, header and body are within the limits of the hub.")
CT_HASH: Final = Rule("I1", "core §7", "ct_hash is the SHA-256 of the ciphertext.")
LEAF: Final = Rule("I2", "core §7", "The RECEIPT names the label and the leaf hash of its MSG.")
PROFILE: Final = Rule("I4", "core §7", "The MSG was made under the profile of the hub.")
TOKEN: Final = Rule("H5", "RESOLUTIONS H5", "The control label authorizes each token once, by its own leaf.")
POSITION: Final = Rule("I3", "core §7", "stream_seq grows by 1, and mmr_root is the root with the new leaf.")
TIME: Final = Rule("H3", "RESOLUTIONS H3", "hub_ts never decreases.")
ACKNOWLEDGED: Final = Rule("I6", "core §7", "prev_ack names an entry that was in the log before the MSG.")
UNIQUE: Final = Rule("I8", "core §7", "A writer's client_seq is accepted once.")
CONSECUTIVE: Final = Rule("I9", "core §7", "A writer's client_seq starts at 1 and grows by 1.")
EPOCH: Final = Rule("I12", "core §7", "The label belongs to an epoch within the allowed skew of hub_ts.")
RULES: Final = (
    FRAME,
    CANONICAL,
    SIZES,
    CT_HASH,
    LEAF,
    PROFILE,
    TOKEN,
    POSITION,
    TIME,
    ACKNOWLEDGED,
    UNIQUE,
    CONSECUTIVE,
    EPOCH,
)
"""In the order of checking: form, then hashes, then the order of the log; I3's root comes last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTerms:
    """Facts about a label that a verifier has from sources other than the log."""

    label: Label
    identity: HubIdentity
    profile: Profile | None = None
    """The only profile of the hub; None if no registry is known: then I4 and epochs are not checked."""
    limits: Limits = DEFAULT_LIMITS
    origin: LabelOrigin | None = None
    """How the label was derived (H4); without it I12 and label_prev are not checked."""
    profile_id: ProfileId | None = field(init=False)
    is_control_label: bool = field(init=False)
    """Whether the label is the one on which this hub authorizes tokens (H5)."""

    def __post_init__(self) -> None:
        control = stream.control_label(stream.routing_key(self.identity.hub_id))
        profile_id = self.profile.profile_id if self.profile is not None else None
        object.__setattr__(self, "profile_id", profile_id)
        object.__setattr__(self, "is_control_label", self.label == control)


class LogStep(NamedTuple):
    """The facts that one entry adds to its log: all that the rules between entries need."""

    stream_seq: StreamSeq
    leaf_hash: LeafHash
    mmr_root: MmrRoot
    hub_ts: UnixTime
    client_id: ClientId | None
    """The writer of a MSG; None for a control entry."""
    client_seq: ClientSeq
    prev_ack: StreamSeq
    authorizes: AuthRef | None = None
    """The token that a control entry authorizes."""


def step_of(receipt: Receipt, fields: Msg | PrunedEntry) -> LogStep:
    """Return the step of a message that was checked against its RECEIPT."""
    return LogStep(
        receipt.stream_seq,
        receipt.leaf_hash,
        receipt.mmr_root,
        receipt.hub_ts,
        fields.client_id,
        fields.client_seq,
        fields.prev_ack,
    )


def verify_alone(entry: Entry, limits: Limits = DEFAULT_LIMITS) -> LogStep:
    """Check the rules that need nothing but the entry and the limits; return its ``LogStep``.

    These are the frame, I10, I11, I1 and I2 of a MSG, or the leaf of a cap token (H5). No signature is
    checked. Raises ``InvariantError``.
    """
    seq = entry.stream_seq
    if len(entry.msg_bytes) > limits.max_msg_bytes:  # before anything is decoded (SH0.4)
        found = f"{len(entry.msg_bytes)} bytes exceed max_msg_bytes = {limits.max_msg_bytes}"
        raise SIZES.broken(found, seq)
    try:
        receipt = entry.receipt
        content = entry.token if entry.is_authorize else entry.msg
    except DecodeError as exc:
        raise CANONICAL.broken(str(exc), seq) from exc
    if (receipt.label, receipt.stream_seq) != (entry.label, seq):
        raise FRAME.broken("the RECEIPT and the frame differ in label or stream_seq", seq)
    if isinstance(content, Msg):
        _check_pair(content, receipt, limits)
        return step_of(receipt, content)
    try:
        verify_authorize(entry)
    except VerificationError as exc:
        raise TOKEN.broken(str(exc), seq) from None
    promised = (seq, receipt.leaf_hash, receipt.mmr_root, receipt.hub_ts)
    return LogStep(*promised, None, ClientSeq(0), StreamSeq(0), content.auth_ref)


def _check_pair(msg: Msg, receipt: Receipt, limits: Limits) -> None:
    try:
        ciphertext.check_layout(msg.ciphertext, limits)
    except DecodeError as exc:
        raise SIZES.broken(str(exc), receipt.stream_seq) from exc
    if H(msg.ciphertext) != msg.ct_hash:
        raise CT_HASH.broken("ct_hash is not the hash of the ciphertext", receipt.stream_seq)
    if msg.label != receipt.label:
        raise LEAF.broken("the MSG and its RECEIPT differ in label", receipt.stream_seq)
    _check_leaf(receipt, msg.leaf_hash)


def examine(entry: Entry, terms: LogTerms) -> LogStep:
    """Check one entry against the terms of its log, without its signatures; return its ``LogStep``."""
    step = verify_alone(entry, terms.limits)
    if entry.label != terms.label:
        found = f"the entry has label {entry.label.hex()}, not {terms.label.hex()}"
        raise LEAF.broken(found, step.stream_seq)
    if not entry.is_authorize:
        _check_profile(entry.msg.profile_id, terms, step.stream_seq)
    elif not terms.is_control_label:
        raise TOKEN.broken("the entry authorizes a token outside the hub's control label", step.stream_seq)
    return step


def examine_pruned(kept: PrunedEntry, terms: LogTerms) -> LogStep:
    """Check what remains of a pruned entry; return its ``LogStep`` or raise ``InvariantError``."""
    receipt = kept.receipt
    if receipt.label != terms.label:
        found = f"the RECEIPT has label {receipt.label.hex()}, not {terms.label.hex()}"
        raise LEAF.broken(found, receipt.stream_seq)
    _check_leaf(receipt, kept.leaf_hash)
    _check_profile(kept.profile_id, terms, receipt.stream_seq)
    return step_of(receipt, kept)


def _check_leaf(receipt: Receipt, leaf: LeafHash) -> None:
    if receipt.leaf_hash != leaf:
        raise LEAF.broken("leaf_hash is not the leaf hash of the MSG", receipt.stream_seq)


def _check_profile(profile_id: ProfileId, terms: LogTerms, seq: StreamSeq) -> None:
    if terms.profile_id is not None and profile_id != terms.profile_id:
        raise PROFILE.broken(f"profile {profile_id.hex()} is not the hub's", seq)


def check_position(step: LogStep, size: int, hub_ts: UnixTime | None) -> None:
    """Check that a step follows ``size`` entries, the last of them at ``hub_ts`` if it is known (I3, H3)."""
    if step.stream_seq != size + 1:
        raise POSITION.broken(f"the entry does not follow entry {size}", step.stream_seq)
    if hub_ts is not None and step.hub_ts < hub_ts:
        raise TIME.broken(f"hub_ts goes back from {hub_ts} to {step.hub_ts}", step.stream_seq)


def check_acknowledgement(step: LogStep) -> None:
    """Check that a MSG acknowledges only entries before it (I6)."""
    before = step.stream_seq - 1
    if step.prev_ack > before:
        found = f"prev_ack {step.prev_ack} is beyond the {before} entries before the MSG"
        raise ACKNOWLEDGED.broken(found, step.stream_seq)


def check_writer(step: LogStep, last: int) -> None:
    """Check that a MSG's client_seq follows its writer's ``last``, which is 0 before the first (I8, I9)."""
    if 0 < last >= step.client_seq:
        raise UNIQUE.broken(f"client_seq {step.client_seq} was accepted before", step.stream_seq)
    if step.client_seq != last + 1:
        found = f"client_seq {step.client_seq} does not follow {last}"
        raise CONSECUTIVE.broken(found, step.stream_seq)


def check_token(step: LogStep, before: int | None) -> None:
    """Raise if the token of this step was authorized already, by entry ``before`` (H5)."""
    if before is not None and step.authorizes is not None:
        found = f"token {step.authorizes.hex()} was already authorized by entry {before}"
        raise TOKEN.broken(found, step.stream_seq)
