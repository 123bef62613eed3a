"""The hub's decision to accept or refuse: §8.2's table as the code (§8.1, §8.2, RESOLUTIONS).

``STATEFUL`` is the part of the table that needs the label's standing; it runs in the sequencer, in the order
of messages. First failure wins; adding a rule is adding a row. What a message says of itself is judged
before, in ``examination``, and the prefilter's rows where bytes are read, in ``http.submit``.

``ATT_ROOT`` has no row here: the hub never sees a payload header, so it cannot be judged (§4.5, §8.3).
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
from veen_hub.admission.class_rates import Pace, Who
from veen_hub.admission.labels import LabelMap, Place
from veen_hub.admission.policy import AdmissionPolicy, Question
from veen_hub.admission.stateless import Submission
from veen_storage import CapRecord, ClientCursor, Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the configuration decides, and does not change while the hub runs."""

    gating: bool
    issuers: frozenset[bytes]
    bounds: ClientBounds | None
    control_label: Label


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wants to put something beside a label, where that is not a MSG (H17)."""

    label: Label
    client_id: ClientId
    auth_ref: AuthRef | None
    prev_ack: StreamSeq = NO_ENTRIES
    client_seq: ClientSeq = UNUSED


@dataclass(slots=True)  # frozen would cost 3 µs a message, made once and thrown away
class Standing:
    """All that a decision may look at: the message, its label and writer, its token, the time."""

    msg: Submission | Writer
    rules: Rules
    policy: AdmissionPolicy
    question: Question
    hub_ts: UnixTime
    last_seq: int
    client: ClientCursor | None
    cap: CapRecord | None
    issued_at: UnixTime | None
    """Of the token's claims, whatever the length of its chain."""
    token: CapToken | None
    rate: Rate | None
    bucket: Bucket | None
    place: Place


def _primary_allows(at: Standing) -> str | None:
    return at.policy.not_primary(at.question)


def _token_is_known(at: Standing) -> str | None:
    if not at.rules.gating or at.token is not None:
        return None
    if at.msg.auth_ref is None:
        return "this hub asks for a cap token: authorize one and send its auth_ref"
    return "the hub does not know this auth_ref: authorize its token first (/tooling/authorize)"


def _issuer_is_accepted(at: Standing) -> str | None:
    if at.token is None or at.token.issuer_pk in at.rules.issuers:
        return None
    return f"the hub does not accept tokens of issuer {at.token.issuer_pk.hex()}"


def _token_is_the_clients(at: Standing) -> str | None:
    if at.token is None or hmac.compare_digest(at.token.subject_pk, at.msg.client_id):  # SH0.2
        return None
    return "auth_ref names a token of another client_id"


def _nothing_is_revoked(at: Standing) -> str | None:
    return at.policy.revoked(at.question)


def _client_is_within_bounds(at: Standing) -> str | None:
    bounds, client = at.rules.bounds, at.client
    if bounds is None or client is None:
        return None
    if at.hub_ts - client.first_seen > bounds.max_client_id_lifetime_sec:
        return f"client_id is in use since {client.first_seen}: rotate it"
    if client.last_seq >= bounds.max_msgs_per_client_id_per_label:
        return f"client_id has sent {client.last_seq} messages to this label: rotate it"
    return None


def _label_is_in_scope(at: Standing) -> str | None:
    if at.msg.label == at.rules.control_label:  # H5: tokens only, and never pruned; also with gating off
        return "the control label is the hub's own: tokens get there by /tooling/authorize"
    if at.token is None or at.place.stream in at.token.allow.stream_ids:
        return None
    return "the token names no stream that this label belongs to"


def _token_is_alive(at: Standing) -> str | None:
    if at.token is None or at.issued_at is None:
        return None
    expires = at.token.expires_at(at.issued_at)
    return None if at.hub_ts <= expires else f"the token expired at {expires}, it is {at.hub_ts}"


def _is_padded(at: Standing) -> str | None:
    block = at.policy.pad_block(at.question)
    if not block or not isinstance(at.msg, Submission):
        return None
    length = len(Msg.decode(at.msg.wire).ciphertext)
    return f"the label's class pads to {block}, the ciphertext has {length} bytes" if length % block else None


def _rate_allows(at: Standing) -> str | None:
    rate = at.rate
    if rate is None:
        return None
    bucket = (at.bucket or Bucket.full(rate, at.hub_ts)).at(rate, at.hub_ts)
    return None if bucket.allows else f"more than {rate.per_sec}/s with a burst of {rate.burst}"


def _prev_ack_is_behind(at: Standing) -> str | None:
    if at.msg.prev_ack <= at.last_seq:
        return None
    return f"prev_ack {at.msg.prev_ack} is ahead of the stream's {at.last_seq}"


