"""Logs of calls for tests, and a plain interpreter of the calls fold."""

from __future__ import annotations

import random
from typing import Any

from veen_core.hashing import H, u64be
from veen_core.ids import ClientId
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.fold.event import Message
from veen_overlays.rpc.exchange import NOT_EXECUTED
from veen_overlays.rpc.records import ErrorBody, Reply, Request, ServerLease, Take, call_key, sign_lease
from veen_overlays.schema.record import Record, decode_record

OPERATORS = [SigningKey(SigningSeed(bytes([n]) * 32)) for n in (1, 2)]
CLIENTS = [bytes([n]) * 32 for n in range(10, 15)]


def message(seq: int, record: Record, client: bytes, hub_ts: int, parent: bytes | None = None) -> Message:
    return Message(seq, H(b"rpc" + u64be(seq)), bytes(record.SCHEMA), record.encode(), parent, client, hub_ts)


def random_log(seed: int, size: int = 60) -> list[Message]:
    """Requests, replies and announcements of honest and dishonest writers, and broken bodies."""
    rng, found, now = random.Random(seed), list[Message](), 1_000
    for seq in range(1, size + 1):
        now += rng.choice((0, 0, 1, 5))
        client = rng.choice(CLIENTS)
        asked = [m for m in found if m.schema == Request.SCHEMA] or None
        match rng.randrange(8):
            case 0 | 1 | 2:
                record: Record = Request(
                    method=rng.choice("ab"),
                    args=seq,
                    timeout_ms=rng.choice((None, 0, 2_000, 60_000)),
                    idem=rng.choice((None, 1, 2)),
                )
                found.append(message(seq, record, client, now))
            case 3 | 4 if asked:
                ok = rng.random() < 0.6
                code = rng.choice(("rpc.deadline", "app.no"))
                record = Reply(ok=True, result=seq) if ok else Reply(ok=False, error=ErrorBody(code=code))
                found.append(message(seq, record, client, now, rng.choice(asked).msg_id))
            case 5:
                signer = client if rng.random() < 0.8 else rng.choice(CLIENTS)
                methods = tuple(rng.sample(("a", "b"), rng.randrange(3)))
                lease = sign_lease(rng.choice(OPERATORS), ClientId(signer), methods, rng.choice((0, 3, 30)))
                found.append(message(seq, lease, client, now))
            case 6:
                found.append(message(seq, Take(call=call_key("a", client, 1, b"")), client, now))
            case _:
                schema = bytes(rng.choice((Request, Reply, ServerLease)).SCHEMA)
                found.append(Message(seq, H(b"rpc" + u64be(seq)), schema, b"\xa0", None, client, now))
    return found


def interpret(log: list[Message], trusted: set[bytes] | None = None) -> list[dict[str, Any]]:
    """The calls of a log, by the text of ADR 0026 alone: one pass over the log, and one over its requests."""
    servers: dict[bytes, bytes] = {}
    requests: list[tuple[Message, Request]] = []
    replies: dict[bytes, tuple[Message, Reply, bytes]] = {}
    now = 0
    shapes = {bytes(shape.SCHEMA): shape for shape in (Request, Reply, ServerLease, Take)}
    seen: set[tuple[bytes, bytes, bytes]] = set()
    for m in log:
        event = m.origin, m.schema, m.body  # an event is the same in every copy (core §11.1)
        if event in seen:
            continue
        seen.add(event)
        found = decode_record((shapes[m.schema],), m.body)
        if not isinstance(found, Record):
            continue
        now = max(now, m.hub_ts)
        if isinstance(found, Request):
            requests.append((m, found))
        elif isinstance(found, ServerLease):
            principal, linked = bytes(found.principal_id), found.client_id == m.client_id
            if linked and (trusted is None or principal in trusted):
                servers.setdefault(m.client_id or b"", principal)
        elif isinstance(found, Reply) and (m.client_id or b"") in servers and m.parent_id is not None:
            replies.setdefault(m.parent_id, (m, found, servers[m.client_id or b""]))
    answers: dict[tuple[Any, ...], tuple[Message, Reply, bytes]] = {}
    for m, request in requests:
        reply, name = replies.get(m.msg_id), (request.method, m.client_id, request.idem)
        if reply is None or request.idem is None or _did_not_run(reply[1]):
            continue
        if name not in answers or reply[0].seq < answers[name][0].seq:
            answers[name] = reply
    return [_row(m, request, replies, answers, now) for m, request in requests]


def _did_not_run(reply: Reply) -> bool:
    return reply.error is not None and reply.error.code in NOT_EXECUTED


def _row(m: Message, request: Request, replies: Any, answers: Any, now: int) -> dict[str, Any]:
    found = replies.get(m.msg_id) or answers.get((request.method, m.client_id, request.idem))
    row = {"seq": m.seq, "method": request.method, "client_id": m.client_id}
    if found is None:
        late = request.timeout_ms is not None and 1_000 * now > 1_000 * m.hub_ts + request.timeout_ms
        return {**row, "status": "expired" if late else "open"}
    reply, content, principal = found
    row |= {"reply_seq": reply.seq, "server": principal}
    if content.error is None:
        return {**row, "status": "answered"}
    return {**row, "status": "failed", "code": content.error.code}
