"""What a client may run into beyond core's errors: refusals by code, silence, and lies (§8.2, §10.6, §9).

VeenError
├── Refused          the hub says no; code, detail_enum, stage, retry_after, request_id
│   ├── BadRequest       E.FORMAT E.BAD_REQUEST E.VERSION E.SIG   this side built it wrong
│   ├── TooLarge         E.SIZE E.LIMIT
│   ├── Denied           E.AUTH E.UNAUTHORIZED E.FORBIDDEN
│   │   └── CapRefused   E.CAP
│   ├── OutOfTime        E.TIME     a token's ttl, or a label's epoch
│   ├── NotFound         E.NOT_FOUND
│   ├── Conflict         E.SEQ E.CONFLICT
│   ├── RateLimited      E.RATE         worth another try
│   └── Unavailable      E.UNAVAILABLE  worth another try
├── Unreachable      no answer: network, TLS, timeout
├── VerificationError
│   ├── Misbehaved       the answer is not one to the question asked
│   └── Diverged         DivergenceError with an Equivocation where two receipts contradict
└── StateError       this side cannot take the step, and says which one it can
    ├── BoundsReached    the client_id that a token names is used up (KEX1+ 4.1)
    └── TooMuchWork      the proof of work that the hub asks for (SH1+ 5.2)
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from veen_core.api import ErrorEnvelope
from veen_core.equivocation import Equivocation
from veen_core.errors import DivergenceError, StateError, VeenError, VerificationError
from veen_core.ids import ClientId, StreamSeq
from veen_core.rejection import Code

HINTS: Final = {
    "CAP_MISSING": "authorize a token for this client_id and stream first (hub.authorize), or name it (cap=)",
    "CAP_ISSUER": "ask for a token of an issuer that the hub accepts",
    "CAP_SCOPE": "ask for a token that names this stream",
    "CAP_TTL": "ask for a new token",
    "AUTH_REF": "a token serves one client_id: ask for one for this stream's client_id()",
    "REVOKED": "ask whoever revoked it; a new client_id needs a new token",
    "CLIENT_BOUNDS": "rotate client_id",
    "PREFILTER_REJECT": "the hub asks for proof of work, or does not serve this address",
    "EPOCH": "read the hub's time again (hub.status)",
}
"""What to do, by detail enum (§8.2)."""


class Refused(VeenError):  # noqa: N818 - a refusal is an answer, not a failure
    """The hub's answer is no (§8.2, §10.6)."""

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
    ) -> None:
        name = f"{code.value} / {detail_enum}" if detail_enum else code.value
        hint = HINTS.get(detail_enum or "")
        super().__init__(f"{name}: {message}" + (f" ({hint})" if hint else ""))
        self.code = code
        self.detail_enum = detail_enum
        self.stage = stage
        self.hub_message = message
        self.retry_after = retry_after
        self.request_id = request_id
        self.stream_seq = stream_seq
        """Where entries can be read again, of one whose payload was pruned."""

    def saying(self, message: str) -> Refused:
        """The same refusal in other words."""
        return type(self)(
            self.code,
            message,
            detail_enum=self.detail_enum,
            stage=self.stage,
            retry_after=self.retry_after,
            request_id=self.request_id,
            stream_seq=self.stream_seq,
        )


class BadRequest(Refused):
    """The request was not well-formed, not signed right, or of another version."""


class TooLarge(Refused):
    """A size or limit is exceeded (§14)."""


class Denied(Refused):
    """Not with these credentials."""


class CapRefused(Denied):
    """The cap token is missing, unknown, out of scope, revoked or worn out (§6)."""


class OutOfTime(Refused):
    """A token has expired, or a label's epoch has passed (§6, §12)."""


class NotFound(Refused):
    """The hub has no such label, entry, checkpoint or attachment."""


class Conflict(Refused):
    """Out of order: duplicate, not the next client_seq, prev_ack ahead, request repeated."""


class RateLimited(Refused):
    """Too fast; ``retry_after`` says when."""


class Unavailable(Refused):
    """The hub cannot do it now; ``retry_after`` says when."""


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
    """An error envelope as the exception of its code."""
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
    """No answer came. ``retryable`` is False where another try cannot help (a certificate, an address)."""

    def __init__(self, message: str, *, retryable: bool = True, action: str | None = None) -> None:
        super().__init__(message, action=action)
        self.retryable = retryable


class Misbehaved(VerificationError):  # noqa: N818 - what the hub did
    """The hub's answer is not one to the question: another range, a hole, bytes that are no envelope."""


class Diverged(DivergenceError):  # noqa: N818 - what the hub did
    """The hub contradicts what it signed before (§9 Resync, spec-1 §14).

    ``equivocation`` is evidence that convicts the hub, if two of its receipts contradict each other.
    ``folder`` is the folder in the client's state where ``held``, ``shown`` and ``equivocation`` were saved;
    None if the client keeps no files, or could not write them.
    """

    def __init__(
        self,
        message: str,
        *,
        held: bytes = b"",
        shown: bytes = b"",
        equivocation: Equivocation | None = None,
        folder: Path | None = None,
        unsaved: str | None = None,
    ) -> None:
        super().__init__(message, held=held, shown=shown)
        self.equivocation = equivocation
        self.folder = folder
        if folder is not None:
            kept = f"keep the evidence in {folder} (`veen inspect {shlex.quote(str(folder))}/*` shows it)"
        else:
            why = f" ({unsaved})" if unsaved is not None else ""
            kept = f"save the evidence that this error carries, it is not on disk{why}"
        self.action = f"stop using this hub and {kept}"


class BoundsReached(StateError):  # noqa: N818 - a state of the client_id
    """The client_id that a token names may sign no more (KEX1+ 4.1)."""

    def __init__(self, client_id: ClientId) -> None:
        super().__init__(
            f"client_id {client_id.hex()} has reached its bounds (KEX1+ 4.1), and the token names no other",
            action="call stream.rotate() and ask for a token for the client_id that it returns",
        )
        self.client_id = client_id


class TooMuchWork(StateError):  # noqa: N818 - what the hub asks for
    """More proof of work than this side does; the message stays pending (SH1+ 5.2)."""
