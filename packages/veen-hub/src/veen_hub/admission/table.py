"""The stateful half of the admission table (§8.1, §8.2, RESOLUTIONS): rows in order, first failure wins.

``STATEFUL`` runs in the sequencer, in the order of messages. Adding a rule is adding a row. ``stateless``
holds the rows that need only the message, and ``api.submit`` those of the prefilter.

``ATT_ROOT`` has no row: the hub never sees a payload header (§4.5, §8.3).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from veen_core import rejection
from veen_core.cap import CapToken, Rate
from veen_core.client_state import UNUSED, ClientBounds
from veen_core.errors import AdmissionError
from veen_core.ids import (
    NO_ENTRIES,
    AuthRef,
    ClientId,
    ClientSeq,
    Label,
    StreamSeq,
    UnixTime,
)
from veen_core.msg import Msg
from veen_core.rate import Bucket
from veen_core.rejection import Rejection
from veen_core.utc import format_utc
from veen_hub.admission.class_rates import ClassRates, RateKey
from veen_hub.admission.labels import LabelInfo, LabelMap
from veen_hub.admission.policy import AdmissionPolicy, AdmissionQuestion, GrantedToken, GrantingPolicy
from veen_hub.admission.stateless import Submission
from veen_storage import ClientCursor, Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """Admission settings that do not change while the hub runs."""

    gating: bool
    issuers: frozenset[bytes]
    bounds: ClientBounds | None
    control_label: Label


@dataclass(frozen=True, slots=True)
class AttachmentWriter:
    """A client that puts an attachment for a label: the auth stage without a MSG (H17)."""

    label: Label
    client_id: ClientId
    auth_ref: AuthRef | None
    prev_ack: StreamSeq = NO_ENTRIES
    client_seq: ClientSeq = UNUSED


@dataclass(slots=True)  # frozen would cost 3 µs a message
class AdmissionInput:
    """Everything a row may look at: the message, its label, its writer, its token and the time."""

    msg: Submission | AttachmentWriter
    rules: AdmissionSettings
    policy: AdmissionPolicy
    question: AdmissionQuestion
    hub_ts: UnixTime
    last_seq: int
    client: ClientCursor | None
    issued_at: UnixTime | None
    """When the token's claims were first authorized or used."""
    token: CapToken | None
    rate: Rate | None
    bucket: Bucket | None
    label_info: LabelInfo


def _primary_allows(at: AdmissionInput) -> str | None:
    return at.policy.not_primary(at.question)


def _token_is_known(at: AdmissionInput) -> str | None:
    if not at.rules.gating or at.token is not None:
        return None
    if at.msg.auth_ref is None:
        return "this hub requires a cap token, and the message has no auth_ref"
    return "the hub does not know this auth_ref: authorize its token first (/tooling/authorize)"


def _issuer_is_accepted(at: AdmissionInput) -> str | None:
    if at.token is None or at.token.issuer_pk in at.rules.issuers:
        return None
    return f"this hub does not accept tokens of issuer {at.token.issuer_pk.hex()}"


def _token_is_the_clients(at: AdmissionInput) -> str | None:
    if at.token is None or hmac.compare_digest(at.token.subject_pk, at.msg.client_id):  # SH0.2
        return None
    return "auth_ref names a token of another client_id"


def _nothing_is_revoked(at: AdmissionInput) -> str | None:
    return at.policy.revoked(at.question)


def _client_is_within_bounds(at: AdmissionInput) -> str | None:
    bounds, client = at.rules.bounds, at.client
    if bounds is None or client is None:
        return None
    if at.hub_ts - client.first_seen > bounds.max_client_id_lifetime_sec:
        return f"client_id has been in use since {format_utc(client.first_seen)}: rotate it"
    if client.last_seq >= bounds.max_msgs_per_client_id_per_label:
        return f"client_id has sent {client.last_seq} messages to this label: rotate it"
    return None


def _label_is_in_scope(at: AdmissionInput) -> str | None:
    if at.msg.label == at.rules.control_label:  # H5: tokens only, and never pruned; also with gating off
        return "only the hub writes to the control label: send tokens to /tooling/authorize"
    if at.token is None or at.label_info.stream in at.token.allow.stream_ids:
        return None
    return "the label belongs to no stream that the token names"


def _token_is_alive(at: AdmissionInput) -> str | None:
    if at.token is None or at.issued_at is None:
        return None
    expires = at.token.expires_at(at.issued_at)
    if at.hub_ts <= expires:
        return None
    return f"the token expired at {format_utc(expires)}; the hub's time is {format_utc(at.hub_ts)}"


