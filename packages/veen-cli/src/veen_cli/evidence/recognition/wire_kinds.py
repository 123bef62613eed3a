"""All kinds of wire objects that are stored in files or sent as responses, and how to distinguish them.

A codec accepts only its own object in its one canonical form, so the first codec that accepts is the right
one. Of the requests only SUBMIT's is listed: several others have the same form, and requests are not kept
in files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from veen_core import api, cbor, chunk, status
from veen_core.cap import CapToken
from veen_core.card import IdentityCard
from veen_core.checkpoint import Checkpoint
from veen_core.codec import ArrayCodec
from veen_core.consistency import MmrConsistency
from veen_core.equivocation import Equivocation
from veen_core.errors import DecodeError, VeenError
from veen_core.export import AuthorizePayload, IndexRow, PrunedPayload
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_fork import HubLogFork, LabelFork
from veen_core.hub_identity import CheckpointBinding, HubIdentity
from veen_core.hub_log import HubConsistencyResponse, HubProofResponse, LabelHead
from veen_core.keystore import Keystore, Secrets
from veen_core.msg import Msg
from veen_core.pow import PowCookie
from veen_core.profile import Profile
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.wire import Wire
from veen_hub.client.state.records import EpochsRecord, HeldTokens, HubCheckpointRecord, LabelRecord
from veen_hub.ops.anchors import AnchoredRoot, LedgerLine
from veen_hub.witness.contradiction import LogContradiction
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.rpc.transcript import Transcript
from veen_storage import Registry
from veen_storage.copies.export import Manifest
from veen_storage.formats import Anchor, Fork, ForkCut, KeyFile, NextIdentity, Prune

KINDS: Final[tuple[type[Wire], ...]] = (
    Receipt,
    Checkpoint,
    Msg,
    MmrProof,
    MmrConsistency,
    CapToken,
    IdentityCard,
    HubIdentity,
    NextIdentity,
    Equivocation,
    HubEvidence,
    HubLogFork,
    LabelFork,
    LogContradiction,
    ResultFile,
    Transcript,
    LabelHead,
    Keystore,
    Secrets,
    KeyFile,
    PowCookie,
    Manifest,
    IndexRow,
    PrunedPayload,
    AuthorizePayload,
    Fork,
    ForkCut,
    Registry,
    Profile,
    LabelRecord,
    EpochsRecord,
    HeldTokens,
    HubCheckpointRecord,
    CheckpointBinding,
    Anchor,
    Prune,
    AnchoredRoot,
    LedgerLine,
    chunk.ChunkSummary,
    chunk.CheckpointIndexEntry,
    chunk.PrunedEntry,
    chunk.PrunedHead,
    status.Status,
    status.AuthorizeResponse,
    status.CapStatus,
    status.CheckpointsResponse,
    status.RetentionResponse,
    status.OkResponse,
    status.AttachmentResponse,
    api.SubmitRequest,
    api.SubmitResponse,
    api.StreamResponse,
    api.ControlResponse,
    api.ReceiptResponse,
    api.ProofResponse,
    api.CheckpointResponse,
    api.ConsistencyResponse,
    HubProofResponse,
    HubConsistencyResponse,
    api.ErrorEnvelope,
)
MAX_OBJECT_BYTES: Final = 64 * 1_048_576
"""No object is larger; a manifest, or a list of all checkpoints of a hub, may come close."""


def _heads(kind: type[Wire]) -> Iterator[int]:
    """Yield the first bytes that an object of this kind may have: array or map, and its size (core §3.1)."""
    fields = kind.codec.fields
    least = sum(not (field.optional or field.trailing) for field in fields)
    first = 0x80 if isinstance(kind.codec, ArrayCodec) else 0xA0
    yield from range(first + least, first + len(fields) + 1)


_BY_HEAD: Final[dict[int, list[type[Wire]]]] = {}
for _kind in KINDS:
    for _head in _heads(_kind):
        _BY_HEAD.setdefault(_head, []).append(_kind)


def decode_any(data: bytes) -> Wire | None:
    """Return the object that these bytes encode, or None.

    Only the kinds with this first byte are tried: trying all 50 took 0.25 ms for the one byte ``80``.
    """
    kinds = _BY_HEAD.get(data[0], ())
    if not kinds or len(data) > MAX_OBJECT_BYTES:
        return None
    for kind in kinds:
        if (value := kind.codec.match(data)) is not None:
            return cast(Wire, value)
    try:
        item = cbor.decode_items(data)
    except DecodeError:
        return None
    for kind in kinds:
        try:
            return cast(Wire, kind.codec.read(item))
        except VeenError:
            continue
    return None
