"""A transcript: one call as evidence that a third party verifies offline (RPC0.1, P1, ADR 0026).

    announcement of the server ─┐
    request ────────────────────┼─ MSG ── RECEIPT ── label head ── hub log ── hub checkpoint
    reply ──────────────────────┘

The three messages are sealed. For each the transcript discloses the secret that opens this one message, so
that a verifier needs no reader key and learns nothing else of the stream. A verifier needs the hub_id, and a
witness policy if it does not trust the hub.

A transcript proves what was asked and answered, by which keys, and in which order. It does not prove that
the reply is the first one, which only the whole log shows. It does not prove
the content of the request to a reader who distrusts the client: see ``veen_core.ciphertext.open_with``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from veen_core.ciphertext import Opened
from veen_core.entry import Entry
from veen_core.errors import DecodeError, EvidenceError, VeenError
from veen_core.hub_evidence import HubEvidence, verify_evidence
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.keys import DhKey
from veen_core.msg import Msg, verify_msg
from veen_core.tlog.policy import WitnessPolicy
from veen_core.wire import Wire, int_map
from veen_overlays.rpc.exchange import is_late
from veen_overlays.rpc.records import Reply, Request, ServerLease, is_authentic

KIND: Final = "veen-rpc-transcript"
LIMITS: Final = (
    "that no earlier reply exists: only the whole log shows it",
    "that the request had this content, if client and sender of the transcript conspire",
)
"""What a valid transcript does not prove."""


@int_map("rpc transcript message", section="ADR 0026")
@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage(Wire):
    """One message of a transcript."""

    msg: bytes
    disclosure: bytes
    """The secret that opens this message and no other."""
    evidence: HubEvidence


@int_map("rpc transcript", section="ADR 0026")
@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript(Wire):
    """One call: the server's announcement, the request and the reply."""

    kind: Literal["veen-rpc-transcript"] = KIND
    ver: Literal[1] = 1
    announcement: TranscriptMessage
    request: TranscriptMessage
    reply: TranscriptMessage


def transcript_message(entry: Entry, opened: Opened, evidence: HubEvidence) -> TranscriptMessage:
    """Make a message of a transcript from an entry that its reader has opened."""
    return TranscriptMessage(msg=entry.msg_bytes, disclosure=opened.disclosure, evidence=evidence)


def opened_by(entry: Entry, keys: tuple[DhKey, ...]) -> Opened:
    """Open an entry with the first key that fits; raise the last key's error if none does."""
    for key in keys[:-1]:
        try:
            return entry.msg.open(key)
        except VeenError:
            continue
    return entry.msg.open(keys[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptVerdict:
    """What a valid transcript proves."""

    lease: ServerLease
    request: Request
    reply: Reply
    steps: tuple[str, ...]
    """The steps of the proof in words, each with its clause."""


class _Message:
    """A message whose bytes, signature, receipt and content were verified."""

    def __init__(self, name: str, said: TranscriptMessage) -> None:
        self.name, self.receipt = name, said.evidence.receipt
        msg, leaf = verify_msg(said.msg)
        if leaf != self.receipt.leaf_hash or msg.label != self.receipt.label:
            raise EvidenceError(f"{name}: the receipt is for another message (I2)")
        self.msg: Msg = msg
        try:
            self.opened = msg.open_with(said.disclosure)
        except VeenError as exc:
            raise EvidenceError(f"{name}: the disclosed secret does not open the message: {exc}") from None

    def record(self, shape: type[Any]) -> Any:
        if self.opened.header.schema != shape.SCHEMA:
            raise EvidenceError(f"{self.name}: the schema is not {shape.NAME} (B14)")
        try:
            return shape.decode(self.opened.body)
        except DecodeError as exc:
            raise EvidenceError(f"{self.name}: {exc}") from None


def verify_transcript(
    transcript: Transcript,
    *,
    pinned: HubId | None = None,
    policy: WitnessPolicy | None = None,
    known: HubIdentity | None = None,
) -> TranscriptVerdict:
    """Verify a transcript; raise ``VeenError`` with the step and its clause that fails.

    ``pinned``, ``policy`` and ``known`` mean the same as in ``veen_core.hub_evidence.verify_evidence``.
    Without ``pinned`` the transcript proves something about the hub that it names.
    """
    steps = []
    parts = {
        "the announcement": transcript.announcement,
        "the request": transcript.request,
        "the reply": transcript.reply,
    }
    for name, part in parts.items():
        try:
            found = verify_evidence(part.evidence, pinned=pinned, policy=policy, known=known)
        except VeenError as exc:
            raise EvidenceError(f"{name}: {exc}") from None
        cosigned = f", cosigned by {len(found.cosigned.witnesses)} witnesses" if found.cosigned else ""
        steps.append(f"P1: {name} is entry {found.receipt.stream_seq} in the hub's log{cosigned}")
    announcement, request, reply = (_Message(name, part) for name, part in parts.items())
    steps.append("core §4.2, I2: each message is signed, has its receipt, and opens as disclosed")
    _check_one_label(transcript)
    lease = _check_server(announcement, reply)
    steps.append(f"KEX0.2, P10: {lease.principal_id.hex()} has signed the server's key")
    asked: Request = request.record(Request)
    answer: Reply = reply.record(Reply)
    steps.append(f"RPC0.1, RPC0.2: the request calls {asked.method}, the reply {_outcome(answer)}")
    _check_correlation(request, reply)
    steps.append("P15: the reply's parent_id is the request's MsgID, and its entry comes after it")
    if asked.timeout_ms is not None:
        late = is_late(request.receipt.hub_ts, asked.timeout_ms, reply.receipt.hub_ts)
        steps.append(f"P15: the reply came {'after' if late else 'within'} the deadline")
    return TranscriptVerdict(lease=lease, request=asked, reply=answer, steps=tuple(steps))


def _outcome(reply: Reply) -> str:
    return "reports success" if reply.error is None else f"reports {reply.error.code}"


def _check_one_label(transcript: Transcript) -> None:
    """Announcement and reply are on one label, and all three at one hub."""
    told = (transcript.announcement, transcript.request, transcript.reply)
    if len({each.evidence.identity.hub_id for each in told}) != 1:
        raise EvidenceError("the messages belong to different hubs (P1)")
    if len({each.evidence.receipt.label for each in told}) != 1:
        raise EvidenceError("the messages are on different labels, so their order is not proved (I1)")


def _check_server(announcement: _Message, reply: _Message) -> ServerLease:
    lease: ServerLease = announcement.record(ServerLease)
    if not is_authentic(lease, announcement.msg.client_id):
        raise EvidenceError("the announcement: its principal has not signed the server's key (KEX0.2, P10)")
    if reply.msg.client_id != lease.client_id:
        raise EvidenceError("the reply: it is signed by another key than the announced server's (ADR 0026)")
    if announcement.receipt.stream_seq >= reply.receipt.stream_seq:
        raise EvidenceError("the announcement does not come before the reply (ADR 0026)")
    return lease


def _check_correlation(request: _Message, reply: _Message) -> None:
    if reply.opened.header.parent_id != request.receipt.leaf_hash:
        raise EvidenceError("the reply: its parent_id is not the request's MsgID (RPC0.1, P15)")
    if reply.receipt.stream_seq <= request.receipt.stream_seq:
        raise EvidenceError("the reply does not come after the request (P15)")
