"""Request and response envelopes of the data plane (§10.4, §10.6, B11, H16).

Maps with ascending unsigned integer keys in CBOR, the field names as keys in JSON (B17); both
refuse unknown keys. ``server_version`` is the only field a response may lack for no reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from veen_core import cbor
from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.errors import AdmissionError, ApiError, DecodeError
from veen_core.ids import Label, StreamSeq
from veen_core.msg import Msg
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.rejection import Code, Stage
from veen_core.wire import Wire, int_map, text_map


@int_map("submit request", section="10.4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest(Wire):
    """One MSG in."""

    ver: Literal[1] = 1
    msg: Msg


@int_map("submit response", section="10.4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResponse(Wire):
    """One RECEIPT out."""

    ver: Literal[1] = 1
    receipt: Receipt
    server_version: str | None = None


_SUBMIT_PREFIX: Final = bytes.fromhex("a2010102")  # {1: 1, 2: …


def wrap_submit(msg_bytes: bytes) -> bytes:
    """A submit request around an encoded MSG."""
    return _SUBMIT_PREFIX + msg_bytes


def unwrap_submit(envelope: bytes) -> bytes:
    """The encoded MSG inside a submit request, still unchecked.

    A canonical envelope is four fixed bytes and the MSG, so the hub hashes and stores the bytes
    that arrived, without encoding them again.
    """
    if envelope.startswith(_SUBMIT_PREFIX):
        return envelope[len(_SUBMIT_PREFIX) :]
    SubmitRequest.decode(envelope)  # raises with the precise reason
    raise DecodeError("not a submit request", where="submit request §10.4.1")


def split_submits(body: bytes) -> Iterator[bytes]:
    """The envelopes of a sequence (H14), each as its own bytes, as ``cbor.split_sequence`` does.

    Where a canonical MSG ends its pattern tells, at a sixth of the cost of looking at every head.
    """
    at = 0
    while at < len(body):
        end = None
        if body.startswith(_SUBMIT_PREFIX, at):
            end = Msg.codec.end(body, at + len(_SUBMIT_PREFIX))
        if end is None:
            end = cbor.item_end(body, at)
        yield body[at:end]
        at = end


@int_map("stream request", section="10.4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest(Wire):
    """``cursor``, if present, takes precedence over ``from_seq`` (§10.5)."""

    ver: Literal[1] = 1
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq | None = None
    max_items: int | None = None
    cursor: StreamSeq | None = None
    with_receipts: bool | None = None
    with_mmr_proof: bool | None = None

    @property
    def start(self) -> StreamSeq:
        return self.from_seq if self.cursor is None else self.cursor


@int_map("stream item", section="10.4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem(Wire):
    """One entry of a page; ``receipt`` only where it was asked for."""

    stream_seq: StreamSeq
    msg: Msg
    receipt: Receipt | None = None


@int_map("stream response", section="10.4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResponse(Wire):
    """``mmr_proof`` proves the last item; no ``next_cursor`` means the end of the range (§10.5)."""

    ver: Literal[1] = 1
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq | None = None
    items: tuple[StreamItem, ...]
    next_cursor: StreamSeq | None = None
    mmr_proof: MmrProof | None = None
    server_version: str | None = None


@int_map("control item", section="H5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ControlItem(Wire):
    """An item of the control label: where other labels have a MSG, the cap token that was authorized."""

    stream_seq: StreamSeq
    msg: CapToken
    receipt: Receipt | None = None


@int_map("control response", section="H5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResponse(Wire):
    """A page of the control label; all but its items is a ``StreamResponse``."""

    ver: Literal[1] = 1
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq | None = None
    items: tuple[ControlItem, ...]
    next_cursor: StreamSeq | None = None
    mmr_proof: MmrProof | None = None
    server_version: str | None = None


@int_map("receipt request", section="10.4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptRequest(Wire):
    """Which receipt."""

    ver: Literal[1] = 1
    label: Label
    stream_seq: StreamSeq


@int_map("receipt response", section="10.4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptResponse(Wire):
    """That receipt."""

    ver: Literal[1] = 1
    receipt: Receipt
    server_version: str | None = None


@int_map("proof request", section="10.4.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest(Wire):
    """``tree_size`` is additive: absent, the tree is the one the leaf completed (H16, B10)."""

    ver: Literal[1] = 1
    label: Label
    stream_seq: StreamSeq
    tree_size: StreamSeq | None = None


@int_map("proof response", section="10.4.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResponse(Wire):
    """The proof."""

    ver: Literal[1] = 1
    mmr_proof: MmrProof
    server_version: str | None = None


@int_map("checkpoint request", section="10.4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest(Wire):
    """Which checkpoint."""

    ver: Literal[1] = 1
    label: Label
    upto_seq: StreamSeq


@int_map("checkpoint response", section="10.4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResponse(Wire):
    """That checkpoint."""

    ver: Literal[1] = 1
    checkpoint: Checkpoint
    server_version: str | None = None


@int_map("consistency request", section="B11")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyRequest(Wire):
    """Which two sizes."""

    ver: Literal[1] = 1
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq


@int_map("consistency response", section="B11")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyResponse(Wire):
    """The proof."""

    ver: Literal[1] = 1
    mmr_consistency: MmrConsistency
    server_version: str | None = None


@text_map("error.detail", section="10.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail(Wire):
    """Machine-readable, with stable keys; ``stage`` and ``detail_enum`` on admission errors (§8.2)."""

    stage: Stage | None = None
    detail_enum: str | None = None
    field: str | None = None
    expected: str | None = None
    actual: str | None = None
    max_allowed: int | None = None
    label: Label | None = None
    stream_seq: StreamSeq | None = None


@int_map("error", section="10.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEnvelope(Wire):
    """What any refusal looks like, with a code that H1 maps to HTTP."""

    ver: Literal[1] = 1
    code: Code
    message: str
    detail: ErrorDetail | None = None
    retry_after: int | None = None
    request_id: str | None = None


def envelope_of(error: AdmissionError | ApiError, request_id: str | None = None) -> ErrorEnvelope:
    """How an error travels (§10.6)."""
    if isinstance(error, AdmissionError):
        row = error.rejection
        code: Code = row.code
        detail = ErrorDetail(stage=row.stage, detail_enum=row.detail)
    else:
        code, detail = error.code, None
    return ErrorEnvelope(
        code=code,
        message=str(error),
        detail=detail,
        retry_after=error.retry_after,
        request_id=request_id,
    )
