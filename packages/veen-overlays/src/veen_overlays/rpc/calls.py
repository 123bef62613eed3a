"""The calls of a stream as an overlay: each request and what became of it (RPC0.1 to RPC0.3, P15).

| state | meaning |
|---|---|
| open | no reply counts yet |
| answered | the first reply that counts reports success |
| failed | the first reply that counts reports an error |
| expired | no reply counts, and the deadline has passed at the hub_ts of the newest record |

A reply counts if its signer has announced itself as a server earlier in the log (``rpc.server.v1``); with
``calls_of`` only the servers of given principals count. A request without a reply of its own has the first
answer to another request with the same ``(method, client_id, idem)``. A request that names a parent is a copy
of that message, as everywhere (core §11.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from veen_core.hashing import H
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.rpc.exchange import binds, is_late
from veen_overlays.rpc.records import Reply, Request, ServerLease, Take, call_key, is_authentic


class Asked(NamedTuple):
    """A request."""

    seq: int
    client_id: bytes
    method: str
    idem: int | None
    key: bytes
    hub_ts: int
    timeout_ms: int | None
    reply_to: bytes | None


class Answered(NamedTuple):
    """The first reply of one signer to a request."""

    seq: int
    hub_ts: int
    code: str | None
    """The error code; None for success."""
    digest: bytes
    """Hash of the reply's body."""


class Exchanges(NamedTuple):
    """What a range says about one MsgID: its request, and the first reply of each signer."""

    request: Asked | None = None
    replies: Mapping[bytes, Answered] = {}


class Announced(NamedTuple):
    """A server in a range: its first announcement and its last one."""

    first_seq: int
    principal: bytes
    methods: tuple[str, ...]
    until: int


_FIRST_REPLY: Final[Monoid[Answered]] = Monoid(
    Answered(0, 0, None, b""), lambda a, _b: a, list, lambda item: Answered(*item)
)
_REPLIES: Final = map_of(_FIRST_REPLY)
_EXCHANGES: Final[Monoid[Exchanges]] = Monoid(
    Exchanges(),
    lambda a, b: Exchanges(a.request or b.request, _REPLIES.combine(a.replies, b.replies)),
    lambda each: [None if each.request is None else list(each.request), _REPLIES.dump(each.replies)],
    lambda item: Exchanges(None if item[0] is None else Asked(*item[0]), _REPLIES.load(item[1])),
)
_SERVER: Final[Monoid[Announced]] = Monoid(
    Announced(0, b"", (), 0),  # the map never holds an empty one
    lambda a, b: b._replace(first_seq=a.first_seq),
    lambda each: [each.first_seq, each.principal, list(each.methods), each.until],
    lambda item: Announced(item[0], item[1], tuple(item[2]), item[3]),
)
_LATEST: Final[Monoid[int]] = Monoid(0, max, lambda value: value, lambda item: item)

CallState = Mapping[str, Any]
"""``exchanges`` by MsgID of the request, ``servers`` by client_id, ``now`` the newest hub_ts."""


def _lift(event: Event) -> CallState:
    found: dict[str, Any] = {"now": event.hub_ts}
    record, client = event.record, event.client_id or b""
    if isinstance(record, Request):
        found["exchanges"] = {event.origin: Exchanges(_asked(event, record, client))}
    elif isinstance(record, Reply):
        code = None if record.error is None else record.error.code
        reply = Answered(event.seq, event.hub_ts, code, H(record.encode()))
        found["exchanges"] = {event.origin: Exchanges(None, {client: reply})}
    elif isinstance(record, ServerLease) and is_authentic(record, event.client_id):
        until = event.hub_ts + record.lease_sec
        found["servers"] = {client: Announced(event.seq, bytes(record.principal_id), record.methods, until)}
    return found


def _asked(event: Event, request: Request, client: bytes) -> Asked:
    return Asked(
        seq=event.seq,
        client_id=client,
        method=request.method,
        idem=request.idem,
        key=bytes(call_key(request.method, client, request.idem, event.origin)),
        hub_ts=event.hub_ts,
        timeout_ms=request.timeout_ms,
        reply_to=None if request.reply_to is None else bytes(request.reply_to),
    )


