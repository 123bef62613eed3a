"""Vectors of client_state, pow_cookie and limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core.client_state import ClientState, RatchetKey
from veen_core.errors import DecodeError, VerificationError
from veen_core.ids import ClientId, ClientSeq, StreamSeq
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.pow import PowCookie, challenge, pow_salt, solve, verify_cookie, work_of

from . import cast
from .case import Bad, Context, Good, Object, decoded, read, readable, unhex
from .crooked import encode

# --- client_state

LOG = cast.log()
FRESH = ClientState(
    label=cast.LABEL,
    profile_id=cast.BULK.profile_id,
    client_id=ClientId(cast.CLIENT.public),
    created_at=cast.BORN,
    rk=RatchetKey(bytes([0x81]) * 32),
)
USED = dataclasses.replace(
    FRESH,
    client_seq=ClientSeq(8),
    last_stream_seq=StreamSeq(7),
    peaks=LOG.tree(7).peaks,
    head=LOG.receipts[6],
    checkpointed=StreamSeq(4),
    pending=(LOG.msgs[7].encode(),),
    stalls=2,
    rk=FRESH.rk.after(StreamSeq(7)),
)
CLIENT_STATE = Object(
    name="client_state",
    judge=decoded(ClientState),
    wire=ClientState,
    good=(Good("used", USED.encode()), Good("fresh", FRESH.encode())),
    bad=(
        Bad(
            "head_cut",
            encode(cbor2.loads(USED.encode()) | {9: [1]}),
            DecodeError,
            "RECEIPT (core §4.3): want array of 7",
        ),
        Bad(
            "peak_short",
            encode(cbor2.loads(USED.encode()) | {8: [b""]}),
            DecodeError,
            "[0]: want NodeHash of 32",
        ),
        Bad(
            "pending_text",
            encode(cbor2.loads(USED.encode()) | {11: ["x"]}),
            DecodeError,
            "[0]: want bstr, found",
        ),
    ),
)


# --- pow_cookie


def judge_cookie(wire: bytes, context: Context) -> Any:
    cookie = read(PowCookie, wire)
    verify_cookie(cookie, unhex(context, "challenge"), context["difficulty"])
    return readable(cookie) | {"work": work_of(cookie.challenge, cookie.nonce)}


CHALLENGE = challenge(pow_salt(cast.HUB_ID, cast.BORN), LOG.msgs[0].encode())
COOKIE = solve(CHALLENGE, 8)
ASKED = {"challenge": CHALLENGE.hex(), "difficulty": 8}
LAZY = next(n for n in range(COOKIE.nonce + 1, 2**16) if work_of(CHALLENGE, n) < 8)
ANY_NONCE = PowCookie(challenge=CHALLENGE, nonce=0, difficulty=0)
POW_COOKIE = Object(
    name="pow_cookie",
    judge=judge_cookie,
    wire=PowCookie,
    good=(
        Good("eight_bits", COOKIE.encode(), ASKED),
        Good("more_than_asked", COOKIE.encode(), ASKED | {"difficulty": 4}),
        Good("nothing_asked", ANY_NONCE.encode(), ASKED | {"difficulty": 0}),
    ),
    bad=(
        Bad(
            "other_challenge",
            COOKIE.encode(),
            VerificationError,
            "challenge (SH1+ 5.2)",
            ASKED | {"challenge": ""},
        ),
        Bad(
            "less_than_asked",
            COOKIE.encode(),
            VerificationError,
            "8, but the hub requires 9",
            ASKED | {"difficulty": 9},
        ),
        Bad(
            "work_not_done",
            dataclasses.replace(COOKIE, nonce=LAZY).encode(),
            VerificationError,
            "pow_cookie.nonce (SH1+ 5.2): does not reach the claimed difficulty",
            ASKED,
        ),
        Bad(
            "difficulty_beyond_a_byte",
            dataclasses.replace(COOKIE, difficulty=256).encode(),
            VerificationError,
            "256 is not a uint8",
            ASKED,
        ),
        Bad(
            "work_overstated",
            dataclasses.replace(COOKIE, difficulty=255).encode(),
            VerificationError,
            "does not reach the claimed difficulty",
            ASKED,
        ),
    ),
)


# --- limits: well-formed, yet refused, because a deployment may only lower them (§14.1)


def _limits(**changes: int) -> bytes:
    keys = {field.name: key for key, field in enumerate(dataclasses.fields(Limits), start=1)}
    return encode(
        cbor2.loads(DEFAULT_LIMITS.encode()) | {keys[name]: value for name, value in changes.items()}
    )


LIMITS = Object(
    name="limits",
    judge=decoded(Limits),
    wire=Limits,
    good=(
        Good("default", DEFAULT_LIMITS.encode()),
        Good("lowered", DEFAULT_LIMITS.lowered({"max_msg_bytes": 65_536, "max_epoch_skew_sec": 0}).encode()),
    ),
    bad=tuple(
        Bad(name, _limits(**changes), DecodeError, match)
        for name, changes, match in (
            ("raised", {"max_msg_bytes": 1_048_577}, "limits may only be lowered (core §14.1)"),
            ("skew_raised", {"max_epoch_skew_sec": 61}, "max_epoch_skew_sec = 61 is above the maximum 60"),
            ("zero", {"max_body_bytes": 0}, "max_body_bytes must be an integer of at least 1"),
            (
                "chunk_too_small",
                {"max_chunk_bytes": 1_048_576},
                "is too small for one entry of max_msg_bytes",
            ),
        )
    ),
)
OBJECTS = (CLIENT_STATE, POW_COOKIE, LIMITS)
