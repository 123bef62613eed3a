"""Recorder checkpoints: the heads of all recorder streams under one hub checkpoint (SDR0 3.2.4, P1).

    stream ── its label ── head (last seq, root, time) ── inclusion in the hub log ── hub checkpoint
                                                                    ── cosignatures of witnesses

``log_root`` of SDR0 is the root of the hub log, which the hub's key signs. A checkpoint is one file; a
verifier needs the hub_id, and a witness policy if it does not trust the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from veen_core import hub_evidence, hub_identity, hub_log
from veen_core.errors import DecodeError, EvidenceError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import Epoch, HubId, Label, NodeHash, UnixTime
from veen_core.stream import label as label_of
from veen_core.stream import routing_key, stream_id
from veen_core.tlog import tree
from veen_core.tlog.policy import Cosigned, WitnessPolicy
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map
from veen_overlays.recorder.profile import RecorderProfileId

KIND: Final = "veen-recorder-checkpoint"
MAX_CHECKPOINT_BYTES: Final = 16 * 1_048_576
"""Longest file: some ten thousand streams and epochs with proofs of 40 hashes."""


@int_map("recorder stream head", section="SDR0 3.2.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead(Wire):
    """The head of one label of a recorder stream, and its index in the hub log."""

    stream: str
    epoch: int
    """0 at a hub without epochs."""
    label: Label
    head: LabelHead | None = None
    """None if the hub log had no head of the label: the stream was empty."""
    index: int | None = None
    """Index of the head in the hub log."""
    proof: tuple[NodeHash, ...] | None = None
    """Inclusion of the head in the hub log."""

    @property
    def last_seq(self) -> int:
        """The last entry that the checkpoint covers; 0 if the stream was empty."""
        return 0 if self.head is None else self.head.upto_seq


@int_map("recorder checkpoint", section="SDR0 3.2.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpoint(Wire):
    """The heads of all streams of a recorder under one hub checkpoint."""

    kind: Literal["veen-recorder-checkpoint"] = KIND
    ver: Literal[1] = 1
    profile_id: RecorderProfileId
    created_at: UnixTime
    """When the file was made, by the clock of its maker; the heads have the hub's time."""
    identity: HubIdentity
    """The hub's keys."""
    streams: tuple[StreamHead, ...]
    checkpoint: bytes
    """The hub checkpoint: a signed note with the size and the root of the hub log, and cosignatures."""
    origin: str | None = None
    """The configured name of the hub log; absent: the default name of P1."""

    @property
    def signed_head(self) -> SignedHead:
        return parse_signed_head(self.checkpoint)

    @property
    def heads(self) -> Mapping[Label, StreamHead]:
        return {each.label: each for each in self.streams}

    @property
    def events(self) -> int:
        """Entries that the checkpoint covers."""
        return sum(each.last_seq for each in self.streams)

    @property
    def covered_until(self) -> UnixTime | None:
        """The time before which every entry of the streams is covered; None if all streams were empty.

        hub_ts never decreases, whatever the label (H3), and a hub checkpoint covers every entry before it
        (P1). So an entry that is not covered is not older than the newest head, if each head is the newest
        of its label in the hub log. The file does not prove this condition: inclusion proofs do not exclude
        a newer head. A reader of the whole hub log can (``veen hub labels --verified``).
        """
        return max((each.head.hub_ts for each in self.streams if each.head is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointVerdict:
    """What a valid recorder checkpoint proves."""

    signed: SignedHead
    cosigned: Cosigned | None
    """The witnesses that cosigned; None if no policy was given."""
    empty: tuple[str, ...]
    """Streams without a head. The file proves neither that the hub log had no head for them, nor that the
    heads of the other streams are the newest."""


def verify_checkpoint(
    found: RecorderCheckpoint,
    *,
    pinned: HubId | None = None,
    policy: WitnessPolicy | None = None,
    profile: RecorderProfileId | None = None,
) -> CheckpointVerdict:
    """Verify every step of the drawing above; raise ``VerificationError`` that names the first wrong one."""
    hub_identity.verify_identity(found.identity, pinned=pinned)
    if profile is not None and found.profile_id != profile:
        raise EvidenceError(
            f"the checkpoint is of recorder profile {found.profile_id.hex()}, not of {profile.hex()} "
            "(SDR0 3.2.4)"
        )
    if len({each.label for each in found.streams}) < len(found.streams):
        raise EvidenceError("the checkpoint lists a label twice (SDR0 3.2.4)")
    signed, identity = found.signed_head, found.identity
    for each in found.streams:
        _verify_stream(each, identity.hub_id, signed)
    name = found.origin if found.origin is not None else hub_log.origin_of(identity.hub_id)
    hub_log.verify_hub_checkpoint(identity, signed, origin=name, since=found.covered_until)
    cosigned = None
    if policy is not None:
        hub_evidence.check_log_name(identity, name, policy, pinned, None)
        cosigned = policy.check(signed, log_keys=hub_log.note_keys(identity, name))
    empty = tuple(each.stream for each in found.streams if each.head is None)
    return CheckpointVerdict(signed=signed, cosigned=cosigned, empty=empty)


def _verify_stream(each: StreamHead, hub: HubId, signed: SignedHead) -> None:
    where = f"stream {each.stream}, epoch {each.epoch}"
    if each.label != label_of(routing_key(hub), stream_id(each.stream), Epoch(each.epoch)):
        raise EvidenceError(f"{where}: the label does not belong to the stream at this hub (core §3.2)")
    if each.head is None:
        if each.index is not None or each.proof is not None:
            raise EvidenceError(f"{where}: there is a proof, but no head (RESOLUTIONS P1)")
        return
    if each.index is None or each.proof is None:
        raise EvidenceError(f"{where}: the head has no proof (RESOLUTIONS P1)")
    if each.head.label != each.label:
        raise EvidenceError(f"{where}: the head belongs to another label (RESOLUTIONS P1)")
    leaf = tree.leaf_hash(each.head.encode())
    tree.verify_inclusion(leaf, each.index, signed.head.size, each.proof, signed.head.root)


def parse_checkpoint(data: bytes) -> RecorderCheckpoint:
    """Decode a checkpoint file, and check that its hub checkpoint can be parsed."""
    where = "recorder checkpoint (SDR0 3.2.4)"
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise DecodeError(f"has {len(data)} bytes, at most {MAX_CHECKPOINT_BYTES} are allowed", where=where)
    found = RecorderCheckpoint.decode(data)
    try:
        _ = found.signed_head
    except DecodeError as exc:
        raise exc.within(f"{where}.checkpoint") from None
    return found
