"""The hub log: one transparency log per hub over the heads of all its labels (RESOLUTIONS P1).

An entry of the hub log is a label's head. The hub signs the tree over them, as its hub checkpoint, and so it
commits to every label: it cannot hide a label, show two versions of it or truncate it without signing another
tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from veen_core.errors import InvariantError, SignatureError
from veen_core.hub_identity import HubIdentity, HubKey
from veen_core.ids import HubId, Label, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.tlog.note import ED25519, NoteKey, verified_signatures
from veen_core.tlog.tree_head import SignedHead
from veen_core.wire import Wire, array, int_map


@array("label head", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelHead(Wire):
    """The newest entry of a label when the hub log was extended; root and time are its RECEIPT's."""

    ver: Literal[1] = 1
    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    hub_ts: UnixTime


def origin_of(hub_id: HubId) -> str:
    """Return the default name of a hub's log, which the hub's configuration can replace (P1)."""
    return f"veen.hub/{hub_id.hex()}"


def note_key(key: HubKey, origin: str) -> NoteKey:
    """Return a hub key as the key that signs hub checkpoints."""
    return NoteKey(origin, ED25519, key.hub_pk)


def note_keys(identity: HubIdentity, origin: str) -> list[NoteKey]:
    """Return all keys of a hub as keys that sign hub checkpoints."""
    return [note_key(key, origin) for key in identity.hub_keys]


def verify_hub_checkpoint(
    identity: HubIdentity, signed: SignedHead, *, origin: str | None = None, since: UnixTime | None = None
) -> None:
    """Raise ``SignatureError`` unless a key of the hub signed this hub checkpoint (P1).

    ``since`` is the time of an entry that the tree contains: a key that had ended by then cannot have
    signed it.
    """
    expected = origin if origin is not None else origin_of(identity.hub_id)
    if signed.head.origin != expected:
        raise SignatureError(
            f"hub checkpoint (RESOLUTIONS P1): its origin is {signed.head.origin[:100]!r}, not {expected!r}"
        )
    keys = [
        note_key(key, expected)
        for key in identity.hub_keys
        if since is None or key.valid_until is None or since < key.valid_until
    ]
    if not verified_signatures(signed.note, keys):
        raise SignatureError(
            f"hub checkpoint at size {signed.head.size} (RESOLUTIONS P1): no key of the hub signed it"
        )


class HeadTable:
    """The newest head of every label, from the entries of a hub log in order.

    Within one label, ``upto_seq`` grows and ``hub_ts`` never decreases (P1, I3, H3). Otherwise the hub
    contradicts itself.
    """

    def __init__(self) -> None:
        self.newest: dict[Label, LabelHead] = {}
        self.hub_ts = UnixTime(0)
        """The newest time in the log."""

    def add(self, head: LabelHead) -> None:
        """Add the next entry; raise ``InvariantError`` if it does not continue the label."""
        before = self.newest.get(head.label)
        if head.upto_seq < 1 or (before is not None and head.upto_seq <= before.upto_seq):
            held = before.upto_seq if before is not None else 0
            raise InvariantError(
                "P1",
                f"upto_seq of label {head.label.hex()} does not grow in the hub log: "
                f"{held}, then {head.upto_seq}",
            )
        if before is not None and head.hub_ts < before.hub_ts:
            raise InvariantError(
                "P1", f"hub_ts of label {head.label.hex()} decreases at {head.upto_seq} in the hub log"
            )
        self.newest[head.label] = head
        self.hub_ts = max(self.hub_ts, head.hub_ts)


def check_uncovered(label: Label, stream_seq: StreamSeq, hub_ts: UnixTime, newest: UnixTime) -> None:
    """Raise ``InvariantError`` if the hub log must cover this entry, the first after the label's newest head.

    ``newest`` is the newest hub_ts in the hub log. A hub checkpoint covers every entry before it (P1), and
    hub_ts never decreases, whatever the label (H3). So an entry that is older than the newest head was there
    when the hub signed: the hub left the entry, or the whole label, out of its hub log.
    """
    if hub_ts < newest:
        raise InvariantError(
            "P1",
            f"the hub log does not cover entry {stream_seq} of label {label.hex()}, although its hub_ts "
            f"{hub_ts} is older than the newest head, {newest}",
        )


# --- the API


@int_map("hub log proof request", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubProofRequest(Wire):
    """Asks for a label's head in the hub log: the newest, or the first that covers ``stream_seq``."""

    ver: Literal[1] = 1
    label: Label
    stream_seq: StreamSeq | None = None


@int_map("hub log proof response", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubProofResponse(Wire):
    """A label's head, its place in the hub log, and the hub checkpoint that it leads to."""

    ver: Literal[1] = 1
    head: LabelHead
    index: int
    proof: tuple[NodeHash, ...]
    checkpoint: bytes
    server_version: str | None = None


@int_map("hub log consistency request", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubConsistencyRequest(Wire):
    """Asks for the proof between two sizes; without ``new_size``, up to the published hub checkpoint."""

    ver: Literal[1] = 1
    old_size: int
    new_size: int | None = None


@int_map("hub log consistency response", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubConsistencyResponse(Wire):
    """A consistency proof (RFC 6962 §2.1.2) and the published hub checkpoint."""

    ver: Literal[1] = 1
    old_size: int
    new_size: int
    proof: tuple[NodeHash, ...]
    checkpoint: bytes
    server_version: str | None = None


def hashes(proof: Sequence[bytes]) -> tuple[NodeHash, ...]:
    """Return the hashes of a proof as the API has them."""
    return tuple(map(NodeHash, proof))
