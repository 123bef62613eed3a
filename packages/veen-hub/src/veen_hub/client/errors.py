"""Errors of the client: refusals by code, missing answers, false answers (§8.2, §9, §10.6).

VeenError
├── Refused          the hub answered no; code, detail_enum, stage, retry_after, request_id
│   ├── BadRequest       E.FORMAT E.BAD_REQUEST E.VERSION E.SIG   the client built the request wrong
│   ├── TooLarge         E.SIZE E.LIMIT
│   ├── Denied           E.AUTH E.UNAUTHORIZED E.FORBIDDEN
│   │   └── CapRefused   E.CAP
│   ├── OutOfTime        E.TIME     the token has expired, or the label's epoch has passed
│   ├── NotFound         E.NOT_FOUND
│   ├── Conflict         E.SEQ E.CONFLICT
│   ├── RateLimited      E.RATE         retried by the client
│   └── Unavailable      E.UNAVAILABLE  retried by the client
├── Unreachable      no answer: network, TLS, timeout
├── VerificationError
│   ├── Misbehaved       the answer does not fit the question
│   ├── Unconfirmed      a QuorumError: no quorum of witnesses covered the messages in time
│   └── Diverged         a DivergenceError; carries evidence where two receipts contradict each other
└── StateError       the client cannot take this step
    ├── BoundsReached    the client_id that a token names has reached its bounds (KEX1+ 4.1)
    └── TooMuchWork      the hub asks for more proof of work than allowed (SH1+ 5.2)

Each error carries the next step for the user as ``action``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veen_core.api import ErrorEnvelope
from veen_core.equivocation import Equivocation
from veen_core.errors import DivergenceError, QuorumError, StateError, VeenError, VerificationError
from veen_core.hub_fork import HubLogFork, LabelFork
from veen_core.ids import ClientId, StreamSeq
from veen_core.receipt import Receipt
from veen_core.rejection import Code

ACTIONS: Final = {
    "CAP_MISSING": "authorize a token for this client_id and stream first (hub.authorize), or name it (cap=)",
    "CAP_ISSUER": "ask an issuer that the hub accepts for a token",
    "CAP_SCOPE": "ask for a token that names this stream",
    "CAP_TTL": "ask for a new token",
    "AUTH_REF": "ask for a token for the client_id that stream.client_id() returns",
    "REVOKED": "ask the issuer why it was revoked; a new client_id needs a new token",
    "CLIENT_BOUNDS": "rotate the client_id (stream.rotate)",
    "PREFILTER_REJECT": "ask the hub's operator whether the hub serves this address",
    "EPOCH": "read the hub's time again (hub.status)",
}
"""The next step for the user, by detail_enum (§8.2)."""


class Refused(VeenError):  # noqa: N818 - a refusal is an answer, not a failure
    """The hub answered no (§8.2, §10.6).

    ``hub_message`` is the hub's own text. ``stream_seq`` is the first entry that can be read again, if the
    refusal concerns an entry whose payload was pruned.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        detail_enum: str | None = None,
        stage: str | None = None,
        retry_after: int | None = None,
        request_id: str | None = None,
        stream_seq: StreamSeq | None = None,
        action: str | None = None,
    ) -> None:
        name = f"{code.value} / {detail_enum}" if detail_enum else code.value
        super().__init__(f"{name}: {message}", action=action or ACTIONS.get(detail_enum or ""))
        self.code = code
        self.detail_enum = detail_enum
        self.stage = stage
        self.hub_message = message
        self.retry_after = retry_after
        self.request_id = request_id
        self.stream_seq = stream_seq

    def with_message(self, message: str, *, action: str | None = None) -> Refused:
        """Copy the refusal with another message and, if given, another action."""
        return type(self)(
            self.code,
            message,
            detail_enum=self.detail_enum,
            stage=self.stage,
            retry_after=self.retry_after,
            request_id=self.request_id,
            stream_seq=self.stream_seq,
            action=action or self.action,
        )


class BadRequest(Refused):
    """The request was malformed, wrongly signed, or of another version."""


class TooLarge(Refused):
    """The request exceeds a size or another limit (§14)."""


class Denied(Refused):
    """The credentials do not allow this request."""


class CapRefused(Denied):
    """The cap token is missing, unknown, out of scope, revoked or exhausted (§6)."""


class OutOfTime(Refused):
    """The token has expired, or the label's epoch has passed (§6, §12)."""


class NotFound(Refused):
    """The hub has no such label, entry, checkpoint or attachment."""


class Conflict(Refused):
    """The request is out of order: a duplicate, a wrong client_seq, a prev_ack that is too high."""


class RateLimited(Refused):
    """The client sends too fast; ``retry_after`` is the time to wait, in seconds."""


