"""Transcripts of calls (``.veenr``): verify them without a hub, and show their content (RPC0.1, ADR 0026)."""

from __future__ import annotations

from veen_cli.evidence.hub_log import is_pinned, names_hub
from veen_cli.evidence.verdicts import Undecided
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.msg import Msg
from veen_core.tlog.policy import WitnessPolicy
from veen_overlays.fold.overlay import in_json
from veen_overlays.rpc.records import Reply, Request, ServerLease
from veen_overlays.rpc.transcript import LIMITS, Transcript, TranscriptMessage, verify_transcript


def identities(transcript: Transcript) -> list[HubIdentity]:
    """The hub identities in a transcript."""
    told = (transcript.announcement, transcript.request, transcript.reply)
    return [each.evidence.identity for each in told]


def verify_rpc_transcript(
    transcript: Transcript, pin: HubId | None, known: HubIdentity | None, policy: WitnessPolicy | None
) -> tuple[str, list[str]]:
    """Verify a transcript; return what it proves, and each step with its clause.

    ``known`` is the identity of the pinned hub, as far as it is known. Without a pin the verdict is
    undecided, unless the policy names the hub's log.
    """
    identity = transcript.reply.evidence.identity
    if pin is not None:
        for each in identities(transcript):
            if not is_pinned(each, pin):
                raise VerificationError(f"the hub is {each.hub_id.hex()}, but {pin.hex()} is pinned")
    hub_id = known.hub_id if known is not None else None
    verdict = verify_transcript(transcript, pinned=hub_id, policy=policy, known=known)
    if pin is None and not names_hub(policy, identity, transcript.reply.evidence.signed_head.head.origin):
        raise Undecided(
            f"verifies for hub {identity.hub_id.hex()}: give --trust with this id, if that is the hub "
            "you mean"
        )
    outcome = "success" if verdict.reply.error is None else verdict.reply.error.code
    why = (
        f"the server of {verdict.lease.principal_id.hex()[:16]}… answered {verdict.request.method} "
        f"with {outcome}"
    )
    return why, [*verdict.steps, *(f"not proved: {each}" for each in LIMITS)]


def transcript_fields(transcript: Transcript) -> dict[str, object]:
    """Return the content of a transcript for ``veen inspect``; nothing is verified."""
    return {
        "hub": transcript.reply.evidence.identity.hub_id,
        "announcement": _content(transcript.announcement, ServerLease),
        "request": _content(transcript.request, Request),
        "reply": _content(transcript.reply, Reply),
    }


def _content(said: TranscriptMessage, shape: type[ServerLease | Request | Reply]) -> dict[str, object]:
    receipt = said.evidence.receipt
    shown: dict[str, object] = {"stream_seq": receipt.stream_seq, "hub_ts": receipt.hub_ts}
    try:
        msg = Msg.decode(said.msg)
        record = shape.decode(msg.open_with(said.disclosure).body)
    except VeenError as exc:
        return {**shown, "unreadable": str(exc)}
    body = {f.key: getattr(record, f.name) for f in record.codec.fields}
    held = {str(name): value for name, value in body.items() if value is not None}
    if isinstance(record, Reply) and record.error is not None:
        held["error"] = {"code": record.error.code, "detail": record.error.detail}
    if isinstance(record, ServerLease):
        held["methods"] = list(record.methods)
    return {**shown, "client_id": msg.client_id.hex(), **in_json(held)}
