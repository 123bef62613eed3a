"""Request and response envelopes of the data plane (§10.4, §10.6, B11, H16).

In CBOR an envelope is a map with ascending unsigned integer keys; in JSON its keys are the field names (B17).
Both forms refuse unknown keys. Every response may omit ``server_version``.
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
    """A MSG to admit."""

    ver: Literal[1] = 1
    msg: Msg


@int_map("submit response", section="10.4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResponse(Wire):
    """The RECEIPT of an admitted MSG."""

    ver: Literal[1] = 1
    receipt: Receipt
    server_version: str | None = None


_SUBMIT_PREFIX: Final = bytes.fromhex("a2010102")  # {1: 1, 2: …


def wrap_submit(msg_bytes: bytes) -> bytes:
    """Return the submit request for an encoded MSG."""
    return _SUBMIT_PREFIX + msg_bytes


def unwrap_submit(envelope: bytes) -> bytes:
    """Return the encoded MSG of a submit request; the MSG itself is not checked.

    A canonical envelope is four fixed bytes followed by the MSG. The hub hashes and stores these
    bytes as they arrived and never encodes them again.
    """
    if envelope.startswith(_SUBMIT_PREFIX):
        return envelope[len(_SUBMIT_PREFIX) :]
    SubmitRequest.decode(envelope)  # raises with the precise reason
    raise DecodeError("not a submit request", where="submit request (core §10.4.1)")


def split_submits(body: bytes) -> Iterator[bytes]:
    """Split a CBOR sequence of submit requests into the bytes of each (H14).

    The pattern of a MSG finds its end about three times as fast as ``cbor.item_end``, which splits
    everything else.
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
    """A page to read. ``cursor``, if present, takes precedence over ``from_seq`` (§10.5)."""

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
        """The first stream_seq to read."""
        return self.from_seq if self.cursor is None else self.cursor


@int_map("stream item", section="10.4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem(Wire):
    """One entry of a page, with its ``receipt`` if the request asked for receipts."""

    stream_seq: StreamSeq
    msg: Msg
    receipt: Receipt | None = None


@int_map("stream response", section="10.4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResponse(Wire):
    """A page. ``mmr_proof`` proves its last item; without ``next_cursor`` the range ends here (§10.5)."""

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
    """One entry of the control label, with an authorized cap token instead of a MSG (H5)."""

    stream_seq: StreamSeq
    msg: CapToken
    receipt: Receipt | None = None


@int_map("control response", section="H5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResponse(Wire):
    """A page of the control label: a ``StreamResponse`` whose items contain cap tokens."""

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
    """Label and position of the RECEIPT to fetch; ``stream_seq`` 0 asks for the newest."""

    ver: Literal[1] = 1
    label: Label
    stream_seq: StreamSeq


@int_map("receipt response", section="10.4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptResponse(Wire):
    """The requested RECEIPT."""

    ver: Literal[1] = 1
    receipt: Receipt
    server_version: str | None = None


@int_map("proof request", section="10.4.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest(Wire):
    """The leaf to prove, in a tree of ``tree_size``; by default, the tree that ends with it (H16, B10)."""

    ver: Literal[1] = 1
    label: Label
    stream_seq: StreamSeq
    tree_size: StreamSeq | None = None


@int_map("proof response", section="10.4.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResponse(Wire):
    """The requested inclusion proof."""

    ver: Literal[1] = 1
    mmr_proof: MmrProof
    server_version: str | None = None


@int_map("checkpoint request", section="10.4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest(Wire):
    """Label and position of the CHECKPOINT to fetch; ``upto_seq`` 0 asks for the latest."""

    ver: Literal[1] = 1
    label: Label
    upto_seq: StreamSeq


@int_map("checkpoint response", section="10.4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResponse(Wire):
    """The requested CHECKPOINT."""

    ver: Literal[1] = 1
    checkpoint: Checkpoint
    server_version: str | None = None


@int_map("consistency request", section="B11")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyRequest(Wire):
    """The sizes of the two trees to compare."""

    ver: Literal[1] = 1
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq


@int_map("consistency response", section="B11")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyResponse(Wire):
    """The requested consistency proof."""

    ver: Literal[1] = 1
    mmr_consistency: MmrConsistency
    server_version: str | None = None


@text_map("error.detail", section="10.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail(Wire):
    """Machine-readable fields of an error; admission errors have ``stage`` and ``detail_enum`` (§8.2)."""

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
    """The envelope of every refusal; H1 maps its code to an HTTP status."""

    ver: Literal[1] = 1
    code: Code
    message: str
    detail: ErrorDetail | None = None
    retry_after: int | None = None
    request_id: str | None = None


def envelope_of(error: AdmissionError | ApiError, request_id: str | None = None) -> ErrorEnvelope:
    """Return the envelope that carries an error to the client (§10.6)."""
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
