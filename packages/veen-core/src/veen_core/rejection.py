"""The admission table as data: codes, stages and detail enums (§8.2, §10.6, RESOLUTIONS H1).

``TABLE`` lists every row in the order of evaluation: by the stages of §8.1, then in the order of the
table in §8.2, with the rows that RESOLUTIONS adds. The hub evaluates the conditions; a row says
which error the client gets when its condition fails.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Code(enum.StrEnum):
    """The canonical error codes: those of §8.2 for admission, those of §10.6 for other errors (H1)."""

    FORMAT = "E.FORMAT"
    SIZE = "E.SIZE"
    SIG = "E.SIG"
    CAP = "E.CAP"
    AUTH = "E.AUTH"
    RATE = "E.RATE"
    SEQ = "E.SEQ"
    TIME = "E.TIME"
    BAD_REQUEST = "E.BAD_REQUEST"
    UNAUTHORIZED = "E.UNAUTHORIZED"
    FORBIDDEN = "E.FORBIDDEN"
    NOT_FOUND = "E.NOT_FOUND"
    CONFLICT = "E.CONFLICT"
    LIMIT = "E.LIMIT"
    UNAVAILABLE = "E.UNAVAILABLE"
    VERSION = "E.VERSION"


HTTP_STATUS: Final[dict[Code, int]] = {
    Code.FORMAT: 400,
    Code.TIME: 400,
    Code.BAD_REQUEST: 400,
    Code.VERSION: 400,
    Code.UNAUTHORIZED: 401,
    Code.CAP: 403,
    Code.AUTH: 403,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.SIG: 409,
    Code.SEQ: 409,
    Code.CONFLICT: 409,
    Code.SIZE: 413,
    Code.LIMIT: 413,
    Code.RATE: 429,
    Code.UNAVAILABLE: 503,
}
"""The HTTP status of each code (RESOLUTIONS H1)."""


class Stage(enum.StrEnum):
    """The admission stages, in the order of the pipeline (§8.1)."""

    PREFILTER = "prefilter"
    STRUCTURAL = "structural"
    AUTH = "auth"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Rejection:
    """One row of the admission table (§8.2)."""

    stage: Stage
    code: Code
    detail: str
    means: str


_P, _S, _A, _C = Stage.PREFILTER, Stage.STRUCTURAL, Stage.AUTH, Stage.COMMIT

SIZE_PREFILTER: Final = Rejection(_P, Code.SIZE, "SIZE_PREFILTER", "size caps exceeded")
PREFILTER_REJECT: Final = Rejection(
    _P, Code.AUTH, "PREFILTER_REJECT", "stateless policy reject, e.g. proof of work"
)
CBOR_INVALID: Final = Rejection(
    _S, Code.FORMAT, "CBOR_INVALID", "non-canonical or invalid CBOR, unknown fields"
)
FIELD_SIZE: Final = Rejection(_S, Code.SIZE, "FIELD_SIZE", "field length or size invalid")
VERSION: Final = Rejection(_S, Code.FORMAT, "VERSION", "ver unsupported")
PROFILE: Final = Rejection(_S, Code.FORMAT, "PROFILE", "profile_id unsupported")
CT_HASH: Final = Rejection(_S, Code.FORMAT, "CT_HASH", "H(ciphertext) is not ct_hash")
ATT_ROOT: Final = Rejection(_S, Code.FORMAT, "ATT_ROOT", "att_root does not match")
SIG_INVALID: Final = Rejection(_A, Code.SIG, "SIG_INVALID", "MSG.sig invalid")
NOT_PRIMARY: Final = Rejection(
    _A, Code.AUTH, "NOT_PRIMARY", "this hub is not the label's primary (AUTH1, H6)"
)
CAP_MISSING: Final = Rejection(_A, Code.CAP, "CAP_MISSING", "cap token missing or unknown")
CAP_INVALID: Final = Rejection(_A, Code.CAP, "CAP_INVALID", "cap token signature chain invalid")
CAP_ISSUER: Final = Rejection(_A, Code.CAP, "CAP_ISSUER", "the hub does not accept this issuer (H18)")
AUTH_REF: Final = Rejection(_A, Code.AUTH, "AUTH_REF", "auth_ref is not bound to this client")
REVOKED: Final = Rejection(_A, Code.CAP, "REVOKED", "client_id, auth_ref or token is revoked (KEX1+, H6)")
CLIENT_BOUNDS: Final = Rejection(
    _A, Code.CAP, "CLIENT_BOUNDS", "client_id used beyond its bounds (KEX1+ 4.1)"
)
CAP_SCOPE: Final = Rejection(
    _A, Code.CAP, "CAP_SCOPE", "the label belongs to no stream that the token names (H4)"
)
CAP_TTL: Final = Rejection(_A, Code.TIME, "CAP_TTL", "cap token ttl expired")
PADDING: Final = Rejection(
    _A, Code.SIZE, "PADDING", "ciphertext is not padded as the label's class requires (LCLASS0 6.2, H6)"
)
CAP_RATE: Final = Rejection(_A, Code.RATE, "CAP_RATE", "rate limit exceeded")
PREV_ACK: Final = Rejection(_C, Code.SEQ, "PREV_ACK", "prev_ack regressed or is ahead of the stream (I6)")
DUPLICATE: Final = Rejection(
    _C, Code.SEQ, "DUPLICATE", "(label, client_id, client_seq) was accepted before (I8)"
)
CLIENT_SEQ: Final = Rejection(_C, Code.SEQ, "CLIENT_SEQ", "client_seq is not the next one (I9)")
EPOCH: Final = Rejection(_C, Code.TIME, "EPOCH", "label's epoch is outside the skew window (I12)")

TABLE: Final[tuple[Rejection, ...]] = (
    SIZE_PREFILTER,
    PREFILTER_REJECT,
    CBOR_INVALID,
    FIELD_SIZE,
    VERSION,
    PROFILE,
    CT_HASH,
    ATT_ROOT,
    SIG_INVALID,
    NOT_PRIMARY,
    CAP_MISSING,
    CAP_INVALID,
    CAP_ISSUER,
    AUTH_REF,
    REVOKED,
    CLIENT_BOUNDS,
    CAP_SCOPE,
    CAP_TTL,
    PADDING,
    CAP_RATE,
    PREV_ACK,
    DUPLICATE,
    CLIENT_SEQ,
    EPOCH,
)
"""Every row, in the order of evaluation; the first that fails is reported."""
