"""Evidence of a publication: one file that proves, without a hub, what was published (spec-3 6.3).

The file is a CBOR sequence of pairs, a MSG and its hub evidence (RESOLUTIONS P1). The last pair is the
publication. If another key than the publisher's has signed it, an earlier pair has the record that links the
keys. The file does not prove that the publication is the first of its version (P1 of spec-3 6.4): only the
log from its start does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from veen_core import cbor
from veen_core.ciphertext import Opened
from veen_core.errors import DecodeError, EvidenceError
from veen_core.hub_evidence import HubEvidence, parse_evidence, verify_evidence
from veen_core.ids import HubId, Label, StreamSeq, UnixTime
from veen_core.msg import Msg, verify_msg
from veen_core.tlog.policy import Cosigned, WitnessPolicy
from veen_overlays.fold.event import Event
from veen_overlays.operations.key_links import lift_link, signs_for
from veen_overlays.operations.publication import DataPublication
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.record import Record

MAX_PAIRS: Final = 2
"""The publication, and the link of the key that signed it."""

OpenMsg = Callable[[Msg], Opened | None]
"""Opens a MSG with the verifier's keys; None if no key fits."""


@dataclass(frozen=True, slots=True)
class ProvedPublication:
    """A publication that evidence proves."""

    record: DataPublication
    hub_id: HubId
    label: Label
    stream_seq: StreamSeq
    hub_ts: UnixTime
    """When the hub signed the receipt."""
    cosigned: Cosigned | None
    """The witnesses that cosigned the hub log; None if no policy was given."""


@dataclass(frozen=True, slots=True)
class _Proved:
    event: Event
    evidence: HubEvidence
    cosigned: Cosigned | None


def publication_evidence(pairs: Sequence[tuple[bytes, HubEvidence]]) -> bytes:
    """The file of a publication: encoded MSGs with their evidence, the publication last."""
    return b"".join(part for msg, evidence in pairs for part in (msg, evidence.encode()))


def verify_publication_evidence(
    data: bytes, open_msg: OpenMsg, *, pinned: HubId, policy: WitnessPolicy | None = None
) -> ProvedPublication:
    """Verify the file of a publication; raise ``VerificationError`` for the first step that fails."""
    parts = []
    for item in cbor.split_sequence(data):
        parts.append(item)
        if len(parts) > 2 * MAX_PAIRS:
            raise EvidenceError(f"the evidence has more than {MAX_PAIRS} messages")
    if not parts or len(parts) % 2:
        raise EvidenceError("the evidence is no sequence of messages, each with its hub evidence")
    proved = [
        _verified(msg, parse_evidence(evidence), open_msg, pinned, policy)
        for msg, evidence in zip(parts[::2], parts[1::2], strict=True)
    ]
    last = proved[-1]
    receipt, record = last.evidence.receipt, last.event.record
    if not isinstance(record, DataPublication):
        raise EvidenceError(f"the last message is a {record.NAME}, not a publication")
    links = {}
    for each in proved[:-1]:
        if each.evidence.receipt.label == receipt.label and isinstance(each.event.record, KeyContinuity):
            links.update(lift_link(each.event).get("links", {}))
    assert last.event.client_id is not None
    if not signs_for(links, record.publisher_identity, last.event.client_id, last.event.seq):
        raise EvidenceError("the publisher has not signed the publication, and no link of its key is given")
    return ProvedPublication(
        record,
        last.evidence.identity.hub_id,
        receipt.label,
        receipt.stream_seq,
        receipt.hub_ts,
        last.cosigned,
    )


def _verified(
    wire: bytes, evidence: HubEvidence, open_msg: OpenMsg, pinned: HubId, policy: WitnessPolicy | None
) -> _Proved:
    """Verify one pair: the signature, the receipt of this message, and the proofs up to the hub log."""
    msg, leaf = verify_msg(wire)
    receipt = evidence.receipt
    if (receipt.leaf_hash, receipt.label) != (leaf, msg.label):
        raise EvidenceError("the hub evidence is of another message")
    verdict = verify_evidence(evidence, pinned=pinned, policy=policy)
    if (opened := open_msg(msg)) is None:
        raise EvidenceError(
            f"no key opens message {receipt.stream_seq}", action="name the stream's reader key with --reader"
        )
    record = _record(bytes(opened.header.schema), opened.body)
    event = Event(receipt.stream_seq, leaf, record, client_id=bytes(msg.client_id))
    return _Proved(event, evidence, verdict.cosigned)


def _record(schema: bytes, body: bytes) -> Record:
    for shape in (DataPublication, KeyContinuity):
        if schema == shape.SCHEMA:
            return shape.decode(body)
    raise DecodeError("is neither a publication nor a key link", where="message")
