"""The calls of a stream as an overlay: each request and what became of it (RPC0.1 to RPC0.3, P15).

| status | meaning |
|---|---|
| open | no reply counts yet |
| answered | the first reply that counts reports success |
| failed | the first reply that counts reports an error |
| expired | no reply counts, and the deadline has passed at the hub_ts of the newest record |

A reply counts if its signer has announced itself as a server earlier in the log (``rpc.server.v1``); with
``calls_of`` only announcements of given principals count. If several principals announce one client_id, the
first one stays. A request without a reply of its own has the first
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
    """A reply."""

    seq: int
    hub_ts: int
    code: str | None
    """The error code; None for success."""
    digest: bytes
    """Hash of the reply's body."""


class Exchanges(NamedTuple):
    """The request with one MsgID and its replies, as far as they lie in a range."""

    request: Asked | None = None
    replies: Mapping[bytes, tuple[Answered, ...]] = {}
    """By signer, in stream order: which of them count depends on announcements in other ranges."""


class Announced(NamedTuple):
    """A client_id that a principal announces: the first announcement of a range, and the last one."""

    first_seq: int
    methods: tuple[str, ...]
    until: int


_REPLIES: Final[Monoid[Mapping[bytes, tuple[Answered, ...]]]] = map_of(
    Monoid(
        (),
        lambda a, b: a + b,
        lambda replies: [list(each) for each in replies],
        lambda item: tuple(Answered(*each) for each in item),
    )
)
_EXCHANGES: Final[Monoid[Exchanges]] = Monoid(
    Exchanges(),
    lambda a, b: Exchanges(a.request or b.request, _REPLIES.combine(a.replies, b.replies)),
    lambda each: [None if each.request is None else list(each.request), _REPLIES.dump(each.replies)],
    lambda item: Exchanges(None if item[0] is None else Asked(*item[0]), _REPLIES.load(item[1])),
)
_SERVER: Final[Monoid[Announced]] = Monoid(
    Announced(0, (), 0),  # the unit; ``map_of`` never stores it
    lambda a, b: b._replace(first_seq=a.first_seq),
    lambda each: [each.first_seq, list(each.methods), each.until],
    lambda item: Announced(item[0], tuple(item[1]), item[2]),
)
_LATEST: Final[Monoid[int]] = Monoid(0, max, lambda value: value, lambda item: item)

CallState = Mapping[str, Any]
"""``exchanges`` by MsgID of the request, ``servers`` by client_id || principal, ``now`` the newest hub_ts."""


def _lift(event: Event) -> CallState:
    found: dict[str, Any] = {"now": event.hub_ts}
    record, client = event.record, event.client_id or b""
    if isinstance(record, Request):
        found["exchanges"] = {event.origin: Exchanges(_asked(event, record, client))}
    elif isinstance(record, Reply):
        code = None if record.error is None else record.error.code
        reply = Answered(event.seq, event.hub_ts, code, H(record.encode()))
        found["exchanges"] = {event.origin: Exchanges(None, {client: (reply,)})}
    elif isinstance(record, ServerLease) and is_authentic(record, event.client_id):
        until = event.hub_ts + record.lease_sec
        found["servers"] = {client + record.principal_id: Announced(event.seq, record.methods, until)}
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


def _links(state: CallState, trusted: frozenset[bytes] | None) -> dict[bytes, tuple[int, bytes]]:
    """For each server's client_id: the first trusted principal that announced it, and where."""
    linked: dict[bytes, tuple[int, bytes]] = {}
    for key, server in state.get("servers", {}).items():
        client, principal = key[:32], key[32:]
        if trusted is None or principal in trusted:
            linked[client] = min(
                (server.first_seq, principal), linked.get(client, (server.first_seq, principal))
            )
    return linked


class _Reader:
    """The replies that count, for readers who trust these principals; None trusts all."""

    def __init__(self, state: CallState, trusted: frozenset[bytes] | None) -> None:
        self._linked = _links(state, trusted)
        self.now: int = state.get("now", 0)
        self.asked: list[tuple[Asked, bytes, Answered | None, bytes]] = []
        self._by_key: dict[bytes, tuple[Answered, bytes]] = {}
        for origin, exchanges in state.get("exchanges", {}).items():
            if exchanges.request is not None:
                reply, server = self._first(exchanges.replies)
                self.asked.append((exchanges.request, origin, reply, server))
                if reply is not None and binds(reply.code):
                    known = self._by_key.get(exchanges.request.key)
                    if known is None or reply.seq < known[0].seq:
                        self._by_key[exchanges.request.key] = reply, server
        self.asked.sort(key=lambda each: each[0].seq)

    def _first(self, replies: Mapping[bytes, tuple[Answered, ...]]) -> tuple[Answered | None, bytes]:
        """The first reply that counts, and the principal of its server."""
        counted = [
            (each.seq, each, self._linked[signer][1])
            for signer, made in replies.items()
            for each in made
            if signer in self._linked and self._linked[signer][0] < each.seq
        ]
        return min(counted)[1:] if counted else (None, b"")

    def row(self, asked: Asked, origin: bytes, reply: Answered | None, server: bytes) -> dict[str, Any]:
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
            reply, server = same
        if reply is None:
            late = is_late(asked.hub_ts, asked.timeout_ms, self.now)
            return {**shown, "status": "expired" if late else "open"}
        shown["status"] = "answered" if reply.code is None else "failed"
        shown |= {"reply_seq": reply.seq, "reply_hub_ts": reply.hub_ts, "reply_hash": reply.digest}
        shown["server"] = server
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
    "status": ColumnType.TEXT,
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


def server_rows(state: CallState, now: int) -> list[dict[str, Any]]:
    """The announced servers of a stream, in the order of their client_ids, and whether each is alive."""
    servers: Mapping[bytes, Announced] = state.get("servers", {})
    return [
        {
            "client_id": key[:32],
            "principal_id": key[32:],
            "methods": list(servers[key].methods),
            "until": servers[key].until,
            "alive": now < servers[key].until,
        }
        for key in sorted(servers)
    ]


CALLS: Final = calls_of(None)