class _Reader:
    """The replies that count, for readers who trust these principals; None trusts all."""

    def __init__(self, state: CallState, trusted: frozenset[bytes] | None) -> None:
        self._servers: Mapping[bytes, Announced] = state.get("servers", {})
        self._trusted = trusted
        self.now: int = state.get("now", 0)
        self.asked: list[tuple[Asked, bytes, Answered | None, bytes]] = []
        self._by_key: dict[bytes, tuple[Answered, bytes]] = {}
        for origin, exchanges in state.get("exchanges", {}).items():
            if exchanges.request is not None:
                reply, signer = self._first(exchanges.replies)
                self.asked.append((exchanges.request, origin, reply, signer))
                if reply is not None and binds(reply.code):
                    known = self._by_key.get(exchanges.request.key)
                    if known is None or reply.seq < known[0].seq:
                        self._by_key[exchanges.request.key] = reply, signer
        self.asked.sort(key=lambda each: each[0].seq)

    def _first(self, replies: Mapping[bytes, Answered]) -> tuple[Answered | None, bytes]:
        counted = [(r.seq, signer) for signer, r in replies.items() if self._counts(signer, r.seq)]
        if not counted:
            return None, b""
        signer = min(counted)[1]
        return replies[signer], signer

    def _counts(self, signer: bytes, seq: int) -> bool:
        server = self._servers.get(signer)
        if server is None or server.first_seq >= seq:
            return False
        return self._trusted is None or server.principal in self._trusted

    def row(self, asked: Asked, origin: bytes, reply: Answered | None, signer: bytes) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "request": origin,
            "seq": asked.seq,
            "client_id": asked.client_id,
            "method": asked.method,
            "hub_ts": asked.hub_ts,
        }
        if asked.idem is not None:
            shown["idem"] = asked.idem
        if asked.timeout_ms is not None:
            shown["timeout_ms"] = asked.timeout_ms
        if asked.reply_to is not None:
            shown["reply_to"] = asked.reply_to
        if reply is None and (same := self._by_key.get(asked.key)) is not None:
            reply, signer = same
        if reply is None:
            late = is_late(asked.hub_ts, asked.timeout_ms, self.now)
            return {**shown, "state": "expired" if late else "open"}
        shown["state"] = "answered" if reply.code is None else "failed"
        shown |= {"reply_seq": reply.seq, "reply_hub_ts": reply.hub_ts, "reply_hash": reply.digest}
        shown["server"] = self._servers[signer].principal
        return shown if reply.code is None else {**shown, "code": reply.code}


def _view(trusted: frozenset[bytes] | None) -> Callable[[CallState], Any]:
    def view(state: CallState) -> list[dict[str, Any]]:
        reader = _Reader(state, trusted)
        return [reader.row(*each) for each in reader.asked]

    return view


COLUMNS: Final = {
    "request": ColumnType.BYTES,
    "seq": ColumnType.UINT,
    "client_id": ColumnType.BYTES,
    "method": ColumnType.TEXT,
    "idem": ColumnType.UINT,
    "hub_ts": ColumnType.UINT,
    "timeout_ms": ColumnType.UINT,
    "reply_to": ColumnType.BYTES,
    "state": ColumnType.TEXT,
    "reply_seq": ColumnType.UINT,
    "reply_hub_ts": ColumnType.UINT,
    "reply_hash": ColumnType.BYTES,
    "server": ColumnType.BYTES,
    "code": ColumnType.TEXT,
}


def calls_of(principals: Iterable[bytes] | None) -> Overlay[CallState]:
    """The overlay for readers who trust the servers of these principals only; None trusts all announced."""
    trusted = None if principals is None else frozenset(bytes(each) for each in principals)
    return Overlay(
        name="rpc.calls",
        title="The requests of a stream and their replies: open, answered, failed or expired (RPC0).",
        schemas=(Request, Reply, ServerLease, Take),
        monoid=product(exchanges=map_of(_EXCHANGES), servers=map_of(_SERVER), now=_LATEST),
        lift=_lift,
        view=_view(trusted),
        reads_signer=True,
        reads_time=True,
        scope=b"" if trusted is None else b"".join(sorted(trusted)),
        table=table_of_maps(COLUMNS),
    )


def server_rows(state: CallState) -> list[dict[str, Any]]:
    """The announced servers of a stream, in the order of their client_ids."""
    now, servers = state.get("now", 0), state.get("servers", {})
    return [
        {
            "client_id": client,
            "principal_id": servers[client].principal,
            "methods": list(servers[client].methods),
            "until": servers[client].until,
            "alive": now < servers[client].until,
        }
        for client in sorted(servers)
    ]


CALLS: Final = calls_of(None)
