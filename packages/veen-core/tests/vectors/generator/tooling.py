"""Vectors of the status and of tooling answers, in CBOR and JSON (§12, H5, H17, H19)."""

from __future__ import annotations

import dataclasses

import cbor2

from veen_core import status, stream
from veen_core.entry import authorize_leaf
from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.hub_identity import sign_identity
from veen_core.ids import ClientId, Coid, Epoch, MmrRoot
from veen_core.limits import DEFAULT_LIMITS
from veen_core.pow import pow_salt

from . import cast
from .api import AT, BY, CHECKPOINT, envelope
from .case import Bad
from .crooked import encode

IDENTITY = cast.rotated_identity()
CONTROL = stream.control_label(cast.ROUTING_KEY)
TOKEN = cast.token()
LEAF = authorize_leaf(TOKEN.auth_ref, TOKEN.encode())
RECEIPT = cast.receipt(1, LEAF, MmrRoot(LEAF), label=CONTROL)
UNTIL = TOKEN.expires_at(RECEIPT.hub_ts)
STATUS = status.Status(
    identity=IDENTITY,
    identity_sig=sign_identity(cast.NEXT_HUB, IDENTITY),
    profile=cast.ROTATING,
    limits=DEFAULT_LIMITS,
    hub_ts=cast.BORN,
    epoch=Epoch(cast.BORN // 60),
    control_label=CONTROL,
    gating=True,
    enforces=("CAP_SCOPE", "EPOCH"),
    cannot_enforce=("REVOKED",),
    pow_salt=pow_salt(cast.HUB_ID, cast.BORN),
    pow_difficulty=8,
    max_page_items=1_000,
    level="default",
    server_version="0.0.1",
)
TRUST = {
    "hub_log_origin": "hub.example/log",
    "memories": ("witness witness.example/w1", "heads file /mnt/heads"),
    "not_signing": "the hub is behind",
}
"""Keys that a hub adds if its configuration or its memories say so (P1, P3)."""
COID = Coid(H(b"attachment"))


def _status(**changes: object) -> bytes:
    keys = {field.name: field.key for field in STATUS.codec.fields}
    return encode(cbor2.loads(STATUS.encode()) | {keys[name]: value for name, value in changes.items()})


OBJECTS = (
    envelope(
        "status",
        status.Status,
        Bad("gating_1", _status(gating=1), DecodeError, "status.gating (core §12): want bool, found int 1"),
        Bad(
            "enforces_bytes",
            _status(enforces=[b""]),
            DecodeError,
            "status.enforces (core §12): [0]: want tstr",
        ),
        Bad("identity_empty", _status(identity={}), DecodeError, "hub-identity.ver (core §8.4): missing"),
        Bad("limits_null", _status(limits=None), DecodeError, "LIMITS (core §14.1): want map, found null"),
        Bad("memories_null", _status(memories=None), DecodeError, "status.memories (core §12): want array"),
        full=dataclasses.replace(STATUS, **TRUST),
        bare=STATUS,
    ),
    envelope(
        "authorize_response",
        status.AuthorizeResponse,
        Bad(
            "receipt_cut",
            encode({1: 1, 2: TOKEN.auth_ref, 3: UNTIL, 4: [1]}),
            DecodeError,
            "RECEIPT (core §4.3): want array of 7",
        ),
        full=status.AuthorizeResponse(auth_ref=TOKEN.auth_ref, expires_at=UNTIL, receipt=RECEIPT, **BY),
        bare=status.AuthorizeResponse(auth_ref=TOKEN.auth_ref, expires_at=UNTIL, receipt=RECEIPT),
    ),
    envelope(
        "cap_status",
        status.CapStatus,
        Bad(
            "known_1",
            encode({1: 1, 2: TOKEN.auth_ref, 3: cast.BORN, 4: 1}),
            DecodeError,
            "want bool, found int 1",
        ),
        full=status.CapStatus(
            auth_ref=TOKEN.auth_ref,
            issued_at=RECEIPT.hub_ts,
            known=True,
            expires_at=UNTIL,
            issuer_pk=TOKEN.issuer_pk,
            subject_pk=ClientId(TOKEN.subject_pk),
            **BY,
        ),
        only_seen=status.CapStatus(auth_ref=TOKEN.auth_ref, issued_at=RECEIPT.hub_ts, known=False),
    ),
    envelope(
        "label_request",
        status.LabelRequest,
        one=status.LabelRequest(**AT),
        all_labels=status.LabelRequest(),
    ),
    envelope(
        "checkpoints_response",
        status.CheckpointsResponse,
        Bad(
            "not_a_checkpoint",
            encode({1: 1, 2: [[1]]}),
            DecodeError,
            "[0]: CHECKPOINT (core §4.4): want array of 8, found array of 1",
        ),
        full=status.CheckpointsResponse(checkpoints=(CHECKPOINT,), **BY),
        none=status.CheckpointsResponse(checkpoints=()),
    ),
    envelope(
        "retention_response",
        status.RetentionResponse,
        full=status.RetentionResponse(chunks=2, entries=8_192, **BY),
        nothing=status.RetentionResponse(chunks=0, entries=0),
    ),
    envelope(
        "ok_response",
        status.OkResponse,
        Bad("ok_1", encode({1: 1, 2: 1}), DecodeError, "ok response.ok (spec-1 §16): want bool, found int 1"),
        full=status.OkResponse(ok=True, **BY),
        bare=status.OkResponse(ok=False),
    ),
    envelope(
        "attachment_response",
        status.AttachmentResponse,
        full=status.AttachmentResponse(coid=COID, stored=True, **BY),
        there_before=status.AttachmentResponse(coid=COID, stored=False),
    ),
)