def _client_seq_is_new(at: Standing) -> str | None:
    last = at.client.last_seq if at.client is not None else 0
    return None if at.msg.client_seq > last else f"client_seq {at.msg.client_seq} was accepted before"


def _client_seq_is_next(at: Standing) -> str | None:
    last = at.client.last_seq if at.client is not None else 0
    return (
        None
        if at.msg.client_seq == last + 1
        else f"client_seq {at.msg.client_seq}, the next one is {last + 1}"
    )


def _epoch_is_current(at: Standing) -> str | None:
    return None if at.place.current else "the label's epoch is outside the window of hub_ts"


STATEFUL: Final[tuple[tuple[Rejection, Callable[[Standing], str | None]], ...]] = (
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
"""``CAP_INVALID`` is judged when a token is authorized: no token is kept whose chain does not verify."""


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
"""They ask of label, writer, token and time, which are the same for a writer's messages in one batch."""

MESSAGE_ROWS: Final = tuple(row for row in STATEFUL if row[0] not in WRITER_ROWS)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Before whom a message comes: the state it is judged by."""

    view: Draft
    hub_ts: UnixTime
    rules: Rules
    policy: AdmissionPolicy
    labels: LabelMap
    pace: Pace
    passed: dict[tuple[Label, ClientId, AuthRef | None], Standing] = field(default_factory=dict)
    """Writers of whom a message in this batch passed every row: the next are judged by ``MESSAGE_ROWS``."""

    def _rate(self, msg: Submission | Writer, question: Question) -> tuple[Rate | None, Bucket | None]:
        """The class's rate with its bucket, else the token's with its own."""
        token, own = question.token, None
        rate = token.allow.rate if token is not None else None
        if rate is not None and msg.auth_ref is not None:
            own = self.view.bucket(msg.auth_ref, msg.label)
        if (paced := self.policy.rate(question)) is None:
            return rate, own
        own = own.at(rate, self.hub_ts) if own is not None and rate is not None else None
        return paced, self.pace.bucket(self.who(msg), paced, self.hub_ts, own)

    def who(self, msg: Submission | Writer) -> Who:
        """The writer that a class rate counts: the token's claims, or the client_id without a known token."""
        cap = self.view.cap(msg.auth_ref) if msg.auth_ref is not None else None
        claims = cap.claims_ref if cap is not None else None
        return claims or msg.auth_ref or msg.client_id, msg.label

    def standing(self, msg: Submission | Writer, size: int) -> Standing:
        label = self.view.label(msg.label)
        cap = self.view.cap(msg.auth_ref) if msg.auth_ref is not None else None
        token = cap.token if cap is not None else None
        question = Question(msg.label, msg.client_id, msg.auth_ref, token, size, self.hub_ts)
        rate, bucket = self._rate(msg, question)
        return Standing(
            msg,
            self.rules,
            self.policy,
            question,
            self.hub_ts,
            label.log.size if label is not None else 0,
            self.view.client(msg.label, msg.client_id),
            cap,
            self.view.issued_at(cap) if cap is not None else None,
            token,
            rate,
            bucket,
            self.labels.place(msg.label, self.hub_ts, token.allow.stream_ids if token is not None else ()),
        )

    def next_of(self, before: Standing, msg: Submission) -> Standing:
        """The same writer with its next message."""
        before.msg = msg
        before.question.size = len(msg.wire)
        label = self.view.label(msg.label)
        before.last_seq = label.log.size if label is not None else 0
        before.client = self.view.client(msg.label, msg.client_id)
        before.rate, before.bucket = self._rate(msg, before.question)
        return before


def admit(submission: Submission, hearing: Hearing) -> None:
    """Decide; raise ``AdmissionError`` with the first failing row."""
    writer = (submission.label, submission.client_id, submission.auth_ref)
    if (before := hearing.passed.get(writer)) is not None:
        standing = hearing.next_of(before, submission)
        _judge(MESSAGE_ROWS, standing)
    else:
        standing = hearing.standing(submission, len(submission.wire))
        _judge(STATEFUL, standing)
        if standing.token is not None or submission.auth_ref is None:  # else the token may yet become known
            hearing.passed[writer] = standing
    token = standing.token
    if standing.rate is not None and (token is None or standing.rate is not token.allow.rate):
        assert standing.bucket is not None  # a class's rate comes with its bucket
        hearing.pace.take(hearing.who(submission), standing.rate, standing.bucket)


def admit_writer(writer: Writer, size: int, hearing: Hearing) -> None:
    """The auth stage alone, for what is not a MSG: an attachment's put (H17)."""
    _judge(AUTH_ROWS, hearing.standing(writer, size))


def _judge(rows: tuple[tuple[Rejection, Callable[[Standing], str | None]], ...], standing: Standing) -> None:
    for row, failure in rows:
        if (why := failure(standing)) is not None:
            raise AdmissionError(row, why, retry_after=1 if row is rejection.CAP_RATE else None)
