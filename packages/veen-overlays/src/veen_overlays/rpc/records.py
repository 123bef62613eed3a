"""Records of RPC0: requests, replies, and the announcements and takes of servers (spec-1 §24, P15).

A request is correlated with its reply by ``parent_id``: the reply names the MsgID of the request (RPC0.1).
``rpc.server.v1`` and ``rpc.take.v1`` are additions of this project (ADR 0026). A server announces itself for
a lease, so that readers know whose replies count and whether a server is alive. A server takes over a call
whose server has died; it also writes a take before it runs a method that must not run twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from veen_core import cbor
from veen_core.hashing import Ht
from veen_core.ids import ClientId, FixedBytes, Signature, StreamId
from veen_core.keys import SigningKey
from veen_core.wire import Wire, text_map
from veen_overlays.recorder.attribution import links
from veen_overlays.recorder.records import KeyContinuity, sign_continuity
from veen_overlays.schema.record import Record, RecordRule, record

MAX_LEASE_SEC: Final = 300
"""Longest lease of a server, in seconds. A server that has died counts as live until its lease ends."""


class CallKey(FixedBytes):
    """The identity of a call, which all requests with one idempotency key share (RPC0.3)."""

    __slots__ = ()


def call_key(method: str, client_id: bytes, idem: int | None, request: bytes) -> CallKey:
    """The key of ``(method, client_id, idem)``; without an idempotency key, every request is a call (RPC0.3).

    ``request`` is the MsgID of the request.
    """
    unique: int | bytes = request if idem is None else idem
    return CallKey(Ht("veen/rpc-call", cbor.encode([method, client_id, unique])))


@record("rpc.v1", section="RPC0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """Ask for a call of a method."""

    method: str
    args: Any
    timeout_ms: int | None = None
    """The deadline is the hub_ts of the request plus this; a later request is not executed (P15)."""
    reply_to: StreamId | None = None
    """The stream that the reply goes to; by default the stream of the request (P15)."""
    idem: int | None = None
    """The client's idempotency key (RPC0.3)."""


@text_map("rpc.res.v1 error", section="RPC0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody(Wire):
    """Why a call failed."""

    code: str
    detail: str | None = None


@record(
    "rpc.res.v1",
    section="RPC0.2",
    rules=(
        RecordRule(
            "result is present if ok is true, and only then", lambda r: r.ok == (r.result is not None)
        ),
        RecordRule("error is present if ok is false, and only then", lambda r: r.ok == (r.error is None)),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Record):
    """Answer the request that ``parent_id`` names."""

    ok: bool
    result: Any | None = None
    error: ErrorBody | None = None


@record(
    "rpc.server.v1",
    section="ADR 0026",
    rules=(
        RecordRule("methods are sorted and unique", lambda r: list(r.methods) == sorted(set(r.methods))),
        RecordRule(f"lease_sec is at most {MAX_LEASE_SEC}", lambda r: r.lease_sec <= MAX_LEASE_SEC),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLease(Record):
    """Announce a server until ``hub_ts + lease_sec``; ``lease_sec`` 0 withdraws it."""

    principal_id: ClientId
    """The identity key of the operator, which clients know."""
    client_id: ClientId
    """The key that signs the server's messages; the record counts only in a message of this key."""
    methods: tuple[str, ...]
    lease_sec: int
    sig: Signature
    """Signature of ``principal_id``, as in ``record.continuity.v1`` (KEX0.2, P10)."""
    replaces: ClientId | None = None
    """The client_id that this server used before (KEX1+ 4.1): its calls move to the new one."""


def sign_lease(
    principal: SigningKey,
    client: ClientId,
    methods: tuple[str, ...],
    lease_sec: int,
    replaces: ClientId | None = None,
) -> ServerLease:
    """Return the announcement of a server that writes as ``client``."""
    link = sign_continuity(principal, client)
    return ServerLease(
        principal_id=link.principal_id,
        client_id=client,
        methods=tuple(sorted(set(methods))),
        lease_sec=lease_sec,
        sig=link.sig,
        replaces=replaces,
    )


def is_authentic(lease: ServerLease, client_id: bytes | None) -> bool:
    """Return whether the client_id that signed the message is the server that its principal has signed."""
    link = KeyContinuity(principal_id=lease.principal_id, client_id=lease.client_id, sig=lease.sig)
    return links(link, client_id)


@record("rpc.take.v1", section="ADR 0026")
@dataclass(frozen=True, slots=True, kw_only=True)
class Take(Record):
    """Take a call that no live server holds, or note that its method is about to run."""

    call: CallKey