def _is_padded(at: AdmissionInput) -> str | None:
    block = at.policy.pad_block(at.question)
    if not block or not isinstance(at.msg, Submission):
        return None
    length = len(Msg.decode(at.msg.wire).ciphertext)
    if length % block:
        return f"the ciphertext has {length} bytes; the label's class requires a multiple of {block}"
    return None


def _rate_allows(at: AdmissionInput) -> str | None:
    rate = at.rate
    if rate is None:
        return None
    bucket = (at.bucket or Bucket.full(rate, at.hub_ts)).at(rate, at.hub_ts)
    return (
        None
        if bucket.allows
        else f"the writer exceeds {rate.per_sec} messages/s with a burst of {rate.burst}"
    )


def _prev_ack_is_behind(at: AdmissionInput) -> str | None:
    if at.msg.prev_ack <= at.last_seq:
        return None
    return f"prev_ack {at.msg.prev_ack} is ahead of the label's last entry {at.last_seq}"


def _client_seq_is_new(at: AdmissionInput) -> str | None:
    last = at.client.last_seq if at.client is not None else 0
    return None if at.msg.client_seq > last else f"client_seq {at.msg.client_seq} was accepted before"


def _client_seq_is_next(at: AdmissionInput) -> str | None:
    last = at.client.last_seq if at.client is not None else 0
    return (
        None
        if at.msg.client_seq == last + 1
        else f"client_seq {at.msg.client_seq} is out of order: the next one is {last + 1}"
    )


def _epoch_is_current(at: AdmissionInput) -> str | None:
    return None if at.label_info.current else "the label's epoch is outside the window around hub_ts"


STATEFUL: Final[tuple[tuple[Rejection, Callable[[AdmissionInput], str | None]], ...]] = (
    (rejection.NOT_PRIMARY, _primary_allows),
    (rejection.CAP_MISSING, _token_is_known),
    (rejection.CAP_ISSUER, _issuer_is_accepted),
    (rejection.AUTH_REF, _token_is_the_clients),
    (rejection.REVOKED, _nothing_is_revoked),
    (rejection.CLIENT_BOUNDS, _client_is_within_bounds),
    (rejection.CAP_SCOPE, _label_is_in_scope),
    (rejection.CAP_TTL, _token_is_alive),
    (rejection.PADDING, _is_padded),
    (rejection.CAP_RATE, _rate_allows),
    (rejection.PREV_ACK, _prev_ack_is_behind),
    (rejection.DUPLICATE, _client_seq_is_new),
    (rejection.CLIENT_SEQ, _client_seq_is_next),
    (rejection.EPOCH, _epoch_is_current),
)
"""``CAP_INVALID`` is checked when a token is authorized; only tokens that verify are kept."""


AUTH_ROWS: Final = tuple(row for row in STATEFUL if row[0].stage is rejection.Stage.AUTH)

WRITER_ROWS: Final = frozenset(
    {
        rejection.NOT_PRIMARY,
        rejection.CAP_MISSING,
        rejection.CAP_ISSUER,
        rejection.AUTH_REF,
        rejection.REVOKED,
        rejection.CAP_SCOPE,
        rejection.CAP_TTL,
        rejection.EPOCH,
    }
)
"""Rows that look only at label, writer, token and time: one result for a writer's messages in one batch."""

