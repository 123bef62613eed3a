"""The hub's status, and the envelopes of its tooling endpoints (§8.4, §12, H4, H5, H13, H19, H20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veen_core.checkpoint import Checkpoint
from veen_core.handover import Handover
from veen_core.hashing import H, Ht, u64be
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, ClientId, Coid, Epoch, HubId, Label, Signature, UnixTime, VerifyKey
from veen_core.limits import Limits
from veen_core.pow import PowSalt
from veen_core.profile import Profile
from veen_core.receipt import Receipt
from veen_core.wire import Wire, int_map


@int_map("status", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Wire):
    """The answer of ``GET /v1/status``: everything a client needs before its first message."""

    ver: Literal[1] = 1
    identity: HubIdentity
    identity_sig: Signature
    profile: Profile
    limits: Limits
    hub_ts: UnixTime
    epoch: Epoch
    control_label: Label
    gating: bool
    enforces: tuple[str, ...]
    cannot_enforce: tuple[str, ...]
    """The rules that the hub cannot check, so that clients must (§6, H4)."""
    pow_salt: PowSalt
    pow_difficulty: int
    max_page_items: int
    level: str
    server_version: str
    hub_log_origin: str | None = None
    """The configured name of the hub log; absent: the default name of P1."""
    memories: tuple[str, ...] | None = None
    """Names of the memories that the hub compares its log with before it signs (P3); absent without
    memories."""
    not_signing: str | None = None
    """The reason why the hub signs nothing now, and the next step; absent if it signs (P3)."""
    replica_of: str | None = None
    """Address of the primary, if this hub is a replica (P9); absent otherwise."""
    handover: Handover | None = None
    """The handover to a successor, after which the hub signs nothing (P9); absent before."""


@int_map("authorize response", section="H5")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizeResponse(Wire):
    """The record of an authorized token; the hub_ts of its receipt is its issued_at."""

    ver: Literal[1] = 1
    auth_ref: AuthRef
    expires_at: UnixTime
    receipt: Receipt
    server_version: str | None = None


@int_map("cap status", section="H5")
@dataclass(frozen=True, slots=True, kw_only=True)
class CapStatus(Wire):
    """The hub's record of the token of an auth_ref."""

    ver: Literal[1] = 1
    auth_ref: AuthRef
    issued_at: UnixTime
    known: bool
    """Whether the hub has the token; if False, the fields below are absent."""
    expires_at: UnixTime | None = None
    issuer_pk: VerifyKey | None = None
    subject_pk: ClientId | None = None
    server_version: str | None = None


@int_map("label request", section="H19")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequest(Wire):
    """The label that a tooling call is about; if absent, all labels."""

    ver: Literal[1] = 1
    label: Label | None = None


@int_map("checkpoints response", section="H19")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsResponse(Wire):
    """The checkpoints that a tooling call made or anchored."""

    ver: Literal[1] = 1
    checkpoints: tuple[Checkpoint, ...]
    server_version: str | None = None


@int_map("handover request", section="RESOLUTIONS P9")
@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverRequest(Wire):
    """The successor of a hub that ends: hub_id, and address or an empty string."""

    ver: Literal[1] = 1
    new_hub: HubId
    url: str


@int_map("retention response", section="COMP0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionResponse(Wire):
    """The number of chunks and entries whose payloads were pruned."""

    ver: Literal[1] = 1
    chunks: int
    entries: int
    server_version: str | None = None


@int_map("ok response", section="spec-1 §16")
@dataclass(frozen=True, slots=True, kw_only=True)
class OkResponse(Wire):
    """The answer of a call that has no other result."""

    ver: Literal[1] = 1
    ok: bool
    server_version: str | None = None


@int_map("attachment response", section="H17")
@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentResponse(Wire):
    """Confirms that an attachment is durable; ``stored`` is False if the hub had it before."""

    ver: Literal[1] = 1
    coid: Coid
    stored: bool
    server_version: str | None = None


MAX_ADMIN_AGE = 60
"""Seconds for which a signed tooling request is valid (H19)."""


def admin_digest(hub_id: HubId, method: str, path: str, body: bytes, hub_ts: UnixTime) -> bytes:
    """Return the digest that ``VEEN-Admin-Sig`` signs: one request to one hub at one time (H19, ADR 0003)."""
    return Ht("veen/tooling", hub_id + method.encode() + path.encode() + H(body) + u64be(hub_ts))


def attachment_digest(label: Label, coid: Coid, auth_ref: AuthRef | None) -> bytes:
    """Return the digest that ``VEEN-Sig`` signs when an attachment is uploaded (H17)."""
    return Ht("veen/att-put", label + coid + (auth_ref if auth_ref is not None else bytes(AuthRef.SIZE)))
