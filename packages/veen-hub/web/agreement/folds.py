"""Results that the console computes from records, made by veen-overlays: query groups, wallets, registers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import queries  # noqa: F401 - makes query_logs importable
from query_logs import Stream, answer, query

from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_overlays.crdt import LWW_REGISTERS, LwwWrite
from veen_overlays.fold.event import Message
from veen_overlays.identifiers import CtxId, RealmId, TransferId, wallet_id
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.request.fields import BASE_FIELDS, parse_field
from veen_overlays.query.selection import FieldReader
from veen_overlays.schema.record import Record
from veen_overlays.wallet import LEDGER
from veen_overlays.wallet import records as wal

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -7,
    2**80,
    10**20 + 1,
    "",
    "a",
    "é",
    "\U0001f600",
    [1],
    {"k": 1},
)
PATHS = (
    "payload",
    "payload.v",
    "payload.w",
    "payload.deep.0",
    "subject_id",
    "event_time",
    "attributed",
    "hub_commit_seq",
)
METRICS = ("min", "max", "sum", "avg", "count_distinct")
DAY = 86_400
REALM = RealmId(bytes(32))
WALLETS = tuple(wallet_id(REALM, CtxId(bytes([n]) * 32), "EUR") for n in range(3))


def aggregates(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Queries that group random events, with the rows that the plain engine gives."""
    draw = random.Random(seed)  # noqa: S311 - for the same corpus again
    for number in range(count):
        stream = Stream("record/app/http")
        scalars = VALUES[:6] if draw.random() < 0.6 else VALUES
        for _ in range(draw.randrange(12)):
            payload = {
                "v": draw.choice(scalars),
                "w": draw.randrange(-3, 10 ** draw.randrange(1, 25)),
                "deep": [draw.choice(scalars)],
            }
            stream.add(payload=payload, event_time=draw.randrange(2**42), attributed=draw.random() < 0.5)
        metrics = {f"{draw.choice(METRICS)}({draw.choice(PATHS)})" for _ in range(draw.randrange(4))}
        wanted = {"group_by": draw.sample(PATHS, draw.randrange(3)), "metrics": ["count", *sorted(metrics)]}
        projection = draw.choice([["*"], ["receipt_id"]])
        try:
            descriptor = query(stream.name, aggregate=wanted, projection=projection)
        except QueryError:
            continue  # sum and avg of a field that has no integers
        yield {
            "name": f"aggregate {number}",
            "descriptor": descriptor.canonical().decode(),
            "events": [_fields(entry) for entry in stream.entries],
            "rows": _rows(descriptor, stream),
        }


def _rows(descriptor: Any, stream: Stream) -> str | None:
    """Return the rows in canonical JSON; None if a metric is not defined for a value."""
    try:
        return canonical_json.encode([dict(row) for row in answer(descriptor, stream).rows]).decode()
    except QueryError:
        return None


def _fields(event: Any) -> str:
    assert isinstance(event, SourceEvent)
    reader = FieldReader(event)
    held = {name: reader.read(parse_field(name, "")) for name in BASE_FIELDS} | {"payload": event.payload()}
    return canonical_json.encode(held).decode()


def folds(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Random messages with copies, repeated transfers and broken bodies, and the states that they fold to."""
    draw = random.Random(seed)  # noqa: S311 - for the same corpus again
    for number in range(count):
        messages = list(_messages(draw, draw.randrange(1, 40)))
        wallets = LEDGER.view(LEDGER.fold(messages).inner)
        registers = LWW_REGISTERS.view(LWW_REGISTERS.fold(messages).inner)
        yield {
            "name": f"fold {number}",
            "messages": [_message(each) for each in messages],
            "wallets": [
                [key.hex(), {name: str(v) for name, v in held.items()}] for key, held in wallets.items()
            ],
            "registers": [[key.hex(), value.hex()] for key, value in registers.items()],
        }


def _messages(draw: random.Random, count: int) -> Iterator[Message]:
    before: list[Message] = []
    for seq in range(1, count + 1):
        msg_id = H(seq.to_bytes(8, "big") + draw.randbytes(4))
        if before and draw.random() < 0.15:  # a bridged copy, or another message with the same record
            copied = draw.choice(before)
            parent = draw.choice([copied.parent_id or copied.msg_id, None])
            made = Message(seq, msg_id, copied.schema, copied.body, parent)
        else:
            record = _record(draw)
            body = record.encode() if draw.random() < 0.95 else record.encode()[:-1]
            made = Message(seq, msg_id, record.SCHEMA, body)
        before.append(made)
        yield made


def _record(draw: random.Random) -> Record:
    wallet, ts = draw.choice(WALLETS), UnixTime(draw.choice([0, 1, DAY, DAY + 5, 9 * DAY]))
    amount = draw.choice([0, 1, 250, 2**63])
    choices: Sequence[Record] = (
        wal.Open(
            wallet_id=wallet,
            realm_id=REALM,
            ctx_id=CtxId(bytes([WALLETS.index(wallet)]) * 32),
            currency="EUR",
            created_at=ts,
        ),
        wal.Deposit(wallet_id=wallet, amount=amount, ts=ts),
        wal.Withdraw(wallet_id=wallet, amount=amount, ts=ts, ref=draw.choice([None, b"r"])),
        _transfer(draw, wallet, amount, ts),
        _transfer(draw, wallet, amount, ts),
        wal.Adjust(wallet_id=wallet, delta=draw.choice([-5, 7]), ts=ts, reason="found"),
        wal.Limit(wallet_id=wallet, daily_limit=draw.choice([None, 0, 500]), ts=ts),
        wal.Freeze(wallet_id=wallet, ts=ts) if draw.random() < 0.4 else wal.Unfreeze(wallet_id=wallet, ts=ts),
        wal.Close(wallet_id=wallet, ts=ts)
        if draw.random() < 0.2
        else wal.Deposit(wallet_id=wallet, amount=9, ts=ts),
        LwwWrite(key=draw.choice([b"a", b"b"]), ts=ts, value=draw.randbytes(2)),
        LwwWrite(key=draw.choice([b"a", b"b"]), ts=ts, value=draw.randbytes(2)),
    )
    return draw.choice(choices)


def _transfer(draw: random.Random, wallet: Any, amount: int, ts: UnixTime) -> wal.Transfer:
    to, transfer = draw.choice(WALLETS), TransferId(bytes([draw.randrange(4)]) * 32)
    metadata = draw.choice([None, {"note": "x"}])
    return wal.Transfer(
        wallet_id=wallet, to_wallet_id=to, amount=amount, ts=ts, transfer_id=transfer, metadata=metadata
    )


def _message(message: Message) -> dict[str, Any]:
    parent = message.parent_id.hex() if message.parent_id is not None else None
    return {
        "msg_id": message.msg_id.hex(),
        "parent_id": parent,
        "schema": message.schema.hex(),
        "body": message.body.hex(),
    }


def as_json(count: int, seed: int) -> dict[str, Any]:
    """Return ``count`` cases of each kind."""
    return {"aggregates": list(aggregates(count, seed)), "folds": list(folds(count, seed))}