MESSAGE_ROWS: Final = tuple(row for row in STATEFUL if row[0] not in WRITER_ROWS)


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The state that messages of one batch are admitted against."""

    view: Draft
    hub_ts: UnixTime
    rules: AdmissionSettings
    policy: AdmissionPolicy
    labels: LabelMap
    class_rates: ClassRates
    passed: dict[tuple[Label, ClientId, AuthRef | None], AdmissionInput] = field(default_factory=dict)
    """Inputs of writers whose message passed every row; their next messages need ``MESSAGE_ROWS`` only."""

    def _rate(
        self, msg: Submission | AttachmentWriter, question: AdmissionQuestion
    ) -> tuple[Rate | None, Bucket | None]:
        """Return the class's rate and bucket, or else the token's."""
        token, own = question.token, None
        rate = token.allow.rate if token is not None else None
        if rate is not None and msg.auth_ref is not None:
            own = self.view.bucket(msg.auth_ref, msg.label)
        class_rate = self.policy.rate(question)
        if class_rate is None and question.granted and rate is not None:
            return rate, self._grant_bucket(msg, rate)
        if class_rate is None:
            return rate, own
        own = own.at(rate, self.hub_ts) if own is not None and rate is not None else None
        return class_rate, self.class_rates.bucket(self.rate_key(msg), class_rate, self.hub_ts, own)

    def _grant_bucket(self, msg: Submission | AttachmentWriter, rate: Rate) -> Bucket:
        """The bucket of a granted token: the log's buckets know only authorized tokens."""
        assert msg.auth_ref is not None
        grant = self._grant_of(msg.auth_ref)
        _token, issued_at = grant if grant is not None else (None, UnixTime(0))
        return self.class_rates.grant_bucket(self.rate_key(msg), rate, self.hub_ts, issued_at)

    def rate_key(self, msg: Submission | AttachmentWriter) -> RateKey:
        """The writer that a class rate counts: the token's claims, or the client_id without a known token."""
        cap = self.view.cap(msg.auth_ref) if msg.auth_ref is not None else None
        claims = cap.claims_ref if cap is not None else None
        return claims or msg.auth_ref or msg.client_id, msg.label

    def input_of(self, msg: Submission | AttachmentWriter, size: int) -> AdmissionInput:
        """Collect what the rows look at."""
        label = self.view.label(msg.label)
        cap = self.view.cap(msg.auth_ref) if msg.auth_ref is not None else None
        token = cap.token if cap is not None else None
        issued_at = self.view.issued_at(cap) if cap is not None else None
        grant = self._grant_of(msg.auth_ref) if token is None and msg.auth_ref is not None else None
        if grant is not None:
            token, issued_at = grant
        question = AdmissionQuestion(
            msg.label, msg.client_id, msg.auth_ref, token, size, self.hub_ts, granted=grant is not None
        )
        rate, bucket = self._rate(msg, question)
        streams = token.allow.stream_ids if token is not None else ()
        return AdmissionInput(
            msg,
            self.rules,
            self.policy,
            question,
            self.hub_ts,
            label.log.size if label is not None else 0,
            self.view.client(msg.label, msg.client_id),
            issued_at,
            token,
            rate,
            bucket,
            self.labels.look_up(msg.label, self.hub_ts, streams),
        )

    def _grant_of(self, auth_ref: AuthRef) -> GrantedToken | None:
        if not isinstance(self.policy, GrantingPolicy):
            return None
        return self.policy.granted(auth_ref, self.hub_ts)

    def next_input(self, before: AdmissionInput, msg: Submission) -> AdmissionInput:
        """Update the input of a writer's last message for its next one."""
        before.msg = msg
        before.question.size = len(msg.wire)
        label = self.view.label(msg.label)
        before.last_seq = label.log.size if label is not None else 0
        before.client = self.view.client(msg.label, msg.client_id)
        before.rate, before.bucket = self._rate(msg, before.question)
        return before


def admit(submission: Submission, context: BatchContext) -> None:
    """Admit a message, or raise ``AdmissionError`` with the first failing row."""
    writer = (submission.label, submission.client_id, submission.auth_ref)
    if (before := context.passed.get(writer)) is not None:
        inputs = context.next_input(before, submission)
        _check(MESSAGE_ROWS, inputs)
    else:
        inputs = context.input_of(submission, len(submission.wire))
        _check(STATEFUL, inputs)
        # Not cached while the token is unknown: it may be authorized before the writer's next message.
        if inputs.token is not None or submission.auth_ref is None:
            context.passed[writer] = inputs
    token = inputs.token
    of_policy = token is None or inputs.question.granted or inputs.rate is not token.allow.rate
    if inputs.rate is not None and of_policy:
        assert inputs.bucket is not None  # a class's rate comes with its bucket
        context.class_rates.take(context.rate_key(submission), inputs.rate, inputs.bucket)


def admit_writer(writer: AttachmentWriter, size: int, context: BatchContext) -> bytes:
    """Run the auth stage alone, for an attachment (H17); return the key that its quota is counted under."""
    _check(AUTH_ROWS, context.input_of(writer, size))
    return context.rate_key(writer)[0]


def _check(
    rows: tuple[tuple[Rejection, Callable[[AdmissionInput], str | None]], ...], inputs: AdmissionInput
) -> None:
    for row, failure in rows:
        if (why := failure(inputs)) is not None:
            raise AdmissionError(row, why, retry_after=1 if row is rejection.CAP_RATE else None)