class Unavailable(Refused):
    """The hub cannot serve the request now; ``retry_after`` is the time to wait, in seconds."""


_KINDS: Final[dict[Code, type[Refused]]] = {
    Code.FORMAT: BadRequest,
    Code.BAD_REQUEST: BadRequest,
    Code.VERSION: BadRequest,
    Code.SIG: BadRequest,
    Code.SIZE: TooLarge,
    Code.LIMIT: TooLarge,
    Code.AUTH: Denied,
    Code.UNAUTHORIZED: Denied,
    Code.FORBIDDEN: Denied,
    Code.CAP: CapRefused,
    Code.TIME: OutOfTime,
    Code.NOT_FOUND: NotFound,
    Code.SEQ: Conflict,
    Code.CONFLICT: Conflict,
    Code.RATE: RateLimited,
    Code.UNAVAILABLE: Unavailable,
}


def refusal(envelope: ErrorEnvelope) -> Refused:
    """Convert an error envelope into the exception of its code."""
    code, detail = Code(envelope.code), envelope.detail
    return _KINDS[code](
        code,
        envelope.message,
        detail_enum=detail.detail_enum if detail is not None else None,
        stage=detail.stage if detail is not None else None,
        retry_after=envelope.retry_after,
        request_id=envelope.request_id,
        stream_seq=detail.stream_seq if detail is not None else None,
    )


class Unreachable(VeenError):  # noqa: N818 - a state of the network, named as one
    """No answer came. ``retryable`` is False if a retry cannot help: a bad certificate or address."""

    def __init__(self, message: str, *, retryable: bool = True, action: str | None = None) -> None:
        super().__init__(message, action=action)
        self.retryable = retryable


IF_SILENT: Final = {
    "h3": "check that the hub has `h3` in hub.yaml and that UDP reaches it, or use https://",
    "file": "wait until the link has brought the reply: the request stays in the folder",
}
"""The next step if a hub does not answer, by the scheme of its address."""


class Misbehaved(VerificationError):  # noqa: N818 - what the hub did
    """The hub's answer does not fit the question: another range, a gap, bytes that are no envelope."""


class Diverged(DivergenceError):  # noqa: N818 - what the hub did
    """The hub contradicts what it signed before (§9 Resync, spec-1 §14).

    ``equivocation`` is evidence that convicts the hub, if two of its receipts contradict each other; ``fork``
    is such evidence if a hub checkpoint is one of the two statements (P1). ``folder`` is the folder in the
    client's state where all of these were saved; None if the client keeps no files, or could not write them.
    """

    def __init__(
        self,
        message: str,
        *,
        held: bytes = b"",
        shown: bytes = b"",
        equivocation: Equivocation | None = None,
        fork: HubLogFork | LabelFork | None = None,
        folder: Path | None = None,
        unsaved: str | None = None,
    ) -> None:
        super().__init__(message, held=held, shown=shown)
        self.equivocation = equivocation
        self.fork = fork
        self.folder = folder
        if folder is not None:
            kept = f"keep the evidence in {folder} (`veen inspect {shlex.quote(str(folder))}/*` shows it)"
        else:
            why = f" ({unsaved})" if unsaved is not None else ""
            kept = f"save the evidence that this error carries, it is not on disk{why}"
        self.action = f"stop using this hub and {kept}"


class Unconfirmed(QuorumError):  # noqa: N818 - a state of messages that are in the log
    """No quorum of witnesses covered the messages in time (P2). They are in the log: do not send them again.

    ``receipts`` are those of the messages, or of the last message of each label if many were sent.
    """

    def __init__(self, receipts: Sequence[Receipt], seconds: float, why: str) -> None:
        last = receipts[-1]
        super().__init__(
            f"message {last.stream_seq} of label {last.label.hex()[:16]}… is in the hub's log, but no quorum "
            f"of witnesses confirmed it in {seconds:g} s: {why}",
            action="do not send it again; read the stream later to see whether it is confirmed, and ask the "
            "hub's operator whether its witnesses run (`veen witness status`)",
        )
        self.receipts = tuple(receipts)


class BoundsReached(StateError):  # noqa: N818 - a state of the client_id
    """The client_id that a token names may sign no more messages (KEX1+ 4.1)."""

    def __init__(self, client_id: ClientId) -> None:
        super().__init__(
            f"client_id {client_id.hex()} has reached its bounds (KEX1+ 4.1), and the token names no other",
            action="call stream.rotate() and ask for a token for the client_id that it returns",
        )
        self.client_id = client_id


class TooMuchWork(StateError):  # noqa: N818 - what the hub asks for
    """The hub asks for more proof of work than allowed; the message stays pending (SH1+ 5.2)."""
